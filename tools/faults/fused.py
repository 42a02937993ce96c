"""Faults of the Triton kernels, which the tests see in its interpreter."""

from tools.faults.fault import Fault

FOLDER = "engine/backends/fused"
KERNELS = f"{FOLDER}/kernels"

FUSED = [
    Fault(
        f"{KERNELS}/masks.py",
        "allowed = allowed & (ahead <= mask.after)",
        "allowed = allowed & (ahead < mask.after)",
        "fused: the diagonal itself is hidden",
    ),
    Fault(
        f"{KERNELS}/masks.py",
        "whole_stop = tl.minimum(whole_stop, i0 + place + mask.after + 1)",
        "whole_stop = tl.minimum(whole_stop, i1 + place + mask.after + 1)",
        "fused: tiles on the diagonal count as whole",
    ),
    Fault(
        f"{KERNELS}/masks.py",
        "start = tl.maximum(start, j0 - place - mask.after)",
        "start = tl.maximum(start, j1 - place - mask.after)",
        "fused: keys miss the first queries that see them",
    ),
    Fault(
        f"{FOLDER}/masks.py",
        "elif type(part) is Document and",
        "elif isinstance(part, Document) and",
        "fused: a mask that inherits from Document is taken for one",
    ),
    Fault(
        f"{KERNELS}/forward.py",
        "    if AXIS == 0:\n        acc = tl.trans(acc)",
        "    if AXIS == 0:\n        acc = tl.trans(acc) * 1.001",
        "fused: the outputs of feature scores are off by a thousandth",
    ),
    Fault(
        f"{KERNELS}/forward.py",
        "        acc = acc * decay\n",
        "",
        "fused: the running output does not decay",
    ),
    Fault(
        f"{KERNELS}/pull.py",
        "        dweights = dweights * kept\n",
        "",
        "fused: dropout missing from the gradient of the weights",
    ),
    Fault(
        f"{KERNELS}/pull.py",
        "grads = slope_dot(dscores, plain, score, UNIT)",
        "grads = dscores",
        "fused: the cap missing from the gradient",
    ),
    Fault(
        f"{KERNELS}/scores.py",
        "slope = 4 * (share - share * share)",
        "slope = 2 * (share - share * share)",
        "fused: the derivative of tanh is halved",
    ),
    Fault(
        f"{FOLDER}/borrowed.py",
        "if learns and query.shape[2] % BLOCK:",
        "if learns and query.shape[2] % 8:",
        "cuDNN trains on blocks that are not full",
    ),
    Fault(
        f"{KERNELS}/bits.py",
        "row = mix(mix(mix(row) + i.to(tl.uint32)) ^ SALT)",
        "row = mix(mix(row) + i.to(tl.uint32)) ^ SALT",
        "fused: other random bits than the other backends",
    ),
    Fault(
        f"{KERNELS}/solve.py",
        "best = tl.where(top > peak, first.to(tl.float32), best)",
        "best = tl.where(top >= peak, first.to(tl.float32), best)",
        "fused: of equals in two tiles the last one wins",
    ),
    Fault(
        f"{KERNELS}/keys.py",
        "out, b, g * size.group + t, block",
        "out, b, g + t, block",
        "fused: keys meet the queries of other groups",
    ),
    Fault(
        f"{KERNELS}/tiles.py",
        "acc += tl.where(seen & ((tl.abs(row) >= LARGE) | (row != row)), weight * row, 0.0)",
        "acc += 0.0 * weight",
        "fused: healing hides NaN from those who see it",
    ),
    Fault(
        f"{FOLDER}/masks.py",
        "marks.before = _near(min(back)) if back else None",
        "marks.before = _near(max(back)) if back else None",
        "fused: of two windows the wider one counts",
    ),
    Fault(
        f"{FOLDER}/backward.py",
        "* LOG2E - stat[0]) * stat[1]",
        "* LOG2E - stat[0])",
        "fused: the gradient of a sink forgets the total",
    ),
    Fault(
        f"{KERNELS}/keys.py",
        'if SCORE != "dot" and HEAL == FLAGGED:',
        'if SCORE != "dot" and HEAL == ILL:',
        "fused: sums of features that came out ill are added to",
    ),
    Fault(
        f"{KERNELS}/tiles.py",
        "t % UNITS * UNIT_ROWS + UNIT_ROWS - 1",
        "t % UNITS * UNIT_ROWS",
        "fused: what cuDNN spoilt is looked for at the key that sees most",
    ),
    Fault(
        f"{FOLDER}/driver.py",
        "room = self.rooms.pop()",
        "room = self.rooms[-1]",
        "fused: two threads write down the numbers of a start in one place",
    ),
    Fault(
        f"{FOLDER}/driver.py",
        "bytes(c_float(number))",
        "bytes(c_float(int(number)))",
        "fused: kernels are handed whole numbers",
    ),
    Fault(
        "engine/known.py",
        "        if numbers and is_capturing():",
        "        if False:",
        "fused: a graph captured after a warm-up has the warm-up's mask",
    ),
    Fault(
        f"{FOLDER}/passes.py",
        "                    tensors[at].zero_()",
        "                    pass",
        "fused: sums that were measured on begin where they were left",
    ),
    Fault(
        f"{FOLDER}/passes.py",
        "at.append(at[place] + offset)",
        "at.append(at[place])",
        "fused: the second time all sums begin in one place",
    ),
    Fault(
        f"{FOLDER}/passes.py",
        "                spot.held = None\n",
        "                pass\n",
        "fused: the tensors of a first call are kept for ever",
    ),
    Fault(
        f"{FOLDER}/kind.py",
        "return (ALWAYS.value,) if work < LEAST_WORK",
        "return (NEVER.value,) if work < LEAST_WORK",
        "fused: what little calls have under a mask comes through",
    ),
]
