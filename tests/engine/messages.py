"""Messages of the terms and tensors of a call, each with the call that brings it about: a table of test_errors.py.

The call has 2 sequences, 2 heads, 5 queries and 7 keys of width 3, in float32 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard import attend
from regard.bias import Alibi, Dense, Quadratic, Relative
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Softmax

NAN = float("nan")
META = torch.device("meta")
ONES = torch.ones
INDEX = torch.tensor

QUERY, KEY, VALUE = ONES(2, 2, 5, 3), ONES(2, 2, 7, 3), ONES(2, 2, 7, 3)


def terms(**given: Any) -> Callable[[], Any]:
    return lambda: attend(QUERY, KEY, VALUE, **given)


def rows(query: Any = QUERY, key: Any = KEY, value: Any = VALUE, **given: Any) -> Callable[[], Any]:
    return lambda: attend(query, key, value, **given)


def image(**given: Any) -> Callable[[], Any]:
    return lambda: attend(ONES(2, 2, 6, 3), ONES(2, 2, 6, 3), ONES(2, 2, 6, 3), **given)


def fickle() -> Any:
    weight = torch.tensor(1.0, requires_grad=True)

    def score(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query @ key.mT * (weight if query.shape[-2] > 1 else 1)

    attend(QUERY.clone().requires_grad_(), KEY, VALUE, score=score, backend="tiled").sum().backward()


ACTIVATIONS = "'tanh', 'relu', 'sigmoid', 'gelu', 'silu', 'leaky_relu'"
FUNCTION = (
    "a score function must return (…, i, j) for tiles (…, i, d) and (…, j, d): for query (2, 2, {i}, 3) and key"
    " (2, 2, {j}, 3) that is (2, 2, {i}, {j}), got {got}."
)
WRITE = "{0} (write {0}(…))"
A_SCORE = "score must be a Score such as Dot() or a function of two tiles, got {}."
A_WEIGHER = "weigh must be a weigher such as Softmax(), got {}."
A_MASK = "mask must be a mask such as Causal() or a bool tensor (True = attend), got {}."
A_BIAS = "bias must be a bias such as Alibi() or a tensor, got {}."
BOOL = "mask must be bool (True = attend), got {}: numbers added to the scores belong in bias=."
AXES = "query, key and value must have the same number of axes, at least two (…, i, d): query is {}, key {}, value {}."
HEADS = "query heads must be a multiple of key heads: query has 2 (shape (2, 2, 5, 3)), key has {}."

MESSAGES: list[tuple[str, Callable[[], Any]]] = [
    # --- the three tensors
    ("query must be a torch.Tensor, got list.", rows(query=[1.0])),
    ("key must be a torch.Tensor, got NoneType.", rows(key=None)),
    ("value must be a torch.Tensor, got ndarray.", rows(value=VALUE.numpy())),
    ("query must be a dense tensor, got layout sparse_coo.", rows(query=QUERY.to_sparse())),
    ("query must be float32, bfloat16, float16 or float64, got int64.", rows(QUERY.long(), KEY.long(), VALUE.long())),
    ("query must be float32, bfloat16, float16 or float64, got complex64.", rows(query=QUERY * 1j)),
    (
        "query, key and value must share one dtype: query is float32, key float64, value float32.",
        rows(key=KEY.double()),
    ),
    (
        "query, key and value must share one dtype: query is float32, key float32, value bfloat16.",
        rows(value=VALUE.bfloat16()),
    ),
    (
        "query, key and value must lie on one device: query is on cpu, key on meta, value on cpu.",
        rows(key=KEY.to(META)),
    ),
    (
        "query, key and value must lie on one device: query is on meta, key on cpu, value on cpu.",
        rows(query=QUERY.to(META)),
    ),
    (AXES.format("(2, 5, 3)", "(2, 2, 7, 3)", "(2, 2, 7, 3)"), rows(query=QUERY[0])),
    (AXES.format("(3,)", "(3,)", "(3,)"), rows(QUERY[0, 0, 0], KEY[0, 0, 0], VALUE[0, 0, 0])),
    (AXES.format("()", "()", "()"), rows(torch.tensor(1.0), torch.tensor(1.0), torch.tensor(1.0))),
    (
        "query and key must share their last size d: query has d=4 (shape (1, 2, 5, 4)),"
        " key has d=8 (shape (1, 2, 5, 8)).",
        rows(ONES(1, 2, 5, 4), ONES(1, 2, 5, 8), ONES(1, 2, 5, 8)),
    ),
    (
        "key and value must hold the same number of keys j: key has j=7 (shape (2, 2, 7, 3)),"
        " value has j=6 (shape (2, 2, 6, 3)).",
        rows(value=VALUE[:, :, 1:]),
    ),
    (
        "key and value must have the same heads: key has 2 (shape (2, 2, 7, 3)), value has 1 (shape (2, 1, 7, 3)).",
        rows(value=VALUE[:, :1]),
    ),
    (
        HEADS.format("3 (shape (2, 3, 7, 3))"),
        rows(key=ONES(2, 3, 7, 3), value=ONES(2, 3, 7, 3)),
    ),
    (
        HEADS.format("0 (shape (2, 0, 7, 3))"),
        rows(key=ONES(2, 0, 7, 3), value=ONES(2, 0, 7, 3)),
    ),
    (
        "leading axes must be equal or one: query is (2, 2, 5, 3), key (3, 2, 7, 3), value (3, 2, 7, 3).",
        rows(key=ONES(3, 2, 7, 3), value=ONES(3, 2, 7, 3)),
    ),
    # --- something else in a term's place
    (A_SCORE.format("'dot'"), terms(score="dot")),
    (A_SCORE.format("NoneType"), terms(score=None)),
    (A_SCORE.format("the class " + WRITE.format("Dot")), terms(score=Dot)),
    (A_SCORE.format("Tensor"), terms(score=ONES(5, 7))),
    (A_WEIGHER.format("'softmax'"), terms(weigh="softmax")),
    (A_WEIGHER.format("the class " + WRITE.format("Softmax")), terms(weigh=Softmax)),
    (A_WEIGHER.format("Dot"), terms(weigh=Dot())),
    (A_MASK.format("'causal'"), terms(mask="causal")),
    (A_MASK.format("NoneType"), terms(mask=None)),
    (A_MASK.format("True"), terms(mask=True)),
    (A_MASK.format("the class " + WRITE.format("Lengths")), terms(mask=Lengths)),
    (A_BIAS.format("0.5"), terms(bias=0.5)),
    (A_BIAS.format("the class " + WRITE.format("Alibi")), terms(bias=Alibi)),
    (A_BIAS.format("Full"), terms(bias=Full())),
    ("dropout must lie in [0, 1), got 1.0.", terms(dropout=1.0)),
    ("dropout must lie in [0, 1), got -0.1.", terms(dropout=-0.1)),
    ("dropout must lie in [0, 1), got nan.", terms(dropout=NAN)),
    ("dropout must lie in [0, 1), got inf.", terms(dropout=float("inf"))),
    # --- tensors of terms on another device
    (
        "Additive(weight=float32[3]) must hold tensors on the query's device cpu, got one on meta.",
        terms(score=Additive(ONES(3, device=META))),
    ),
    (
        "Softmax(sink=float32[2]) must hold tensors on the query's device cpu, got one on meta.",
        terms(weigh=Softmax(ONES(2, device=META))),
    ),
    (
        "Dense(values=float32[5, 7]) must hold tensors on the query's device cpu, got one on meta.",
        terms(bias=ONES(5, 7, device=META)),
    ),
    # --- scores
    ("Dot(cap=…) must be above zero, got 0.", terms(score=Dot(cap=0))),
    ("Dot(cap=…) must be above zero, got nan.", terms(score=Dot(cap=NAN))),
    (
        "Bilinear weight must be (d, c)=(3, 3) or (heads, d, c)=(2, 3, 3) for query d=3 and key c=3, got shape (3, 4).",
        terms(score=Bilinear(ONES(3, 4))),
    ),
    (
        "Bilinear weight must be (d, c)=(3, 4) or (heads, d, c)=(2, 3, 4) for query d=3 and key c=4, got shape (4, 3).",
        rows(key=ONES(2, 2, 7, 4), score=Bilinear(ONES(4, 3))),
    ),
    (
        "Cosine scale must be a number or one per head (2,), got shape (3,).",
        terms(score=Cosine(ONES(3))),
    ),
    (f"Additive activation must be one of {ACTIVATIONS}, got 'exp'.", terms(score=Additive(ONES(3), "exp"))),
    (
        "Additive weight must be (d,)=(3,) or (heads, d)=(2, 3) for query d=3, got shape (4,).",
        terms(score=Additive(ONES(4))),
    ),
    (f"Concat activation must be one of {ACTIVATIONS}, got 'elu'.", terms(score=Concat(ONES(3), ONES(3), "elu"))),
    (
        "Concat query_weight must be (3,) or (heads, 3)=(2, 3) for query of width 3, got shape (6,).",
        terms(score=Concat(ONES(6), ONES(3))),
    ),
    (
        "Concat key_weight must be (4,) or (heads, 4)=(2, 4) for key of width 4, got shape (3,).",
        rows(key=ONES(2, 2, 7, 4), score=Concat(ONES(3), ONES(3))),
    ),
    (
        "Gaussian width must be a number, (d,)=(3,) or (heads, d)=(2, 3), got shape (2,).",
        terms(score=Gaussian(ONES(2))),
    ),
    (
        "Feature map must be a callable or one of 'elu+1', 'relu', 'exp', 'identity', got 'elu'.",
        terms(score=Feature("elu")),
    ),
    ("a Feature map must return (…, i, features) for (2, 2, 5, 3), got int.", terms(score=Feature(lambda x: 3))),
    (
        "a Feature map must return (…, i, features) for (2, 2, 5, 3), got shape (2, 2, 3, 5).",
        terms(score=Feature(lambda x: x.mT)),
    ),
    (FUNCTION.format(i=1, j=1, got="NoneType"), terms(score=lambda query, key: None)),
    (FUNCTION.format(i=1, j=1, got="shape (2, 2, 1, 3)"), terms(score=lambda query, key: query)),
    (FUNCTION.format(i=5, j=7, got="float"), terms(score=lambda query, key: 0.5, backend="reference")),
    (
        "score function score used a tensor on one tile that it did not use on the first row:"
        " its gradient would be lost. Let it use the same tensors on every tile.",
        fickle,
    ),
    # --- weighers
    ("Relu power must be 1, 2 or 3, got 4.", terms(weigh=Relu(4))),
    ("Entmax alpha must be above 1, got 1.0: for alpha=1 use Softmax().", terms(weigh=Entmax(1.0))),
    ("Entmax alpha must be above 1, got nan: for alpha=1 use Softmax().", terms(weigh=Entmax(NAN))),
    ("Hard how must be 'argmax' or 'sample', got 'max'.", terms(weigh=Hard("max"))),
    ("Softmax sink must be one logit or one per head (2,), got shape (3,).", terms(weigh=Softmax(ONES(3)))),
    # --- masks
    (BOOL.format("float32"), terms(mask=ONES(5, 7))),
    (BOOL.format("int64"), terms(mask=ONES(5, 7).long())),
    (BOOL.format("uint8"), terms(mask=Allowed(ONES(5, 7).byte()))),
    ("mask must lie on the query's device cpu, got meta.", terms(mask=ONES(5, 7, device=META).bool())),
    ("mask must broadcast to the scores (2, 2, 5, 7), got shape (7, 5).", terms(mask=ONES(7, 5).bool())),
    ("mask must broadcast to the scores (2, 2, 5, 7), got shape (1, 1, 1, 1, 7).", terms(mask=ONES(1, 1, 1, 1, 7) > 0)),
    (
        "Lengths must be one per sequence (b,)=(2,) or one per query (b, i)=(2, 5), got shape (3,).",
        terms(mask=Lengths(INDEX([1, 2, 3]))),
    ),
    ("lengths must be at least 0, got -1.", terms(mask=Lengths(INDEX([3, -1])))),
    ("lengths must be at most 7 (the number of keys), got 8.", terms(mask=Lengths(INDEX([8, 0])))),
    ("lengths must be integers, got float32.", terms(mask=Lengths(ONES(2)))),
    ("lengths must be integers, got bool.", terms(mask=Lengths(ONES(2).bool()))),
    ("lengths must lie on the query's device cpu, got meta.", terms(mask=Lengths(INDEX([1, 2]).to(META)))),
    ("Causal offset must be a number or one per sequence (2,), got shape (3,).", terms(mask=Causal(INDEX([1, 2, 3])))),
    ("Causal offset must be integers, got float32.", terms(mask=Causal(ONES(2)))),
    ("Causal offset must lie on the query's device cpu, got meta.", terms(mask=Causal(INDEX([1, 2]).to(META)))),
    ("Window offset must be a number or one per sequence (2,), got shape ().", terms(mask=Window(1, 1, INDEX(1)))),
    ("Window reaches must be at least 0, got before=-1, after=0.", terms(mask=Window(-1, 0))),
    ("Window reaches must be at least 0, got before=2, after=-3.", terms(mask=Window(2, -3))),
    (
        "Edges takes two index vectors of one length, got queries of shape (2,) and keys of shape (1,).",
        terms(mask=Edges(INDEX([0, 1]), INDEX([0]))),
    ),
    ("Edges queries must be at most 4 (the last query), got 5.", terms(mask=Edges(INDEX([5]), INDEX([0])))),
    ("Edges queries must be at least 0, got -1.", terms(mask=Edges(INDEX([-1]), INDEX([0])))),
    ("Edges keys must be at most 6 (the last key), got 7.", terms(mask=Edges(INDEX([4]), INDEX([7])))),
    ("Edges keys must be integers, got float32.", terms(mask=Edges(INDEX([4]), ONES(1)))),
    (
        "Document query_segments must be (5,) or (b, 5)=(2, 5), got shape (7,)."
        " Give query_segments where queries are not the keys.",
        terms(mask=Document(INDEX([0] * 7))),
    ),
    (
        "Document segments must be (7,) or (b, 7)=(2, 7), got shape (6,).",
        terms(mask=Document(INDEX([0] * 6), INDEX([0] * 5))),
    ),
    ("Document segments must be integers, got float32.", terms(mask=Document(ONES(7), INDEX([0] * 5)))),
    (
        "Grid(2, 3) has 6 cells and needs as many queries and keys, got 5 queries and 7 keys.",
        terms(mask=Grid(2, 3)),
    ),
    ("Grid radius must be at least 0, got -1.", image(mask=Grid(2, 3, radius=-1))),
    ("Grid radius must be at least 0, got (1, -1).", image(mask=Grid(2, 3, radius=(1, -1)))),
    # a composed mask complains for its parts
    ("lengths must be at least 0, got -1.", terms(mask=Causal() & ~Lengths(INDEX([3, -1])))),
    ("Window reaches must be at least 0, got before=-1, after=0.", terms(mask=Window(-1, 0) | Causal())),
    # --- biases
    ("bias must be floating point, got bool: a bool mask belongs in mask=.", terms(bias=ONES(5, 7).bool())),
    ("bias must be floating point, got int64.", terms(bias=ONES(5, 7).long())),
    ("bias must broadcast to the scores (2, 2, 5, 7), got shape (3, 5, 7).", terms(bias=Dense(ONES(3, 5, 7)))),
    ("Alibi slopes must be one per head (2,), got shape (3,).", terms(bias=Alibi(ONES(3)))),
    ("Relative table must be (heads, buckets)=(2, …), got shape (3, 6).", terms(bias=Relative(ONES(3, 6)))),
    ("Relative table needs an even number of buckets, at least 4, got 5.", terms(bias=Relative(ONES(2, 5)))),
    ("Relative table needs an even number of buckets, at least 4, got 2.", terms(bias=Relative(ONES(2, 2)))),
    ("Relative table needs at least 2 buckets, got 1.", terms(bias=Relative(ONES(2, 1), two_sided=False))),
    ("Relative max_distance must exceed 2 for 8 buckets, got 2.", terms(bias=Relative(ONES(2, 8), max_distance=2))),
    (
        "Quadratic(2, 3) has 6 cells and needs as many queries and keys, got 5 queries and 7 keys.",
        terms(bias=Quadratic(2, 3, ONES(2), ONES(2, 2))),
    ),
    (
        "Quadratic alpha and centre must be (heads,)=(2,) and (heads, 2)=(2, 2), got shapes (3,) and (3, 2).",
        image(bias=Quadratic(2, 3, ONES(3), ONES(3, 2))),
    ),
]
