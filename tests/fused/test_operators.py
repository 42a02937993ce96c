"""The kernels as operators of torch: what they say of themselves holds, and a compiled call is the call to the bit."""

from __future__ import annotations

import importlib
import sys
from functools import partial

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError
from torch._dynamo.testing import AotEagerAndRecordGraphs

pytest.importorskip("triton")

from regard import RegardError, attend
from regard.bias import Alibi, Dense, Relative
from regard.engine.backends.fused import kind, operators
from regard.engine.plan import BACKENDS
from regard.layers import SelfAttention
from regard.mask import Causal, Document, Lengths, Window
from regard.score import Additive, Cosine, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax
from tests.fused.against import BACKEND, DEVICE, draw
from tests.fused.grab import BACKWARD, FORWARD, RECORDS, WHOLE, Grab, compile_whole, detach
from tests.terms import learned, move
from tests.tolerances import assert_all_close
from tests.wide import ALL

SHAPES = [(2, 2, 5, 6), (2, 1, 7, 6), (2, 1, 7, 3)]


def own(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, requires_grad=True)


# every kind of term that has a tensor, every way to keep a row, and what may be left out
CASES = {
    "causal": dict(mask=Causal()),
    "slopes, lengths": dict(bias=Alibi(), mask=Lengths(torch.tensor([3, 7]))),
    "weight": dict(score=Additive(torch.linspace(-1, 1, 6).requires_grad_()), mask=Causal()),
    "weight of heads": dict(score=Additive(torch.linspace(-1, 1, 12).view(2, 6).requires_grad_())),
    "sink, buckets": dict(weigh=Softmax(own(0.3, -1.0)), bias=Relative(torch.randn(2, 10).requires_grad_())),
    "dense, documents": dict(
        bias=Dense(torch.randn(2, 1, 7).requires_grad_()),
        mask=Document(torch.tensor([0, 0, 0, 1, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 0])),
    ),
    "bits, cap": dict(score=Dot(cap=2.0), mask=Causal() | Window(1, 1)),
    "no row kept": dict(weigh=Relu(power=2, scale=0.5), bias=Alibi(own(0.5, 0.1))),
    "sigmoid": dict(weigh=Sigmoid(shift=-1.0)),
    "solved": dict(weigh=Entmax(), score=Cosine()),
    "hard": dict(weigh=Hard()),
    "width of a number": dict(score=Gaussian(0.7)),
    "dropout": dict(dropout=0.3, mask=Window(3, 1)),
}
# where rows are rounded, outputs of scores that are no dot product are kept in float32
LOW = ("causal", "weight", "solved")
BOTH = [(name, torch.float32) for name in CASES] + [(name, torch.bfloat16) for name in LOW]


def prepare(name, dtype):
    """Rows, terms and what they learn, on the device."""
    terms = {at: x if isinstance(x, float) else move(x, DEVICE, dtype) for at, x in CASES[name].items()}
    rows = draw(*SHAPES, dtype=dtype)
    return rows, terms, learned(*(terms.get(room) for room in ("score", "weigh", "bias")))


def pull(function, leaves):
    torch.manual_seed(5)
    out = function(*leaves[:3])
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)]


@pytest.mark.thin(4)
@pytest.mark.parametrize(("name", "dtype"), BOTH, ids=lambda x: str(x).removeprefix("torch."))
def test_what_they_make_is_what_they_say(name, dtype):
    rows, terms, held = prepare(name, dtype)
    grab = Grab()
    with grab:
        pull(partial(attend, **terms, backend=BACKEND), [*rows, *held])
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    for at in (FORWARD, BACKWARD):
        op, args = grab.calls[at]
        torch.library.opcheck(op, detach(args), test_utils=tests)


@pytest.mark.parametrize("name", ["sink, buckets", *(["causal", "dropout"] if ALL else [])])
def test_they_are_traced_as_torch_wants_it(name, monkeypatch):
    asked, whole, grab = [], operators._whole, Grab()
    monkeypatch.setattr(operators, "_whole", lambda *given: asked.append(given) or whole(*given))
    rows, terms, _ = prepare(name, torch.float32)
    with grab:
        attend(*rows, **terms, backend=BACKEND)
    op, args = grab.calls[FORWARD]
    torch.library.opcheck(op, detach(args))
    # with a gradient
    torch.library.opcheck(whole, asked[0])


def test_tags_and_schemas():
    for name in (FORWARD, BACKWARD, WHOLE):
        op = getattr(torch.ops.regard, name.partition("::")[2]).default
        assert torch.Tag.pt2_compliant_tag in op.tags
        assert not op._schema.is_mutable
        assert all(x.alias_info is None for x in (*op._schema.arguments, *op._schema.returns))
        # a way through autograd in Python takes longer than all else of a call
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd")


@pytest.mark.thin(4)
@pytest.mark.parametrize(("name", "dtype"), BOTH, ids=lambda x: str(x).removeprefix("torch."))
def test_a_compiled_call_is_the_call_to_the_bit(name, dtype):
    rows, terms, held = prepare(name, dtype)
    layer = partial(attend, **terms, backend=BACKEND)
    compiled = compile_whole(layer)
    for one, other in zip(pull(compiled, [*rows, *held]), pull(layer, [*rows, *held]), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    with torch.no_grad():
        outs = []
        for function in (compiled, layer):
            torch.manual_seed(5)
            outs.append(function(*rows))
    assert torch.equal(*outs)


@RECORDS
def test_a_layer_runs_the_two_and_what_torch_would(monkeypatch):
    monkeypatch.setattr(BACKENDS["sdpa"], "refuse", lambda call: "not here")
    monkeypatch.setattr(BACKENDS["fused"], "decline", lambda call: None)
    layer, seen = SelfAttention(8, 2).to(DEVICE), AotEagerAndRecordGraphs()
    layer.shows_weights = False
    x = draw((2, 5, 8))[0]
    compile_whole(layer, seen)(x, mask=Causal(), bias=Alibi()).sum().backward()
    forward, backward = (
        [node for node in graphs[0].graph.nodes if node.op == "call_function"]
        for graphs in (seen.fw_graphs, seen.bw_graphs)
    )
    others = ("mm", "t", "view", "_unsafe_view", "transpose.int", "detach", "add.Tensor")
    allowed = {name if "." in name else f"{name}.default" for name in others}
    for nodes, name in ((forward, FORWARD), (backward, BACKWARD)):
        (asked,) = (node for node in nodes if str(node.target) == name.replace("::", ".") + ".default")
        # the slopes of a bias lie ready: a graph that made them would bring them from the host, and wait
        rest = [str(node.target).removeprefix("aten.") for node in nodes if node is not asked]
        assert {x for x in rest if x != "<built-in function getitem>"} <= allowed
        # what is known is all text
        assert [type(x) for x in asked.args if not is_node(x)] == [str]


def test_what_a_text_asks_for_is_found_once(monkeypatch):
    found, make = [], operators._Task
    monkeypatch.setattr(operators, "_Task", lambda *given: found.append(given[0]) or make(*given))
    monkeypatch.setattr(kind, "_kinds", {})
    rows, terms, held = prepare("causal", torch.float32)
    compiled = compile_whole(partial(attend, **terms, backend=BACKEND))
    for _ in range(3):
        pull(compiled, [*rows, *held])
    assert len(found) == 2
    # rows that lie elsewhere have kernels of their own
    turned = [rows[0].detach().mT.contiguous().mT.requires_grad_(), *rows[1:], *held]
    for one, other in zip(pull(compiled, turned), pull(compiled, [*rows, *held]), strict=True):
        assert torch.equal(one, other)
    assert len(found) == 4


def test_numbers_that_a_text_leaves_open():
    rows = [x.detach() for x in draw((1, 2, 7, 4), (1, 2, 7, 4), (1, 2, 7, 4))]

    def look_back(count):
        return attend(*rows, mask=Window(count, 0), backend=BACKEND)

    torch._dynamo.reset()
    seen = AotEagerAndRecordGraphs()
    compiled = torch.compile(look_back, backend=seen, fullgraph=True, dynamic=True)
    for count in range(1, 6):
        assert torch.equal(compiled(count), look_back(count))
    assert len(seen.graphs) <= 2


def test_gradients_of_gradients_are_refused_where_somebody_looks_on():
    leaves = draw(*SHAPES)
    with Grab():
        out = attend(*leaves, mask=Causal(), backend=BACKEND)
        grads = torch.autograd.grad(out.sum(), leaves, create_graph=True)
        with pytest.raises(RegardError, match="backend='fused' has no second derivative"):
            torch.autograd.grad(grads[0].sum(), leaves[1])


def test_a_transform_in_a_graph_is_refused_or_right():
    rows = [x.detach() for x in draw(*SHAPES)]

    def measure(query):
        return attend(query, *rows[1:], mask=Causal(), backend=BACKEND).square().sum()

    try:
        found = compile_whole(torch.func.grad(measure))(rows[0])
    except TorchRuntimeError:
        # the operators have no gradient of their own: it must not be taken for zero
        return
    assert_all_close([found], [torch.func.grad(measure)(rows[0])], ["dquery"])


@pytest.mark.filterwarnings("error")
def test_a_second_import_takes_the_place_of_the_first(monkeypatch):
    leaves = draw(*SHAPES)

    def look():
        with Grab() as grab:
            out = attend(*leaves, mask=Causal(), backend=BACKEND)
        assert FORWARD in grab.calls
        return out

    first = look()
    assert torch.equal(importlib.reload(operators) and look(), first)
    with monkeypatch.context() as patch:
        # while somebody still holds the first one
        patch.delitem(sys.modules, operators.__name__)
        assert importlib.import_module(operators.__name__) is not operators
    importlib.reload(operators)
    assert torch.equal(look(), first)


def is_node(x):
    return isinstance(x, torch.fx.Node) or (isinstance(x, list | tuple) and all(map(is_node, x)))
