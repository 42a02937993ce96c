"""torch's own attention: not one bit changes on any path, and the weights are those that torch itself gives."""

import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

from regard.layers import MultiHeadAttention
from regard.views import page
from regard.watching import watch

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
PAD = torch.zeros(3, 6, dtype=torch.bool)
PAD[1, 3:] = PAD[2, 5:] = True
PAST = nn.Transformer.generate_square_subsequent_mask(6)
CALLS = {
    "plain": {},
    "padded": {"src_key_padding_mask": PAD},
    "causal": {"mask": PAST, "is_causal": True},
    "both": {"mask": -torch.inf == PAST, "src_key_padding_mask": PAD},
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    yield
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks_with_kwargs


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoder(nested=False, kind=nn.TransformerEncoderLayer, dropout=0.0, **options):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # torch says why it does not take its fast path for some
        warnings.simplefilter("ignore")
        layer = kind(16, 2, 32, dropout, **{"batch_first": True, **options})
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return model


def weigh(model, x, mask=None, src_key_padding_mask=None, is_causal=False):
    """The weights of every layer, as `nn.MultiheadAttention` returns them when asked."""
    found = []
    with torch.no_grad():
        for layer in model.layers:
            rows = layer.norm1(x) if layer.norm_first else x
            masks = {"attn_mask": mask, "key_padding_mask": src_key_padding_mask}
            found.append(layer.self_attn(rows, rows, rows, **masks, average_attn_weights=False)[1])
            x = layer(x, mask, src_key_padding_mask)
    return found


STYLES = {
    "post-norm": {},
    "pre-norm": {"norm_first": True},
    "gelu": {"activation": "gelu"},
    "positions first": {"batch_first": False},
    "no bias": {"bias": False},
}


@pytest.mark.parametrize(
    ("call", "style"),
    [(call, style) for call, style in itertools.product(CALLS, STYLES) if style == "post-norm" or call == "padded"],
)
def test_an_encoder_on_every_path(call, style):
    call, style = CALLS[call], STYLES[style]
    paths = [(False, True, torch.enable_grad), (False, False, torch.inference_mode)]
    for nested, is_training, mode in [*paths, (True, False, torch.no_grad)] if len(call) == 1 else paths:
        model = encoder(nested, **style).train(is_training)
        x = rows(3, 6, 16)
        given = x if style.get("batch_first", True) else x.transpose(0, 1)
        with mode():
            plain = model(given, **call)
            with warnings.catch_warnings(), watch(model, rows=range(6)) as seen:
                warnings.filterwarnings("error", "watch")
                out = model(given, **call)
        assert torch.equal(out, plain)
        assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
        assert set(seen.kinds.values()) == {"self"}
        assert all(check.is_done and check.holds for check in seen.checks.values())
        if not style.get("batch_first", True):
            continue
        for look, wanted in zip(seen.values(), weigh(model.eval(), x, **call), strict=True):
            # padding of a nested tensor is not there
            found, wanted = (t.transpose(1, 2)[~PAD] if call.get("src_key_padding_mask") is not None else t
                             for t in (look.rows, wanted))  # fmt: skip
            torch.testing.assert_close(found, wanted, atol=2e-6, rtol=0)


@pytest.mark.parametrize("nested", [False, True])
def test_the_fast_path_is_still_taken(nested, monkeypatch):
    model, taken = encoder(nested).eval(), []
    kernel = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *x: taken.append(x[0].is_nested) or kernel(*x))
    with torch.no_grad(), watch(model, keep=True) as seen:
        model(rows(3, 6, 16), src_key_padding_mask=PAD)
    assert taken == [nested, nested]
    assert "Allowed" in seen["layers.1.self_attn"].terms
    assert "<title>a text</title>" in page(seen, list("abcdef"), out=None, title="a text", sequence=1).html


def test_the_fast_path_hides_what_is_not_zero():
    """Of a mask of numbers torch's kernel asks no more than that, and so does the look."""
    model, mask = encoder().eval(), torch.zeros(6, 6)
    mask[:, 2:] = 0.5
    with torch.no_grad(), watch(model) as seen:
        model(rows(3, 6, 16), mask)
    look = seen["layers.0.self_attn"]
    assert look.received[..., 2:].abs().max() == 0
    assert all(check.holds for check in seen.checks.values())
    with watch(model) as seen:
        model(rows(3, 6, 16), mask)
    assert seen["layers.0.self_attn"].received[..., 2:].min() > 0
    assert all(check.holds for check in seen.checks.values())


def test_a_step_of_training_with_dropout():
    results = []
    for watches in (False, True):
        model = encoder(dropout=0.3).train()
        torch.manual_seed(5)
        if watches:
            with watch(model) as seen:
                loss = model(rows(3, 6, 16), src_key_padding_mask=PAD).square().mean()
        else:
            loss = model(rows(3, 6, 16), src_key_padding_mask=PAD).square().mean()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *results))
    assert seen.checks["layers.0.self_attn"].why == "dropout was on, and weights are shown before it"


def test_one_attention_in_all_its_calls():
    module = nn.MultiheadAttention(8, 2, kdim=5, vdim=6)
    query, key, value = rows(4, 3, 8), rows(7, 3, 5), rows(7, 3, 6)
    for options in ({}, {"attn_mask": rows(6, 4, 7, seed=4)}, {"key_padding_mask": rows(3, 7, seed=4) > 0.9}):
        wanted = module(query, key, value, **options, average_attn_weights=False)
        with watch(module, rows=range(4)) as seen:
            found = module(query, key, value, **options, average_attn_weights=False)
        assert all(map(torch.equal, found, wanted))
        assert seen.kinds == {"MultiheadAttention": "cross"}
        torch.testing.assert_close(seen["MultiheadAttention"].rows, found[1])
        assert seen.checks["MultiheadAttention"].holds
    # one sequence without a batch, by position
    with watch(module, rows=range(4)) as seen:
        found = module(query[:, 0], key[:, 0], value[:, 0], rows(7, seed=4) > 0.9, True, None, False)[1]
    torch.testing.assert_close(seen["MultiheadAttention"].rows[0], found)


def test_attention_alone_on_its_own_fast_path():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), rows(3, 6, 8)
    nested = torch.nested.nested_tensor([x[0], x[1, :3]])
    with torch.no_grad():
        plain, other = module(x, x, x, PAD)[0], module(nested, nested, nested, need_weights=False)[0]
        with watch(module) as seen:
            assert torch.equal(module(x, x, x, PAD)[0], plain)
            again = module(nested, nested, nested, need_weights=False)[0]
    assert all(map(torch.equal, again.unbind(), other.unbind()))
    assert seen["MultiheadAttention#2"].total.sum((1, 2)).round().tolist() == [12, 6]
    assert all(check.is_done and check.holds for check in seen.checks.values())


def test_queries_that_see_nothing_are_not_checked():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), rows(2, 6, 8)
    hidden = torch.zeros(6, 6, dtype=torch.bool)
    hidden[2] = True
    with warnings.catch_warnings(), watch(module) as seen:
        warnings.simplefilter("error")
        out = module(x, x, x, attn_mask=hidden)[0]
    assert out[:, 2].isnan().all()
    look = seen["MultiheadAttention"]
    assert look.total[:, :, 2].abs().max() == 0
    assert seen.checks["MultiheadAttention"].rows == 10


def test_a_weight_that_is_another_is_noticed():
    model, x = encoder().eval(), rows(3, 6, 16)
    kernel, spoiled = torch._transformer_encoder_layer_fwd, 1 + 1e-4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *x: kernel(*x) * spoiled)
        with torch.no_grad(), pytest.warns(UserWarning, match="2 of 2 looks do not explain"), watch(model):
            model(x)


def test_a_whole_transformer_and_its_page():
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    given = rows(3, 6, 16), rows(3, 4, 16, seed=1)
    masks = {"tgt_mask": PAST[:4, :4] == -torch.inf, "src_key_padding_mask": PAD, "memory_key_padding_mask": PAD}
    with torch.no_grad():
        plain = model(*given, **masks)
        with watch(model, keep=True) as seen:
            assert torch.equal(model(*given, **masks), plain)
    kinds = {"encoder.layers.0.self_attn": "self", "decoder.layers.0.self_attn": "self",
             "decoder.layers.0.multihead_attn": "cross"}  # fmt: skip
    assert seen.kinds == kinds
    assert "Causal" in seen["decoder.layers.0.self_attn"].terms
    assert page(seen, {"source": list("abcdef"), "target": list("wxyz")}, out=None).html


def test_our_attention_in_its_place_is_seen_as_well():
    model, other = encoder().eval(), encoder(True).eval()
    for layer in other.layers:
        layer.self_attn = MultiHeadAttention.from_torch(layer.self_attn)
    with torch.no_grad(), watch(model) as seen, watch(other) as ours:
        out, again = (x(rows(3, 6, 16), src_key_padding_mask=PAD) for x in (model, other))
    torch.testing.assert_close(out, again, atol=2e-6, rtol=0)
    assert list(seen) == list(ours)
    assert seen.kinds == ours.kinds
    for name in seen:
        torch.testing.assert_close(seen[name].map, ours[name].map, atol=2e-6, rtol=0)


def test_a_layer_that_attends_in_a_way_of_its_own():
    class Layer(nn.TransformerEncoderLayer):
        def _sa_block(self, x, *masks, is_causal=False):
            return x.flip(1)

    model, x = encoder(kind=Layer), rows(3, 6, 16)
    reason = "Layer attends in a way of its own, and did not call it"
    with watch(model) as seen:
        model(x)
        model.eval()(x)
    assert not seen
    assert set(seen.skipped.values()) == {reason}
    assert len(seen.skipped) == 4
    # by torch's fast path the method is not called, and the attention is in use
    with torch.no_grad(), watch(model) as seen:
        model(x)
    assert len(seen) == 2
    assert all(check.is_done and check.holds for check in seen.checks.values())


def test_a_wrong_hint_is_believed_where_torch_believes_it():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), rows(2, 6, 8)
    wrong = torch.zeros(6, 6, dtype=torch.bool)
    wrong[:, 1] = True
    for mode, options, is_believed in (
        (torch.enable_grad, {"need_weights": False}, True),
        (torch.enable_grad, {"need_weights": True}, False),
        (torch.enable_grad, {"need_weights": False, "key_padding_mask": PAD[:2]}, False),
        # by its fast path the module never asks
        (torch.no_grad, {"need_weights": False}, False),
    ):
        with mode(), watch(module) as seen:
            module(x, x, x, attn_mask=wrong, is_causal=True, **options)
        (check,) = seen.checks.values()
        assert check.is_done
        assert check.holds
        assert ("Causal" in seen["MultiheadAttention"].terms) == is_believed


def test_what_cannot_be_looked_at_says_why():
    class Own(nn.MultiheadAttention):
        def forward(self, x):
            return super().forward(x, x, x)

    class Layer(nn.TransformerEncoderLayer):
        def forward(self, src, **options):
            return super().forward(src + 1)

    x = rows(3, 6, 16)
    reasons = {
        Own(16, 2): {"Own": "Own has a forward of its own"},
        encoder(kind=Layer).eval(): {f"layers.{i}.self_attn": "Layer has a forward of its own" for i in (0, 1)},
    }
    for model, wanted in reasons.items():
        with torch.no_grad(), watch(model) as seen:
            model(x)
        assert (dict(seen), seen.skipped) == ({}, wanted)
    for option in ("add_bias_kv", "add_zero_attn"):
        module = nn.MultiheadAttention(16, 2, **{option: True})
        with watch(module) as seen:
            module(x, x, x)
        (reason,) = seen.skipped.values()
        assert reason == "it attends to a key of its own beside those it is given (add_bias_kv, add_zero_attn)"
    # by its slow path such a layer is seen
    model = encoder(kind=Layer)
    with watch(model) as seen:
        model(x)
    assert len(seen) == 2
    assert not seen.skipped


def test_layers_are_chosen():
    model = encoder().eval()
    for layers in ([1], ["layers.1"], ["*.1.*"]):
        with torch.no_grad(), watch(model, layers=layers) as seen:
            model(rows(3, 6, 16))
        assert list(seen) == ["layers.1.self_attn"]
