"""Faults of the engine: tiles, derivatives, dropout, heads, precision, NaN, the choice of a backend."""

from tools.faults.fault import Fault

STEPS, WALK, STRIPS = "engine/tiles/steps.py", "engine/tiles/walk.py", "engine/tiles/strips.py"
LAYOUT, SDPA, COMPILED = "engine/tiles/layout.py", "engine/backends/sdpa.py", "engine/backends/compiled.py"
ON_CUDA = "engine/backends/sdpa_cuda.py"

ENGINE = [
    Fault(
        STEPS,
        "return dvalue, dscores if allowed is None else dscores.masked_fill(~allowed, 0.0)",
        "return dvalue, dscores",
        "mask missing from the gradient of the scores",
    ),
    Fault(
        STEPS,
        "weights = zero_out(weigh.recompute(scores, stat), allowed, None)",
        "weights = weigh.recompute(scores, stat)",
        "mask missing from the weights made again in backward",
    ),
    Fault(
        STEPS,
        "return peak, total * decay + gained, out * decay + added",
        "return peak, total + gained, out * decay + added",
        "online softmax: the running total does not decay",
    ),
    Fault(
        STEPS,
        "return peak, total * decay + gained, out * decay + added",
        "return peak, total * decay + gained, out + added",
        "online softmax: the running output does not decay",
    ),
    Fault(
        STEPS,
        "gained = mass.sum(-1, keepdim=True)",
        "gained = (mass if keep is None else mass * keep).sum(-1, keepdim=True)",
        "dropout also thins the normaliser",
    ),
    Fault(
        STEPS,
        "        dweights = dweights * keep\n",
        "        pass\n",
        "dropout missing from the gradient of the weights",
    ),
    Fault(
        STEPS,
        "dvalue = zero_out(weights, None, keep).transpose(-1, -2) @ grad",
        "dvalue = weights.transpose(-1, -2) @ grad",
        "dropout missing from the gradient of the values",
    ),
    Fault(
        STEPS,
        "return out + zero_out(weights, allowed, keep) @ value",
        "return zero_out(weights, allowed, keep) @ value",
        "pointwise weights: only the last tile of keys counts",
    ),
    Fault(
        STEPS,
        "dscores = dweights * weigh.derivative(scores, raw)",
        "dscores = dweights * weigh.derivative(raw, raw)",
        "derivative of a pointwise weigher taken at the weights instead of the scores",
    ),
    Fault(
        STEPS,
        'else scores.masked_fill_(~allowed, -float("inf"))',
        "else scores.masked_fill_(~allowed, 0.0)",
        "row weighers see forbidden scores as 0",
    ),
    Fault(
        STEPS,
        "if bias is None else scores.to(value.dtype) + bias",
        "if bias is None else scores.to(value.dtype)",
        "bias missing from the scores made again in backward",
    ),
    Fault(
        WALK,
        "mean = (g * cut_queries(out, row)).sum(-1, keepdim=True)",
        "mean = (g * cut_queries(out, row)).mean(-1, keepdim=True)",
        "softmax backward: mean over values, not sum",
    ),
    Fault(
        STEPS,
        "mean = (weights * shown).sum(-1, keepdim=True)",
        "mean = shown.mean(-1, keepdim=True)",
        "softmax backward of whole rows: a mean without the weights",
    ),
    Fault(
        WALK,
        "total = total / finished[..., -1:]",
        "total = total / mass",
        "empty rows are not zeroed",
    ),
    Fault(
        WALK,
        "held.add_(dq)",
        "held.copy_(dq)",
        "query gradient of the last tile only",
    ),
    Fault(
        WALK,
        "cut_keys(dkey, tile).add_(dk)",
        "cut_keys(dkey, tile).copy_(dk)",
        "key gradient of the last block of queries only",
    ),
    Fault(
        WALK,
        "                whole += part\n",
        "                whole.copy_(part)\n",
        "sink gradient of the last block of queries only",
    ),
    Fault(
        LAYOUT,
        "for start in range(row.j.start, row.j.stop, step):",
        "for start in range(row.j.start, row.j.stop - 1, step):",
        "a last tile of one key is left out",
    ),
    Fault(
        LAYOUT,
        "for start in range(0, size, step):",
        "for start in range(0, max(size - 1, 1), step):",
        "a last block of one query, head or sequence is left out",
    ),
    Fault(
        "engine/tiles/work.py",
        "else tensor[tile.h.start : tile.h.stop]",
        "else tensor[: len(tile.h)]",
        "tiles of later heads use the first heads' weights",
    ),
    Fault(
        STRIPS,
        "scores = scores + call.bias.tile(row)",
        "pass",
        "second derivative without the bias",
    ),
    Fault(
        STRIPS,
        "return (weights if keep is None else weights * keep) @ value",
        "return weights @ value",
        "second derivative without dropout",
    ),
    Fault(
        STRIPS,
        "cut(total, row).add_(part)",
        "cut(total, row).copy_(part)",
        "second derivative of the last strip only",
    ),
    Fault(
        "engine/fold.py",
        "key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)",
        "key.repeat(1, repeats, 1, 1), value.repeat(1, repeats, 1, 1)",
        "grouped heads meet the wrong key heads",
    ),
    Fault(
        "engine/fold.py",
        "return query.to(dtype), key.to(dtype), value.to(dtype)",
        "return query, key, value.to(dtype)",
        "half precision is not lifted to float32",
    ),
    Fault(
        "engine/call.py",
        "return kept / (1 - self.dropout)",
        "return kept",
        "dropout is not scaled up again",
    ),
    Fault(
        "core/bits.py",
        "mix((b + seed) & _LOW)",
        "mix(b & _LOW)",
        "dropout ignores its seed",
    ),
    Fault(
        "core/bits.py",
        "+ h & _LOW)",
        "+ 0 * h & _LOW)",
        "every head drops the same weights",
    ),
    Fault(
        "core/bits.py",
        "return uniform(seed, tile) >= dropout",
        "return uniform(seed, tile) < dropout",
        "dropout keeps what it should drop",
    ),
    Fault(
        "engine/poison.py",
        "if are_tame(call, query, key, value):",
        "if are_tame(call, query):",
        "NaN in keys and values is not looked for",
    ),
    Fault(
        "engine/poison.py",
        "rows = (bad_queries & sees_any) | sees_bad",
        "rows = bad_queries & sees_any",
        "NaN that is attended to does not show",
    ),
    Fault(
        "engine/run.py",
        "out = torch.where(poisoned.rows[..., None], _run_tiled(call, query, key, value), out)",
        "pass",
        "NaN that very many rows attend to does not show",
    ),
    Fault(
        SDPA,
        "isinstance(mask.offset, int) and mask.offset == 0",
        "isinstance(mask.offset, int)",
        "torch's causal flag used for any offset",
    ),
    Fault(
        SDPA,
        "bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)",
        "bias",
        "torch's kernel gets the bias without the mask",
    ),
    Fault(
        SDPA,
        "if call.weigh.sink is not None:",
        "if call.weigh is None:",
        "torch's kernel takes a sink it does not know",
    ),
    Fault(
        SDPA,
        "return not reach <= REACH[call.sizes.dtype]",
        "return False",
        "torch's backward is used for scores too large for it",
    ),
    Fault(
        ON_CUDA,
        "s.n % CUDNN_BLOCK == 0 and s.m % CUDNN_BLOCK == 0",
        "s.n % CUDNN_BLOCK == 0",
        "cuDNN trains where a last block of keys is half full",
    ),
    Fault(
        ON_CUDA,
        "all(step % 8 == 0 and step > 0 for step in steps[:-1])",
        "all(step % 8 == 0 for step in steps[:-1])",
        "cuDNN gets rows that were broadcast",
    ),
    Fault(
        SDPA,
        "if type(call.mask) is not Full:",
        "if call.mask is None:",
        "torch's kernels on CUDA get a mask",
    ),
    Fault(
        COMPILED,
        "pair.pair.gradients(query, key, dscores.to(query.dtype), *tensors)",
        "pair.pair.gradients(key, query, dscores.to(query.dtype).mT, *tensors)",
        "compiled backward swaps query and key",
    ),
    Fault(
        "engine/check.py",
        "or not 0.0 <= dropout < 1.0:",
        "or not 0.0 <= dropout <= 1.0:",
        "a dropout of one is let through",
    ),
    Fault(
        "engine/run.py",
        "return backend.run(lifted, query, key, value, again).to(call.sizes.dtype)",
        "return backend.run(lifted, query, key, value, again)",
        "half precision comes back as float32",
    ),
    Fault(
        "engine/memory.py",
        "key, value = key.masked_fill(unseen, 0.0), value.masked_fill(unseen, 0.0)",
        "value = value.masked_fill(unseen, 0.0)",
        "NaN in a key that no step sees reaches the gradients",
    ),
    Fault(
        "engine/memory.py",
        "replace(self.call, seed=draw_seed(None))",
        "replace(self.call, seed=0)",
        "all steps of a decoder drop out the same keys",
    ),
]
