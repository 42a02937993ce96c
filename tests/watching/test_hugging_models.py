"""Models of Hugging Face: everything is as it was after a watch, and what cannot be watched is refused."""

import copy
import json
import sys

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.watching import watch
from regard.watching.hugging import find_original

transformers = pytest.importorskip("transformers")

from tests.watching.families import build, feed, list_kinds, list_registered, read  # noqa: E402


def test_an_eager_function_that_is_not_there_is_named():
    with pytest.raises(RegardError) as error:
        find_original(nn.Linear(2, 2), "eager")
    assert str(error.value) == "watch cannot find the eager function of Linear: it names none."


def test_an_exception_restores_everything():
    model, names = build("t5", "sdpa"), list_registered()
    before = list_kinds(model)
    with pytest.raises(ZeroDivisionError, match="False"), watch(model):
        raise ZeroDivisionError("sdpa" in list_kinds(model))
    assert list_kinds(model) == before
    assert list_registered() == names
    with pytest.raises(ValueError, match="exactly one"), watch(model):
        model()
    assert list_kinds(model) == before


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_watch_within_a_watch(kind):
    model, inputs = build("llama", kind), feed("llama")
    with torch.no_grad():
        plain = model(**inputs)[0]
        with watch(model) as outer:
            with watch(model, layers=[0]) as inner:
                assert torch.equal(plain, model(**inputs)[0])
            model(**inputs)
    assert list(inner) == ["model.layers.0.self_attn"]
    assert len(outer) == 4
    assert outer.checks["model.layers.0.self_attn"].holds
    assert set(list_kinds(model)) == {kind}


def test_a_model_of_the_same_config_is_not_recorded():
    one = build("bert", "sdpa")
    other = transformers.BertModel(one.config).eval()
    with torch.no_grad():
        plain = other(**feed("bert"))[0]
        with watch(one) as seen:
            assert torch.equal(plain, other(**feed("bert"))[0])
    assert len(seen) == 0


def test_parts_with_implementations_of_their_own():
    model = copy.deepcopy(build("clip", "sdpa"))
    model.set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
    before = list_kinds(model)
    assert {"eager", "sdpa"} <= set(before)
    with torch.no_grad():
        plain = read("clip", model(**feed("clip")))
        with watch(model) as seen:
            assert torch.equal(plain, read("clip", model(**feed("clip"))))
    assert len(seen) == 4
    assert all(check.holds for check in seen.checks.values())
    assert list_kinds(model) == before


def test_a_model_within_a_module():
    model = nn.Sequential(build("vit", "sdpa"))
    with torch.no_grad(), watch(model) as seen:
        model(feed("vit")["pixel_values"])
    assert len(seen) == 2
    assert all(name.startswith("0.") for name in seen)


def test_a_planted_implementation_has_no_effect(tmp_path):
    build("bert", "sdpa").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    planted = {"_attn_implementation": "evil/kernel", "_attn_implementation_internal": "evil/kernel"}
    file.write_text(json.dumps(config | planted))
    model = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    with torch.no_grad():
        plain = model(**feed("bert"))[0]
        with watch(model) as seen:
            assert torch.equal(plain, model(**feed("bert"))[0])
    assert len(seen) == 2
    assert set(list_kinds(model)) == {"sdpa"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("evil/kernel", "watch does not run kernels of a hub, BertModel has 'evil/kernel': model.set_attn_impl"),
        ("flex_attention", "watch knows sdpa and eager, BertModel has 'flex_attention': model.set_attn_implementation"),
    ],
)
def test_other_implementations_are_refused(kind, message):
    model = copy.deepcopy(build("bert", "sdpa"))
    model.config._attn_implementation_internal = kind
    with pytest.raises(RegardError) as error, watch(model):
        pass
    assert str(error.value).startswith(message)
    assert model.config._attn_implementation == kind


def test_a_model_without_the_interface_is_refused():
    config = transformers.FalconConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=9)
    model = transformers.FalconModel(config)
    with pytest.raises(RegardError) as error, watch(model):
        pass
    assert str(error.value) == (
        "FalconModel does not use the attention interface of transformers, so watch cannot see it: use a newer"
        " transformers or model."
    )


def test_what_a_name_decides_is_refused():
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=9, reorder_and_upcast_attn=True, attn_implementation="eager"
    )
    model = transformers.GPT2Model(config)
    with pytest.raises(RegardError) as error, watch(model):
        pass
    assert str(error.value) == (
        "watch would change GPT2Attention, which decides by the name of its attention: it cannot be watched."
    )


def test_an_old_library_is_named(monkeypatch):
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.1")
    with pytest.raises(RegardError) as error, watch(build("bert", "sdpa")):
        pass
    assert str(error.value) == "watch needs transformers 5.3 or newer, got 4.57.1: pip install -U transformers."
