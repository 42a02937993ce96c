"""Faults of what is made again: random numbers, versions, derivatives of any order, transforms, capped instructions."""

from tools.faults.fault import Fault

DRAWS, STRIPS, TRANSFORM = "core/draws.py", "engine/tiles/strips.py", "engine/transform.py"

AGAIN = [
    Fault(
        DRAWS,
        "                    self._write(self.before)\n",
        "",
        "a score function draws other numbers in backward",
    ),
    Fault(
        DRAWS,
        "        finally:\n            self._write(before)\n",
        "        finally:\n            pass\n",
        "drawing again moves the generator on",
    ),
    Fault(
        "core/closures.py",
        "return seen, moved + [Source(generator.get_state, generator.set_state) for generator in seen.generators]",
        "return seen, moved",
        "a generator of the function's own is not replayed",
    ),
    Fault(
        DRAWS,
        "            if is_moved:\n                source.write(old)",
        "            source.write(old)",
        "generators that a function does not draw from are written to",
    ),
    Fault(
        "engine/double_backward.py",
        "tensors = [None if x is None else x.view_as(x) for x in tensors]",
        "tensors = list(tensors)",
        "a tensor that is query and key has its gradient twice where it is differentiated again",
    ),
    Fault(
        "engine/tiles/walk.py",
        'return torch.float64 if like.dtype == torch.float32 and like.device.type != "mps" else like.dtype',
        "return like.dtype",
        "sums over many tiles are held in float32",
    ),
    Fault(
        "score/additive.py",
        "return torch.where(grown == 1, x, (grown - 1) * x / torch.log(grown))",
        "return grown - 1",
        "small numbers lose their digits before tanh in compiled code",
    ),
    Fault(
        DRAWS,
        "if not _agree(self.noted, noted):",
        "if False:",
        "a function that cannot be replayed is taken",
    ),
    Fault(
        "core/closures.py",
        "self.constants = tuple(seen.constants.values())",
        "self.constants = ()",
        "constants of a function may change before backward",
    ),
    Fault(
        "engine/call.py",
        "return tuple(t for t in self.mask.all_tensors if not t.is_inference())",
        "return ()",
        "masks may change before backward",
    ),
    Fault(
        "core/terms.py",
        "value.all_tensors if isinstance(value, Term) else ()",
        "()",
        "parts of a mask may change before backward",
    ),
    Fault(
        "mask/edges.py",
        "found = None if -1 in versions else self._kept.get(versions)",
        "found = next(iter(self._kept.values()), None)",
        "edges changed in place are not seen",
    ),
    Fault(
        STRIPS,
        "made = piece.compute(work, row, inputs, True)",
        "made = piece.compute(work, row, [x.detach().requires_grad_() for x in inputs], True)",
        "derivatives of a higher order forget what they were taken of",
    ),
    Fault(
        STRIPS,
        "return Piece(piece.takes + piece.gives, piece.takes, compute, piece.order + 1)",
        "return Piece(piece.takes + piece.takes[:1], piece.takes, compute, piece.order + 1)",
        "third derivatives cut their arguments as the first ones do",
    ),
    Fault(
        "engine/vmap.py",
        "cut = [x.select(dim, at) if isinstance(dim, int) else x",
        "cut = [x.select(0, at) if isinstance(dim, int) else x",
        "vmap takes every sample along the first axis",
    ),
    Fault(
        TRANSFORM,
        "wanted = [at for at in ctx.learns if ctx.needs_input_grad[2 + at]]",
        "wanted = [at for at in ctx.learns[:3] if ctx.needs_input_grad[2 + at]]",
        "tensors of terms get no gradient under torch.func",
    ),
    Fault(
        TRANSFORM,
        "is_told = not torch.is_grad_enabled()",
        "is_told = True",
        "observers are told of a call once more in its backward",
    ),
    Fault(
        TRANSFORM,
        "x if keep and x.requires_grad else x.detach().requires_grad_(at in wanted)",
        "x.detach().requires_grad_(at in wanted)",
        "a derivative of a derivative under torch.func is cut off",
    ),
    Fault(
        "engine/double_backward.py",
        "if not torch.is_grad_enabled():",
        "if True:",
        "second derivatives are left to a backend that has none",
    ),
    Fault(
        "engine/backends/sdpa.py",
        "(query, key, value, *call.tensors), call.constants)",
        "(query, key, value, *call.tensors), ())",
        "masks may change before a gradient that is differentiated",
    ),
    Fault(
        "weigh/entmax.py",
        "rate = torch.where(inside, (least / shares) ** (steep - 1), 0.0)",
        "rate = torch.where(inside, (least / shares) ** steep, 0.0)",
        "entmax above an alpha of two: the derivative of a wrong power",
    ),
    Fault(
        "weigh/entmax.py",
        "return self._gradient(weights.double(), grad.double()).to(grad.dtype)",
        "return self._gradient(weights, grad)",
        "entmax above an alpha of two: gradients in float32",
    ),
    Fault(
        "weigh/entmax.py",
        "    if low.dtype != torch.float64:\n        return tau\n    gap",
        "    return tau\n    gap",
        "sparsemax in float64: a threshold of running sums",
    ),
    Fault(
        "score/feature.py",
        "torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0)))",
        "torch.nn.functional.elu(x) + 1",
        "features far below zero are lost beside a one",
    ),
    Fault(
        "weigh/relu.py",
        "return (~(scores <= 0)).to(scores.dtype) * self.scale",
        "return (scores > 0).to(scores.dtype) * self.scale",
        "NaN has no derivative under relu",
    ),
    Fault(
        "mask/window.py",
        "offset = offset.clamp(-FAR, FAR) if offset.dtype == torch.int64 else offset",
        "offset = offset",
        "a tensor of offsets near the end of 64 bits overflows",
    ),
    Fault(
        "models/seq2seq.py",
        "            memory = memory.transpose(0, 1)\n",
        "            pass\n",
        "the textbook's encoder outputs are read batch first",
    ),
]
