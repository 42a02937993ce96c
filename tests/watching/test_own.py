"""Models whose layers call `attend`: not one bit changes, names are those of the modules, nothing is left behind."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

from regard import RegardError, attend
from regard.engine import find_weights
from regard.engine.run import OBSERVERS
from regard.layers import MultiHeadAttention, SelfAttention
from regard.layers.cache import Cache
from regard.mask import Causal, Lengths
from regard.models import Seq2Seq, Transformer, seq2seq, transformer
from regard.watching import watch
from regard.weigh import Hard


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    yield
    assert OBSERVERS == []
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks_always_called


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


class Plain(nn.Module):
    def forward(self, x):
        return attend(x, x, x, mask=Causal())


class Through(nn.Module):
    """Calls `attend` by a function of its file."""

    def forward(self, x):
        return call(x)


def call(x):
    return attend(x, x, x)


def layer(**options):
    torch.manual_seed(1)
    return MultiHeadAttention(8, 8, 8, 8, 2, **options).eval()


def test_a_layer_is_seen_as_it_attends():
    model, x, y = layer(), rows(2, 5, 8), rows(2, 7, 8)
    lengths = torch.tensor([3, 7])
    plain = model(x, y, y, lengths)
    with watch(model, top=2, rows=(4,)) as seen:
        assert torch.equal(model(x, y, y, lengths), plain)
    (look,) = seen.values()
    assert list(seen) == ["MultiHeadAttention"]
    assert seen.kinds == {"MultiHeadAttention": "cross"}
    weights = model.attention_weights
    torch.testing.assert_close(look.rows[..., 0, :], weights[..., 4, :])
    torch.testing.assert_close(look.received, weights.sum(-2))
    assert seen.checks["MultiHeadAttention"].ratio < 4


def test_keys_by_keyword_are_told_from_the_layers_own_rows():
    x, y = rows(2, 5, 8), rows(2, 5, 8)
    theirs = MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, batch_first=True))
    for model, words in ((layer(), ("queries", "keys", "values")), (theirs, ("query", "key", "value"))):
        for given, kind in (((x, x, x), "self"), ((x, y, y), "cross")):
            by_name = dict(zip(words, given, strict=True))
            first = by_name.pop(words[0])
            with watch(model) as seen:
                model(first, **by_name)
                model(**by_name, **{words[0]: first})
            assert set(seen.kinds.values()) == {kind}


def build(name):
    torch.manual_seed(3)
    if name == "seq2seq":
        config = seq2seq.Config(19, 17, embed_size=8, num_hiddens=12, num_layers=1, dropout=0.1)
        return Seq2Seq.from_config(config)
    config = transformer.Config(
        19, 17, num_hiddens=16, ffn_num_hiddens=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
        attention_dropout=0.1,
    )  # fmt: skip
    return Transformer(config)


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_models_of_both_kinds(name):
    model = build(name)
    source, target = torch.randint(1, 17, (2, 6)), torch.randint(1, 17, (2, 5))
    lengths = torch.tensor([6, 4])

    def step(model, watches):
        model = copy.deepcopy(model).train()
        torch.manual_seed(8)
        if watches:
            with watch(model) as seen:
                out = model(source, lengths, target)
        else:
            out, seen = model(source, lengths, target), None
        out.square().mean().backward()
        return out.detach(), [p.grad for p in model.parameters()], seen

    out, grads, _ = step(model, False)
    again, grads_again, seen = step(model, True)
    assert torch.equal(out, again)
    assert all(map(torch.equal, grads, grads_again))
    if name == "transformer":
        assert len(seen) == 6
        assert sorted(seen.kinds.values()) == ["cross"] * 2 + ["self"] * 4
    else:
        # one call a step, all over the source: as one look, (batch, steps, source)
        assert len(seen) == 5
        (look,) = seen.join().values()
        assert look.top_keys.shape[:2] == (2, 5)
        assert look.received.shape == (2, 6)
        torch.testing.assert_close(look.total, torch.ones(2, 5))


def test_a_module_used_twice_and_one_within_another():
    shared = SelfAttention(num_hiddens=8, num_heads=2).eval()
    model = nn.Sequential(shared, nn.Sequential(shared), SelfAttention(num_hiddens=8, num_heads=2).eval())
    with torch.no_grad(), watch(model) as seen:
        model(rows(1, 5, 8))
    assert list(seen) == ["0", "0#2", "2"]


def test_plain_modules_functions_and_calls_outside():
    x = rows(1, 2, 5, 8)
    model = nn.ModuleDict({"a": Plain(), "b": Through()})
    with watch(model) as seen:
        model["a"](x)
        model["b"](x)
        attend(x, x[..., :3, :], x[..., :3, :])
        # another model's attention is not this one's
        Plain()(x)
    assert list(seen) == ["a", "b", "attend"]
    assert seen.kinds == {"a": "self", "b": "self", "attend": "cross"}
    assert "Causal" in seen["a"].terms


def test_an_empty_block():
    with watch(Plain()) as seen:
        pass
    assert len(seen) == 0
    assert "0 attentions of Plain" in repr(seen)


def test_an_exception_in_a_module():
    class Broken(nn.Module):
        def forward(self, x):
            attend(x, x, x)
            raise ZeroDivisionError

    model = nn.ModuleList([Broken(), Plain()])
    x = rows(1, 2, 5, 8)
    with watch(model) as seen:
        with pytest.raises(ZeroDivisionError):
            model[0](x)
        model[1](x)
        # no module runs any more
        attend(x, x, x)
    assert list(seen) == ["0", "1", "attend"]
    with pytest.raises(KeyError), watch(model):
        raise KeyError


def test_watches_within_watches_and_two_models():
    one, two = nn.Sequential(Plain()), nn.Sequential(Plain())
    x = rows(1, 2, 5, 8)
    with watch(one) as first, watch(two) as second, watch(one) as third:
        one(x)
        two(x)
        two(x)
    assert (list(first), list(second), list(third)) == (["0"], ["0", "0#2"], ["0"])


def test_another_thread_has_a_stack_of_its_own():
    model, x = nn.Sequential(Plain()), rows(1, 2, 5, 8)
    with watch(model) as seen:
        other = threading.Thread(target=lambda: (model(x), attend(x, x, x)))
        other.start()
        other.join()
    # the call outside of all modules is another thread's own
    assert list(seen) == ["0"]


def test_recomputation_on_the_way_back_is_not_seen_again():
    from torch.utils.checkpoint import checkpoint

    model, x = nn.Sequential(SelfAttention(num_hiddens=8, num_heads=2)), rows(1, 5, 8).requires_grad_()
    with watch(model) as seen:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert list(seen) == ["0"]


def test_compiled_functions_tell_and_their_derivative_does_not():
    x = rows(1, 2, 5, 8).requires_grad_()

    def run(x):
        return attend(x, x, x, mask=Causal()) * 2

    compiled = torch.compile(run, backend="eager")
    plain = compiled(x)
    with watch(Plain()) as seen:
        out = compiled(x)
        out.sum().backward()
    assert torch.equal(out, plain)
    assert list(seen) == ["attend"]
    assert "Causal" in seen["attend"].terms


def test_compiled_modules_are_refused():
    inside = nn.Sequential(nn.Linear(2, 2), torch.compile(Plain()))
    in_place = Plain()
    in_place.compile()
    wanted = "watch cannot see into compiled code: {} is compiled. Watch it before torch.compile."
    for model, where in ((inside, "module '1'"), (in_place, "the model"), (torch.compile(Plain()), "the model")):
        with pytest.raises(RegardError) as error, watch(model):
            pass
        assert str(error.value) == wanted.format(where)


def test_what_cannot_be_watched_is_named():
    with pytest.raises(RegardError) as error, watch(nn.Linear(2, 2)):
        pass
    assert str(error.value) == (
        "watch cannot see into Linear: no layer calls regard.attend or is an nn.MultiheadAttention, and it is not a"
        " Hugging Face model. Weights of its own are for views.page(weights, tokens)."
    )
    with pytest.raises(RegardError, match=r"^watch model must be a torch.nn.Module, got str\.$"), watch("bert"):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": -1}, "look top must be a whole number, 0 or more, got -1."),
        ({"map": 0}, "look map must be a whole number, 1 or more, got 0."),
        ({"rows": [1.5]}, "watch rows must be whole numbers, got float."),
    ],
)
def test_options_are_looked_at_before_the_model_runs(options, message):
    with pytest.raises(RegardError) as error, watch(Plain(), **options):
        pass
    assert str(error.value) == message


def test_steps_of_a_decoder_with_a_cache():
    model = SelfAttention(num_hiddens=8, num_heads=2).eval()
    x = rows(1, 5, 8)
    with torch.no_grad(), watch(model) as whole:
        model(x, mask=Causal())
    cache = Cache()
    with torch.no_grad(), watch(model) as seen:
        for step in x.split((2, 1, 1, 1), 1):
            model(step, mask=Causal(), cache=cache)
    assert list(seen) == ["SelfAttention", *(f"SelfAttention#{i}" for i in (2, 3, 4))]
    (joined,), (wanted,) = seen.join().values(), whole.values()
    for name in ("map", "entropy", "received", "distance", "local"):
        torch.testing.assert_close(getattr(joined, name), getattr(wanted, name), atol=1e-5, rtol=1e-5)


def test_layers_are_chosen_by_number_name_and_pattern():
    parts = {"enc": nn.Sequential(Plain(), Plain()), "dec": Plain()}
    model, x = nn.Sequential(*parts.values()), rows(1, 2, 5, 8)
    for layers, wanted in (([0, 2], ["0.0", "1"]), (["0.*"], ["0.0", "0.1"]), ("1", ["1"]), ([-1], ["1"])):
        with watch(model, layers=layers) as seen:
            model(x)
        assert list(seen) == wanted
    with pytest.raises(RegardError, match=r"^watch layers: no attention is called 'dec'; there are 0.0, 0.1, 1, …$"):
        watch(model, layers=["dec"]).__enter__()


def test_drawn_weights_are_those_that_were_used():
    x = rows(1, 2, 5, 8)
    noise = torch.Generator().manual_seed(9)
    with watch(Plain()) as seen:
        attend(x, x, x, weigh=Hard("sample", generator=noise))
    assert seen.checks["attend"].ratio < 4
    assert torch.equal(seen["attend"].peak, torch.ones(1, 2, 5))


def test_terms_with_offsets_and_lengths_are_passed_on_as_given():
    x, y = rows(2, 3, 2, 5, 8), rows(2, 3, 2, 7, 8)
    offset, lengths = torch.randint(0, 3, (2, 3)), torch.randint(1, 8, (2, 3))
    mask = Causal(offset) & Lengths(lengths)
    with watch(Plain(), rows=range(5)) as seen:
        attend(x, y, y, mask=mask)
    torch.testing.assert_close(seen["attend"].rows, find_weights(x, y, mask=mask))
    assert seen.checks["attend"].ratio < 4


def test_a_module_that_leaves_attention_to_a_function_of_its_file():
    x, model = rows(1, 2, 5, 4), Through()
    with watch(model) as seen:
        model(x)
    assert len(seen) == 1
