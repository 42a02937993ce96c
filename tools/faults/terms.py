"""Faults of scores, weighers and biases."""

from tools.faults.fault import Fault

ADDITIVE, GAUSSIAN = "score/additive.py", "score/gaussian.py"
SOFTMAX, ENTMAX = "weigh/softmax.py", "weigh/entmax.py"

TERMS = [
    Fault(
        "score/dot.py",
        "max(query.shape[-1], 1) ** -0.5",
        "1 / max(query.shape[-1], 1)",
        "dot product over d, not √d",
    ),
    Fault(
        "score/dot.py",
        "grad = grad * (1 - capped * capped)",
        "pass",
        "soft cap missing in backward",
    ),
    Fault(
        "score/dot.py",
        "else (dq * scale, dk * scale)",
        "else (dq * scale, dk)",
        "key gradient of the dot product not scaled",
    ),
    Fault(
        "score/bilinear.py",
        "return query @ self.weight, key, Product()",
        "return query @ self.weight.mT, key, Product()",
        "bilinear tiles use the transposed matrix",
    ),
    Fault(
        "score/cosine.py",
        "x = x / torch.where(peak > 0, peak, 1.0)",
        "peak = x",
        "cosine of huge vectors overflows",
    ),
    Fault(
        "score/concat.py",
        "return _project(query, self.query_weight), _project(key, self.key_weight), Outer(self.activation)",
        "return _project(query, self.key_weight), _project(key, self.query_weight), Outer(self.activation)",
        "concat tiles swap their weights",
    ),
    Fault(
        "core/closures.py",
        "self.tensors = _untangle(self.captured)",
        "self.tensors = ()",
        "tensors a function closes over get no gradient",
    ),
    Fault(
        "core/closures.py",
        "self.tensors = _untangle(self.captured)",
        "self.tensors = self.captured",
        "a closed-over tensor made of another counts twice",
    ),
    Fault(
        ADDITIVE,
        "dweight[groups] += weighted",
        "dweight[groups] -= weighted",
        "sign of the additive weight's gradient",
    ),
    Fault(
        ADDITIVE,
        "dkey[groups] += spread.sum(-3)",
        "dkey[groups] = spread.sum(-3)",
        "additive key gradient of the last block only",
    ),
    Fault(
        ADDITIVE,
        "torch.div(minus_two, top, out=top).add_(1)",
        "torch.div(minus_two, top, out=top)",
        "additive scores short of a constant",
    ),
    Fault(
        ADDITIVE,
        "is_small=all(x < _SMALL for x in largest)",
        "is_small=False",
        "additive scores of small numbers lose their digits",
    ),
    Fault(
        ADDITIVE,
        "torch.float32: 40.0",
        "torch.float32: 400.0",
        "additive score overflows for large inputs",
    ),
    Fault(
        GAUSSIAN,
        "scores.addcmul_(step, step, value=-0.5)",
        "scores.addcmul_(step, step, value=-1.0)",
        "Gaussian tiles without the half",
    ),
    Fault(
        GAUSSIAN,
        "dwidth[:, f] = -scaled.mul_(apart)",
        "dwidth[:, f] = -scaled",
        "Gaussian width's gradient by distance, not its square",
    ),
    Fault(
        GAUSSIAN,
        "dw = -(scaled * apart)",
        "dw = (scaled * apart)",
        "sign of the compiled Gaussian width's gradient",
    ),
    Fault(
        SOFTMAX,
        "expand(shape).clone(), like.new_ones(shape)",
        "expand(shape).clone(), like.new_zeros(shape)",
        "sink missing from the total",
    ),
    Fault(
        SOFTMAX,
        "reduce_to(-share * mean,",
        "reduce_to(share * mean,",
        "sign of the sink's gradient",
    ),
    Fault(
        SOFTMAX,
        "torch.cat([peak, total], -1)",
        "torch.cat([-peak, total], -1)",
        "sign in the row statistic",
    ),
    Fault(
        SOFTMAX,
        "base = torch.where(risen == -torch.inf, 0.0, risen)",
        "base = risen",
        "NaN where a row has met no key yet",
    ),
    Fault(
        SOFTMAX,
        "return grad.sub_(mean).mul_(weights)",
        "return grad.mul_(weights)",
        "softmax gradient without the mean",
    ),
    Fault(
        ENTMAX,
        "return support * (grad - mean)",
        "return support * grad",
        "entmax gradient without the mean",
    ),
    Fault(
        ENTMAX,
        "** (2 - self.alpha)",
        "** (self.alpha - 1)",
        "entmax gradient right for alpha 1.5 only",
    ),
    Fault(
        ENTMAX,
        "_last(taus, (ranked > taus) & real)",
        "_last(taus, ranked > taus)",
        "sparsemax counts forbidden keys",
    ),
    Fault(
        ENTMAX,
        "range(60 if low.dtype == torch.float64 else 30)",
        "range(12)",
        "bisection stops early",
    ),
    Fault(
        "weigh/hard.py",
        ".cumsum(-1).eq(1) & (scores == best)",
        ".cumsum(-1).ge(1) & (scores == best)",
        "hard attention takes all of equals",
    ),
    Fault(
        "weigh/relu.py",
        "(self.power * self.scale)",
        "self.scale",
        "derivative of the squared ReLU without its 2",
    ),
    Fault(
        "weigh/sigmoid.py",
        "return weights * (1 - weights)",
        "return weights",
        "derivative of the sigmoid is its weight",
    ),
    Fault(
        "weigh/sum.py",
        "return grad.sub_(mean).div_(stat)",
        "return grad.div_(stat)",
        "gradient of the sum without the mean",
    ),
    Fault(
        "weigh/sum.py",
        "total.abs() < torch.finfo(total.dtype).tiny",
        "total.abs() < 0",
        "a sum of nothing is NaN",
    ),
    Fault(
        "bias/alibi.py",
        "return -self.slopes[h] *",
        "return self.slopes[h] *",
        "ALiBi rewards distance",
    ),
    Fault(
        "bias/alibi.py",
        "[2 ** (-4 * k / power) for k in range(1, 2 * power + 1, 2)]",
        "[2 ** (-4 * k / power) for k in range(2, 2 * power + 1, 2)]",
        "ALiBi slopes wrong between powers of two",
    ),
    Fault(
        "bias/relative.py",
        "base = (ahead > 0) * count",
        "base = (ahead >= 0) * count",
        "a query's own place in the bucket of the future",
    ),
    Fault(
        "bias/relative.py",
        ".clamp(max=count - 1)",
        ".clamp(max=count - 2)",
        "the farthest bucket is never used",
    ),
    Fault(
        "bias/dense.py",
        "part += reduce_to(grad, part.shape)",
        "part += reduce_to(grad, torch.Size((*part.shape[:2], 1, part.shape[3])))",
        "bias gradient summed over the queries",
    ),
    Fault(
        "bias/quadratic.py",
        "i % self.width - self.centre[h, 1]",
        "i % self.width + self.centre[h, 1]",
        "quadratic bias looks to the other side",
    ),
]
