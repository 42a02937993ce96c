"""A score and a weigher of another package: found by entry points, chosen by name, trained, saved, and told of."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from regard import RegardError, attend
from regard.core.names import Named
from regard.layers import MultiHeadAttention, SelfAttention
from regard.models.encoder import Encoder
from regard.models.encoder_config import Config
from regard.models.seq2seq import Config as Seq2SeqConfig
from regard.models.seq2seq import Seq2Seq
from regard.plugins import find_plugins
from regard.score import SCORES
from regard.weigh import WEIGHS

# as its documentation would have it: a definition, what is learned at first, and nothing else
TERMS = """
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import Pointwise, Score


@dataclass(frozen=True, repr=False, eq=False)
class CityBlock(Score):
    weight: Tensor

    @classmethod
    def start(cls, heads, width):
        return {"weight": torch.full((heads, width), 0.5)}

    def __call__(self, query, key):
        apart = (query.unsqueeze(-2) - key.unsqueeze(-3)).abs()
        return -(apart * self.weight[:, None, None]).sum(-1)


@dataclass(frozen=True, repr=False)
class Square(Pointwise):
    def weight(self, scores):
        return scores.square() / 8

    def derivative(self, scores, weights):
        return scores / 4


@dataclass(frozen=True, repr=False, eq=False)
class Whole(CityBlock):
    @classmethod
    def start(cls, heads, width):
        return {"weight": torch.ones(heads, width, dtype=torch.int64)}


number = 3
"""
POINTS = """
[regard.scores]
block = owned_terms:CityBlock

[regard.weighs]
square = owned_terms:Square
"""


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """What makes a package with these entry points one that is installed."""

    def install(points: str):
        (tmp_path / "owned_terms.py").write_text(TERMS)
        (tmp_path / "owned_terms-1.dist-info").mkdir(exist_ok=True)
        (tmp_path / "owned_terms-1.dist-info" / "METADATA").write_text("Name: owned-terms\nVersion: 1\n")
        (tmp_path / "owned_terms-1.dist-info" / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path)
        find_plugins.cache_clear()
        return tmp_path

    yield install
    sys.modules.pop("owned_terms", None)
    find_plugins.cache_clear()


def write_out(layer, x):
    """The layer's self-attention by the formulas of both terms."""
    query, key, value = (w(x).view(2, 5, 4, 3).transpose(1, 2) for w in (layer.W_q, layer.W_k, layer.W_v))
    apart = (query[..., :, None, :] - key[..., None, :, :]).abs()
    scores = -torch.einsum("bhijf,hf->bhij", apart, layer.score_weight)
    return layer.W_o((scores.square() / 8 @ value).transpose(1, 2).flatten(2))


def test_layers_learn_a_score_by_its_name(declare):
    declare(POINTS)
    torch.manual_seed(0)
    layer, x = SelfAttention(12, 4, score="block", weigh=WEIGHS["square"]()).double(), torch.randn(2, 5, 12).double()
    assert torch.equal(layer.score_weight, torch.full((4, 3), 0.5).double())
    layer.score_weight.data += torch.rand(4, 3)
    grads = [torch.autograd.grad(out.sin().sum(), [*layer.parameters()]) for out in (layer(x), write_out(layer, x))]
    for got, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(got, wanted)
    # by its class, too
    assert MultiHeadAttention(12, 12, 12, 12, 4, score=SCORES["block"]).score_weight.shape == (4, 3)


@pytest.mark.parametrize("backend", ["tiled", "compiled"])
def test_what_prepares_nothing_is_its_definition_on_every_backend(declare, backend):
    declare(POINTS)
    torch.manual_seed(0)
    rows = [torch.randn(2, 2, n, 3, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7)]
    weight = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    terms = {"score": SCORES["block"](weight), "weigh": WEIGHS["square"]()}
    out, wanted = attend(*rows, **terms, backend=backend), attend(*rows, **terms, backend="reference")
    torch.testing.assert_close(out, wanted)
    leaves = [*rows, weight]
    for pair in zip(*(torch.autograd.grad(x.sin().sum(), leaves) for x in (out, wanted)), strict=True):
        torch.testing.assert_close(*pair)
    grad = torch.func.grad(lambda w: attend(*rows, score=SCORES["block"](w), backend="tiled").sin().sum())(weight)
    torch.testing.assert_close(
        grad, torch.autograd.grad(attend(*rows, score=terms["score"], backend="reference").sin().sum(), weight)[0]
    )


def test_models_are_made_saved_and_opened_by_its_name(declare, tmp_path):
    declare(POINTS)
    config = Config.preset("tiny", vocab_size=20, num_hiddens=8, num_heads=2, score="block", weigh="square")
    model, ids = Encoder.from_config(config).eval(), torch.tensor([[4, 7, 5]])
    model.save_pretrained(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["score"] == "block"
    assert torch.equal(Encoder.from_pretrained(tmp_path / "run")(ids), model(ids))
    assert {type(x.weigh).__name__ for x in model.modules() if isinstance(x, MultiHeadAttention)} == {"Square"}
    speaker = Seq2Seq.from_config(Seq2SeqConfig.preset("tiny", 20, 20, num_hiddens=8, attention="block"))
    assert isinstance(speaker.decoder.attention.score_weight, nn.Parameter)
    assert speaker(ids, None, ids).shape == (1, 3, 20)


def test_names_are_known_before_anything_is_imported(declare):
    folder = declare(POINTS)
    lines = [
        [*["train", "translate", "--settings"], "--set", "attention=block"],
        [*["train", "classify", "--settings", "--set", "score=block", "--set", "weigh=square"]],
        [*["train", "tag", "--settings", "--set", "score=blocks"]],
    ]
    program = (
        "import json, sys\nfrom regard.cli import main\n"
        "print([main(line) for line in json.loads(sys.argv[1])], *({'torch', 'owned_terms'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, json.dumps(lines)]
    path = {"PYTHONPATH": ":".join([str(folder), *sys.path]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=True)
    *told, last = done.stdout.splitlines()
    assert last == "[0, 0, 2]"
    assert any(line.split()[:3] == ["attention", f"{'|'.join(SCORES)}", "block"] for line in told)
    assert any(line.split()[:3] == ["weigh", f"{'|'.join(WEIGHS)}", "square"] for line in told)
    assert "must be one of 'additive', 'bilinear'" in done.stderr
    assert "'gaussian', 'block', got 'blocks'" in done.stderr


END = ": mend or remove the package that declares it."
WRONG = {
    "no class": ("owned_terms:number", "must be a class of Score, a contract of regard.core"),
    "another kind": ("owned_terms:Square", "must be a class of Score, a contract of regard.core"),
    "no module": ("owned_nothing:Term", "cannot be imported (No module named 'owned_nothing')"),
    "a module that raises": ("owned_breaking:Term", "cannot be imported (b?oom)"),
    "no name": ("owned_terms:Nothing", "cannot be imported (module 'owned_terms' has no attribute 'Nothing')"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_is_told(declare, case):
    reference, why = WRONG[case]
    folder = declare(f"[regard.scores]\nwrong = {reference}\n")
    (folder / "owned_breaking.py").write_text("raise RuntimeError('b\\x1boom')\n")
    with pytest.raises(RegardError) as error:
        SelfAttention(12, 4, score="wrong")
    assert str(error.value) == f"entry point regard.scores wrong={reference} {why}{END}"


def test_a_name_that_two_packages_declare_is_told(declare):
    folder = declare("[regard.scores]\nwrong = owned_terms:Square\n")
    (folder / "owned_others-1.dist-info").mkdir()
    (folder / "owned_others-1.dist-info" / "METADATA").write_text("Name: owned-others\nVersion: 1\n")
    (folder / "owned_others-1.dist-info" / "entry_points.txt").write_text(
        "[regard.scores]\nwrong = owned_terms:number\n"
    )
    with pytest.raises(RegardError) as error:
        SelfAttention(12, 4, score="wrong")
    assert str(error.value) == (
        "entry point regard.scores wrong is declared by several packages, as owned_terms:Square and owned_terms:number:"
        " remove all but one."
    )


def test_a_start_without_gradients_is_told(declare):
    declare("[regard.scores]\nwhole = owned_terms:Whole\n")
    with pytest.raises(RegardError) as error:
        SelfAttention(12, 4, score="whole")
    assert str(error.value) == (
        "SelfAttention score Whole must be made of what its start() gives: Only Tensors of floating point and complex"
        " dtype can require gradients."
    )


def test_a_name_of_ours_stays_ours(declare):
    declare("[regard.scores]\nadditive = owned_terms:CityBlock\n")
    assert SCORES["additive"].__module__ == "regard.score.additive"
    with pytest.raises(RegardError) as error:
        list(SCORES)
    assert str(error.value) == (
        "entry point regard.scores additive=owned_terms:CityBlock must have another name, which no score of regard has"
        + END
    )


def test_own_names_cost_no_search(monkeypatch):
    monkeypatch.setattr(Named, "plugins", property(lambda self: pytest.fail("looked through installed packages")))
    assert Encoder.from_config(Config.preset("tiny", vocab_size=20, score="gaussian", weigh="sum"))
