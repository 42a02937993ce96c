"""Wrong input gives one class of error, with the words that are pinned here, and nothing else."""

import ast
import functools
import pathlib
import re
import warnings

import pytest
import torch
from torch._dynamo import compiled_autograd

import regard
from regard import RegardError, attend, explain
from regard.core import Sizes
from regard.engine.backends import compiled, fused, sdpa
from regard.engine.call import Call
from regard.engine.native_gradient import guard_gradient
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Softmax
from tests.engine import test_wrong_kinds
from tests.engine.messages import KEY, QUERY, VALUE
from tests.engine.messages import MESSAGES as OF_CALLS
from tests.engine.messages_again import MESSAGES as OF_RECOMPUTATION
from tests.engine.messages_backends import MESSAGES as OF_BACKENDS
from tests.engine.messages_backends import on_cuda

MESSAGES = [*OF_CALLS, *OF_BACKENDS, *OF_RECOMPUTATION]
SRC = pathlib.Path(regard.__file__).parent
NO_COMPILER = (
    "backend='compiled' cannot take this call: torch.compile needs a C++ compiler (g++ or clang++) on the PATH."
    " Use backend='auto', or see explain(...)."
)

NO_FLASH = (
    "backend='sdpa' cannot take this call: torch has no flash kernel for cuda:0."
    " Use backend='auto', or see explain(...)."
)

NO_KERNEL = "neither torch's flash kernel nor cuDNN takes this call. Use backend='fused'."

# raised while a compiler looks on: tests/engine/test_compile.py
NO_TANGENT = "attend has no forward-mode derivative in a compiled function."
NO_TRITON = (
    "backend='fused' cannot take this call: it needs the package triton. Use backend='auto', or see explain(...)."
)
NO_SECOND = "backend='fused' has no second derivative. Use backend='tiled'."
NO_NODE = (
    "compiled autograd does not show what torch keeps for this gradient. Use backend='fused', or leave the backward"
    " pass to autograd."
)
NO_TABLE = "{} is not a table of block shapes (Expecting value: line 1 column 1 (char 0)): delete it."


@pytest.mark.parametrize(("message", "call"), MESSAGES, ids=[message[:60] for message, _ in MESSAGES])
def test_the_message_is_pinned(message, call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RegardError) as error:
            call()
    assert str(error.value) == message
    assert "\n" not in message


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(compiled, "has_compiler", lambda: False)
    with pytest.raises(RegardError) as error:
        attend(QUERY, KEY, VALUE, backend="compiled")
    assert str(error.value) == NO_COMPILER


def test_a_missing_kernel_is_named(monkeypatch):
    monkeypatch.setattr(sdpa, "has_flash", lambda device: False)
    with pytest.raises(RegardError) as error:
        on_cuda()()
    assert str(error.value) == NO_FLASH


def test_a_call_that_neither_kernel_takes_is_named():
    # by torch's own word: neither has one for the CPU
    rows = torch.zeros(2, 4, 64, 16, dtype=torch.bfloat16)
    sizes = Sizes((2,), 4, 4, 64, 64, 16, 16, 16, torch.bfloat16, torch.device("cuda", 0))
    with pytest.raises(RegardError) as error:
        sdpa.run(Call(sizes, Dot(), Softmax(), Full()), rows, rows, rows)
    assert str(error.value) == NO_KERNEL


def test_a_broken_table_of_shapes_is_named(tmp_path, monkeypatch):
    tune = pytest.importorskip("regard.engine.backends.fused.tune")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    file = tune.find_file(torch.device("cpu"))
    file.write_text("half a tab")
    with pytest.raises(RegardError) as error:
        tune.recall(torch.device("cpu"))
    assert str(error.value) == NO_TABLE.format(file)


def test_a_missing_triton_is_named(monkeypatch):
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    with pytest.raises(RegardError) as error:
        on_cuda(backend="fused")()
    assert str(error.value) == NO_TRITON


def test_a_missing_derivative_is_named():
    pytest.importorskip("triton")
    query = QUERY.clone().requires_grad_()
    (grad,) = torch.autograd.grad(attend(query, KEY, VALUE, backend="fused").sum(), query, create_graph=True)
    with pytest.raises(RegardError) as error:
        grad.sum().backward()
    assert str(error.value) == NO_SECOND


def test_a_gradient_that_compiled_autograd_hides_is_named():
    query = torch.ones(1, 1, 4, 8, requires_grad=True)
    out = torch._scaled_dot_product_flash_attention_for_cpu(query, query, query)[0]
    guard_gradient(out, None, lambda *given: None)
    with compiled_autograd._enable(lambda graph: graph), pytest.raises(RegardError) as error:
        out.sum().backward()
    assert str(error.value) == NO_NODE


def test_it_is_a_value_error():
    assert issubclass(RegardError, ValueError)
    with pytest.raises(ValueError, match="mask must be bool"):
        attend(QUERY, KEY, VALUE, mask=torch.ones(5, 7))


def test_explain_complains_as_attend_does():
    for terms in ({"mask": torch.ones(5, 7)}, {"backend": "flash"}, {"dropout": 1.0}, {"score": "dot"}):
        with pytest.raises(RegardError) as of_attend:
            attend(QUERY, KEY, VALUE, **terms)
        with pytest.raises(RegardError) as of_explain:
            explain(QUERY, KEY, VALUE, **terms)
        assert str(of_attend.value) == str(of_explain.value)


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_the_rules_hold_for_every_backend(backend):
    with pytest.raises(RegardError, match=r"^lengths must be at most 7 \(the number of keys\), got 9\.$"):
        attend(QUERY, KEY, VALUE, mask=regard.mask.Lengths(torch.tensor([9, 1])), backend=backend)


# --- that the table is complete ---------------------------------------------------------------------------------------


def pattern(node: ast.expr) -> str | None:
    """A message in the source as a regular expression, what is filled in left open."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(x.value) if isinstance(x, ast.Constant) else ".*" for x in node.values)
    return None


def list_messages(tree: ast.AST) -> list[tuple[int, str]]:
    """What is raised as a RegardError, and what `misfit…`, `complain` and `refuse` answer."""
    found = []
    for node in ast.walk(tree):
        answers = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RegardError":
            answers = node.args
        elif isinstance(node, ast.FunctionDef) and re.match(r"misfit|complain|refuse", node.name):
            returned = [x.value for x in ast.walk(node) if isinstance(x, ast.Return) and x.value]
            answers = [part for value in returned for part in branches(value)]
        found += [(x.lineno, text) for x in answers if (text := pattern(x)) is not None]
    return found


def branches(node: ast.expr) -> list[ast.expr]:
    """The answers of `a if … else b` and `a or b`."""
    if isinstance(node, ast.IfExp):
        return [*branches(node.body), *branches(node.orelse)]
    return [x for value in node.values for x in branches(value)] if isinstance(node, ast.BoolOp) else [node]


def list_source(room: str) -> list[tuple[str, pathlib.Path, int]]:
    """The messages in the files of a room, as patterns, each with its place."""
    files = sorted((SRC / room).rglob("*.py")) if (SRC / room).is_dir() else [SRC / room]
    found = []
    for file in files:
        messages = list_messages(ast.parse(file.read_text(encoding="utf-8")))
        found += [(text, file.relative_to(SRC), line) for line, text in messages]
    return found


@functools.cache
def list_texts(room: str) -> list[str]:
    """Every text in the tests of a room, expressions in it as X and what a pattern escapes as it is."""
    found = []
    for path in sorted((pathlib.Path(__file__).parents[1] / room).rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
                found.append(text.replace("\\", ""))
    return found


ROOMS = sorted(path.name for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())


def test_the_source_was_read():
    # as many as there were when this was written: a refactoring must not hide them from this test
    assert sum(len(list_source(room)) for room in ROOMS) >= 600


@pytest.mark.parametrize("room", ROOMS)
def test_every_message_of_the_source_is_pinned(room):
    missing = [f"{path}:{line}: {text}" for text, path, line in list_source(room) if not is_pinned(text, path)]
    assert not missing, "\n".join(missing)


def is_pinned(text: str, path: pathlib.Path) -> bool:
    room, looks = path.parts[0], "look" in "".join(path.parts)
    if room in ("watching", "layers", "models", "data", "tasks", "compare", "views", "cli") or looks:
        # these have no table: each family pins its own, in words
        places = ("engine", "fused") if room == "engine" else (room,)
        return any(re.search(text, found) for place in places for found in list_texts(place))
    pinned = [
        *(message for message, _ in (*MESSAGES, *test_wrong_kinds.MESSAGES)),
        NO_COMPILER,
        NO_FLASH,
        NO_KERNEL,
        NO_TANGENT,
        NO_TRITON,
        NO_SECOND,
        NO_NODE,
        NO_TABLE.format("shapes.json"),
    ]
    # a refusal comes wrapped in the planner's sentence
    return any(re.search(rf"(^|: ){text}($| Use backend)", message) for message in pinned)
