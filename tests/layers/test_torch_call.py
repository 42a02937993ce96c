"""Our attention in the place of `nn.MultiheadAttention`: torch's own modules, with copies of the weights, judge it."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.layers import MultiHeadAttention, TorchMultiHeadAttention
from regard.mask import Causal
from tests.tolerances import assert_close

F64 = torch.float64
N, L, S, E, H = 2, 5, 7, 12, 3


def rows(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pair(**options):
    module = nn.MultiheadAttention(E, H, dtype=F64, **options)
    for seed, parameter in enumerate(module.parameters()):
        # biases start as zeros: they must not go unnoticed
        parameter.data = 0.4 * rows(*parameter.shape, seed=seed)
    return module, MultiHeadAttention.from_torch(module)


LATE = torch.tensor([[False] * S, [False] * 4 + [True] * 3])
AHEAD = torch.ones(L, S, dtype=torch.bool).triu(3)
EACH = torch.rand(N * H, L, S, generator=torch.Generator().manual_seed(3)) > 0.7
EACH[..., 0] = False
HIDDEN = {
    "padding": {"key_padding_mask": LATE},
    "padding in numbers": {"key_padding_mask": rows(N, S, seed=4).masked_fill(LATE, -torch.inf)},
    "causal": {"attn_mask": AHEAD},
    "numbers": {"attn_mask": rows(L, S, seed=5).masked_fill(AHEAD, -torch.inf)},
    "a mask for each": {"attn_mask": EACH},
    "numbers for each": {"attn_mask": rows(N * H, L, S, seed=6)},
    "both": {"key_padding_mask": LATE, "attn_mask": EACH},
    "both in numbers": {"key_padding_mask": rows(N, S, seed=4).masked_fill(LATE, -torch.inf), "attn_mask": rows(L, S)},
    "nothing": {},
}


@pytest.mark.parametrize("sizes", [{}, {"kdim": 5, "vdim": 8}], ids=["one width", "three"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", HIDDEN.values(), ids=HIDDEN)
def test_every_call_is_torchs(masks, batch_first, sizes):
    module, layer = pair(batch_first=batch_first, **sizes)
    given = [rows(N, L, E), rows(N, S, module.kdim, seed=1), rows(N, S, module.vdim, seed=2)]
    given = [(x if batch_first else x.transpose(0, 1)).requires_grad_() for x in given]
    for options in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        found, wanted = (x(*given, **masks, **options) for x in (layer, module))
        assert_close(found[0], wanted[0])
        assert (found[1] is None) == (wanted[1] is None)
        if wanted[1] is not None:
            assert_close(found[1], wanted[1], "weights")
            # losses on weights teach what made them
            got, expected = (
                torch.autograd.grad(x[1].square().sum(), given[:2], retain_graph=True) for x in (found, wanted)
            )
            for x, y in zip(got, expected, strict=True):
                assert_close(x, y, "gradients of weights")
        got, expected = (torch.autograd.grad(x[0].square().sum(), given) for x in (found, wanted))
        for x, y in zip(got, expected, strict=True):
            assert_close(x, y, "gradients")
    # in the order of torch's own
    order = masks.get("key_padding_mask"), True, masks.get("attn_mask"), False
    for x, y in zip(layer(*given, *order), module(*given, *order), strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("batch_first", [True, False])
def test_one_sequence_without_a_batch(batch_first):
    module, layer = pair(batch_first=batch_first)
    query, key = rows(L, E), rows(S, E, seed=1)
    for masks in ({}, {"key_padding_mask": LATE[1], "attn_mask": EACH[:H]}):
        for average in (True, False):
            found = layer(query, key, key, **masks, average_attn_weights=average)
            for x, y in zip(found, module(query, key, key, **masks, average_attn_weights=average), strict=True):
                assert_close(x, y)


def test_gradients_reach_a_mask_that_learns():
    module, layer = pair(batch_first=True)
    query, mask = rows(N, L, E), rows(L, L, seed=5).masked_fill(AHEAD[:, :L], -torch.inf).requires_grad_()
    found, wanted = (x(query, query, query, attn_mask=mask)[0].square().sum() for x in (layer, module))
    assert_close(*(torch.autograd.grad(x, mask)[0] for x in (found, wanted)))


def test_a_hint_is_believed_where_torch_believes_it():
    module, layer = pair(batch_first=True)
    x, wrong = rows(N, L, E), torch.zeros(L, L, dtype=torch.bool)
    wrong[:, 1] = True
    for options in ({"need_weights": False}, {"need_weights": True}, {"key_padding_mask": LATE[:, :L]}):
        found, wanted = (y(x, x, x, attn_mask=wrong, is_causal=True, **options)[0] for y in (layer, module))
        assert_close(found, wanted)


def test_in_our_words_it_is_ours():
    module, layer = pair(batch_first=True)
    x, lengths = rows(N, L, E), torch.tensor([3, 5])
    late = torch.arange(L) >= lengths[:, None]
    ahead = torch.ones(L, L, dtype=torch.bool).triu(1)
    wanted = module(x, x, x, late)[0]
    for out in (layer(x, x, x, lengths), layer(x, x, x, valid_lens=lengths), layer(x, x, x, mask=~late[:, None, None])):
        assert_close(out, wanted)
    assert_close(layer(x, x, x, lengths, mask=Causal()), module(x, x, x, late, attn_mask=ahead)[0])
    plain = layer(x, x, x, valid_lens=None)
    assert_close(plain, module(x, x, x)[0])
    assert isinstance(layer, TorchMultiHeadAttention)
    again = layer.to_torch()
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in again.state_dict().items())


def test_what_it_is_asked_for_is_what_the_module_has():
    for options in ({"batch_first": True}, {"kdim": 5, "vdim": 8}, {"bias": False}):
        module, layer = pair(**options)
        for name in ("embed_dim", "kdim", "vdim", "num_heads", "head_dim", "dropout", "batch_first", "bias_k", "bias_v",
                     "add_zero_attn", "_qkv_same_embed_dim"):  # fmt: skip
            assert getattr(layer, name) == getattr(module, name), name
        assert torch.equal(layer.out_proj.weight, module.out_proj.weight)
        bias = torch.zeros(3 * E, dtype=F64) if module.in_proj_bias is None else module.in_proj_bias
        assert torch.equal(layer.in_proj_bias.as_subclass(torch.Tensor), bias)
        if module.in_proj_weight is None:
            assert layer.in_proj_weight is None
        else:
            assert torch.equal(layer.in_proj_weight, module.in_proj_weight)


@pytest.mark.parametrize("options", [{}, {"kdim": 5, "vdim": 8}, {"bias": False}])
def test_files_of_the_module_load(options):
    module, layer = pair(**options)
    other, given = MultiHeadAttention.from_torch(nn.MultiheadAttention(E, H, dtype=F64, **options)), module.state_dict()
    assert other.load_state_dict(given) == ([], [])
    assert given.keys() == module.state_dict().keys()
    assert other.state_dict().keys() == layer.state_dict().keys()
    assert all(torch.equal(value, layer.state_dict()[name]) for name, value in other.state_dict().items())
    assert other.load_state_dict(layer.state_dict()) == ([], [])
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict({name: value[:2] for name, value in given.items()})


# torch's encoders and decoders


PAD = torch.zeros(3, 6, dtype=torch.bool)
PAD[1, 3:] = PAD[2, 5:] = True
PAST = nn.Transformer.generate_square_subsequent_mask(6)
CALLS = {
    "plain": {},
    "padded": {"src_key_padding_mask": PAD},
    "padded in numbers": {"src_key_padding_mask": torch.zeros(3, 6).masked_fill(PAD, -torch.inf)},
    "causal": {"mask": PAST},
    "causal by its hint": {"mask": PAST, "is_causal": True},
    "causal in bits, padded": {"mask": -torch.inf == PAST, "src_key_padding_mask": PAD},
}


def encoders(batch_first=True, norm_first=False, num_layers=2):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=batch_first, norm_first=norm_first)
    with warnings.catch_warnings():
        # torch says why it does not take its fast path for some
        warnings.simplefilter("ignore")
        theirs = nn.TransformerEncoder(layer, num_layers)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    ours = copy.deepcopy(theirs)
    for part in ours.layers:
        part.self_attn = MultiHeadAttention.from_torch(part.self_attn)
    return theirs, ours


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_of_torchs_with_our_attention(batch_first, norm_first, monkeypatch):
    theirs, ours = encoders(batch_first, norm_first)
    X = rows(3, 6, 16, dtype=torch.float32)
    X = X if batch_first else X.transpose(0, 1)
    for is_training, mode, call in itertools.product(
        (True, False), (torch.enable_grad, torch.no_grad, torch.inference_mode), CALLS.values()
    ):
        with mode():
            wanted = theirs.train(is_training)(X, **call)
            with monkeypatch.context() as patch:
                # what would go around our layer
                patch.setattr(torch, "_transformer_encoder_layer_fwd", None)
                patch.setattr(torch, "_nested_tensor_from_mask", None)
                found = ours.train(is_training)(X, **call)
        # nested tensors have no padding to compare
        there = torch.ones_like(PAD) if "src_key_padding_mask" not in call else ~PAD
        there = there if batch_first else there.T
        assert (found - wanted)[there].abs().max() <= 1e-6 * wanted[there].abs().max().clamp(min=1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_below_layers_of_torchs_rows_come_nested(norm_first):
    theirs, ours = encoders(norm_first=norm_first, num_layers=3)
    theirs.enable_nested_tensor = ours.enable_nested_tensor = theirs.use_nested_tensor = ours.use_nested_tensor = True
    # one of ours between two of torch's
    for at in (0, 2):
        ours.layers[at] = copy.deepcopy(theirs.layers[at])
    X = rows(3, 6, 16, dtype=torch.float32)
    with torch.no_grad():
        wanted, found = (model.eval()(X, src_key_padding_mask=PAD) for model in (theirs, ours))
    assert_close(found, wanted)
    assert found[PAD].abs().max() == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_rows_are_each_a_sequence():
    layer, X = pair(batch_first=True)[1], rows(N, L, E)
    parts = [X[0].clone().requires_grad_(), X[1, :2].clone().requires_grad_()]
    nested = torch.nested.as_nested_tensor(parts)
    out = layer(nested, nested, nested, need_weights=False)[0]
    for part, found in zip(parts, out.unbind(), strict=True):
        wanted = layer(part, part, part, need_weights=False)[0]
        assert_close(found, wanted)
        got, expected = (torch.autograd.grad(x.square().sum(), part, retain_graph=True) for x in (found, wanted))
        assert_close(*got, *expected)


@pytest.mark.parametrize("call", [CALLS["padded"], CALLS["causal by its hint"]], ids=["padded", "causal"])
def test_both_learn_alike(call):
    losses = []
    target = rows(3, 6, 16, seed=8, dtype=torch.float32)
    for model in encoders():
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses.append([])
        for _ in range(20):
            loss = (model(rows(3, 6, 16, dtype=torch.float32), **call) - target)[~PAD].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    theirs, ours = torch.tensor(losses, dtype=F64)
    assert theirs[-1] < 0.95 * theirs[0]
    assert ((ours - theirs).abs() <= 2e-6 * theirs).all()


def test_copies_files_and_compilers():
    theirs, ours = encoders()
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = nn.TransformerEncoder(ours.layers[0], 3).eval()
    kinds = {type(part.self_attn) for part in copied.layers}
    assert kinds == {TorchMultiHeadAttention}
    assert copied.layers[0].self_attn.W_q.weight is not copied.layers[1].self_attn.W_q.weight
    assert copied.load_state_dict(copied.state_dict()) == ([], [])
    X = rows(3, 6, 16, dtype=torch.float32)
    compiled = torch.compile(copied.layers[0], backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_close(compiled(X, src_key_padding_mask=PAD), copied.layers[0](X, src_key_padding_mask=PAD))
        # frozen weights, and gradients on
        plain = copied(X, src_key_padding_mask=PAD)
    assert torch.equal(copied.requires_grad_(False)(X, src_key_padding_mask=PAD), plain)


def test_an_exported_encoder_serves_other_paddings():
    _, ours = encoders()
    ours.eval()
    X, mask = rows(3, 6, 16, dtype=torch.float32), PAD.clone()
    with torch.no_grad():
        exported = torch.export.export(ours, (X,), {"src_key_padding_mask": mask}).module()
        for seed in (1, 2):
            X, mask = rows(3, 6, 16, seed=seed, dtype=torch.float32), PAD.roll(seed, 0)
            found, wanted = (x(X, src_key_padding_mask=mask) for x in (exported, ours))
            assert_close(found[~mask], wanted[~mask])
    assert ours.layers[0].self_attn.in_proj_bias is not None


@pytest.mark.gpu
@pytest.mark.parametrize("masks", HIDDEN.values(), ids=HIDDEN)
def test_masks_on_the_device_are_not_waited_for(masks):
    layer = pair(batch_first=True)[1].eval().float().cuda()
    query, key = (rows(N, count, E, dtype=torch.float32).cuda() for count in (L, S))
    masks = {name: (x if x.dtype == torch.bool else x.float()).cuda() for name, x in masks.items()}
    with torch.no_grad():
        wanted = layer(query, key, key, **masks, need_weights=False)[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = layer(query, key, key, **masks, need_weights=False)[0]
        graph.replay()
    assert_close(found, wanted)


def test_a_whole_transformer():
    torch.manual_seed(0)
    theirs = nn.Transformer(16, 2, 2, 2, 32, 0.0, batch_first=True).eval()
    ours = copy.deepcopy(theirs)
    for part in (*ours.encoder.layers, *ours.decoder.layers):
        part.self_attn = MultiHeadAttention.from_torch(part.self_attn)
    for part in ours.decoder.layers:
        part.multihead_attn = MultiHeadAttention.from_torch(part.multihead_attn)
    given = rows(3, 6, 16, dtype=torch.float32), rows(3, 4, 16, seed=1, dtype=torch.float32)
    masks = {"tgt_mask": PAST[:4, :4], "src_key_padding_mask": PAD, "memory_key_padding_mask": PAD}
    masks = {name: mask if mask.dtype == torch.bool else mask == -torch.inf for name, mask in masks.items()}
    assert_close(ours(*given, **masks), theirs(*given, **masks))


# errors


X3 = torch.ones(N, L, E, dtype=F64)
CALLED = "TorchMultiHeadAttention"
KINDS = "must be bool (True = hidden) or floating point (added to the scores), got int64."
WRONG = {
    f"{CALLED} key_padding_mask must be (2, 5), got shape (5, 2).": {"key_padding_mask": torch.ones(5, 2)},
    f"{CALLED} attn_mask must be (5, 5) or (6, 5, 5), got shape (2, 5, 5).": {"attn_mask": torch.ones(2, 5, 5)},
    f"{CALLED} attn_mask {KINDS}": {"attn_mask": torch.ones(5, 5, dtype=torch.int64)},
    f"{CALLED} key_padding_mask {KINDS}": {"key_padding_mask": torch.ones(N, L, dtype=torch.int64)},
    f"{CALLED} key_padding_mask {KINDS.replace('int64', 'uint8')}": {
        "key_padding_mask": torch.zeros(N, L, dtype=torch.uint8)
    },
    f"{CALLED} key_padding_mask must be a tensor, got list.": {"key_padding_mask": [[False] * L] * N},
    f"{CALLED} attn_mask must be a tensor, got Causal.": {"attn_mask": Causal()},
    f"{CALLED} is_causal says what attn_mask is, and there is none: give it, or say mask=Causal().": {
        "is_causal": True
    },
    f"{CALLED} takes torch's words and valid_lens, mask, bias, score, weigh, cache, got need_weight.": {
        "need_weight": False
    },
    f"{CALLED} is called in torch's words or in ours, got attn_mask and mask: with ours, masks are mask and bias, and"
    " weights are in attention_weights.": {"attn_mask": torch.ones(5, 5), "mask": Causal()},
    f"{CALLED} is called in torch's words or in ours, got need_weights and valid_lens: with ours, masks are mask and"
    " bias, and weights are in attention_weights.": {"need_weights": False, "valid_lens": torch.tensor([1, 2])},
}  # fmt: skip


@pytest.mark.parametrize(("message", "options"), WRONG.items())
def test_wrong_calls_are_named(message, options):
    with pytest.raises(RegardError) as error:
        pair(batch_first=True)[1](X3, X3, X3, **options)
    assert str(error.value) == message


def test_wrong_masks_of_one_sequence_are_named():
    layer = pair(batch_first=True)[1]
    # lengths are of batches: here these numbers are a mask of the wrong kind
    for mask, message in (([False] * L, "must be a tensor, got list."), (torch.ones(L, dtype=torch.int64), KINDS)):
        with pytest.raises(RegardError) as error:
            layer(X3[0], X3[0], X3[0], key_padding_mask=mask)
        assert str(error.value) == f"{CALLED} key_padding_mask {message}"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_wrong_rows_are_named():
    layer = pair(batch_first=True)[1]
    nested = torch.nested.nested_tensor([X3[0], X3[1, :2]])
    for given, message in (
        (
            nested,
            f"{CALLED} takes nested rows with batch_first, where they attend to themselves with no masks and"
            " need_weights=False: else give padded rows and key_padding_mask.",
        ),
        ("x", f"{CALLED} queries must be a tensor, got str."),
        (X3[None], f"{CALLED} queries must be (batch, queries, query_size=12), got shape (1, 2, 5, 12)."),
    ):
        with pytest.raises(RegardError) as error:
            layer(given, given, given, key_padding_mask=None)
        assert str(error.value) == message


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_what_has_no_counterpart_is_refused(option):
    with pytest.raises(RegardError, match=rf"^MultiHeadAttention.from_torch has no counterpart of {option}=True: "):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(E, H, **{option: True}))
