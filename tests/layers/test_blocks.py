"""Blocks: the textbook's with its parameters, torch's with copied ones, and steps that equal the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.layers.blocks import AttentionDecoder, DecoderBlock, EncoderBlock
from regard.layers.cache import Cache
from regard.layers.multihead import MultiHeadAttention
from regard.layers.scored import AdditiveAttention, DotProductAttention
from tests.layers import textbook

D, HEADS, FFN = 12, 3, 20


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def heads(bias: bool = False) -> MultiHeadAttention:
    return MultiHeadAttention(D, D, D, D, HEADS, bias=bias)


@pytest.mark.parametrize("lens", [None, torch.tensor([2, 5])], ids=["none", "lens"])
def test_encoder_block_is_the_textbooks(lens):
    torch.manual_seed(0)
    saved = textbook.EncoderBlock(D, FFN, HEADS).double()
    block = EncoderBlock(heads(), D, FFN).double()
    block.load_state_dict(saved.state_dict())
    torch.testing.assert_close(block(draw(2, 5, D), lens), saved(draw(2, 5, D), lens), rtol=1e-12, atol=1e-12)


def test_decoder_block_is_the_textbooks():
    torch.manual_seed(0)
    saved = textbook.DecoderBlock(D, FFN, HEADS).double()
    block = DecoderBlock(heads(), heads(), D, FFN).double()
    block.load_state_dict(saved.state_dict())
    given = draw(2, 5, D), draw(2, 7, D, seed=1), torch.tensor([3, 7])
    torch.testing.assert_close(block(*given), saved(*given), rtol=1e-12, atol=1e-12)


def copy(block: nn.Module, source: nn.Module, pairs: dict[str, str]) -> None:
    """The parameters of torch's module, by the names of ours."""
    for ours, theirs in pairs.items():
        block.get_submodule(ours).load_state_dict(source.get_submodule(theirs).state_dict())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_encoder_block_is_torchs(norm_first, activation):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        D, HEADS, FFN, 0.0, activation, norm_first=norm_first, batch_first=True, dtype=torch.float64
    )
    attention = MultiHeadAttention.from_torch(theirs.self_attn)
    block = EncoderBlock(attention, D, FFN, norm_first=norm_first, activation=activation).double()
    copy(
        block,
        theirs,
        {"addnorm1.ln": "norm1", "addnorm2.ln": "norm2", "ffn.dense1": "linear1", "ffn.dense2": "linear2"},
    )
    X, lens = draw(2, 5, D), torch.tensor([3, 5])
    padding = torch.arange(5) >= lens[:, None]
    found, wanted = block(X, lens), theirs(X, src_key_padding_mask=padding)
    torch.testing.assert_close(found[~padding], wanted[~padding], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_decoder_block_is_torchs(norm_first):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(
        D, HEADS, FFN, 0.0, norm_first=norm_first, batch_first=True, dtype=torch.float64
    )
    layers = [MultiHeadAttention.from_torch(x) for x in (theirs.self_attn, theirs.multihead_attn)]
    block = DecoderBlock(*layers, D, FFN, norm_first=norm_first).double()
    norms = {f"addnorm{i}.ln": f"norm{i}" for i in (1, 2, 3)}
    copy(block, theirs, {**norms, "ffn.dense1": "linear1", "ffn.dense2": "linear2"})
    X, memory, lens = draw(2, 5, D), draw(2, 7, D, seed=1), torch.tensor([3, 7])
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    wanted = theirs(X, memory, causal, memory_key_padding_mask=torch.arange(7) >= lens[:, None])
    torch.testing.assert_close(block(X, memory, lens), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_steps_equal_the_whole(norm_first):
    torch.manual_seed(0)
    block = DecoderBlock(heads(), heads(), D, FFN, norm_first=norm_first).double().eval()
    X, memory, lens = draw(2, 6, D), draw(2, 7, D, seed=1), torch.tensor([3, 7])
    caches = Cache(), Cache(is_static=True)
    with torch.no_grad():
        steps = [block(part, memory, lens, caches=caches) for part in X.split((1, 1, 3, 1), 1)]
        torch.testing.assert_close(torch.cat(steps, 1), block(X, memory, lens), rtol=1e-12, atol=1e-12)


def test_any_attention_layer_may_be_handed_in():
    torch.manual_seed(0)
    block = DecoderBlock(AdditiveAttention(D, D, 4), DotProductAttention(), D, FFN).double().eval()
    X, memory = draw(2, 6, D), draw(2, 7, D, seed=1)
    whole = block(X, memory)
    # what comes later has no influence
    torch.testing.assert_close(block(X[:, :4], memory), whole[:, :4], rtol=1e-12, atol=1e-12)
    to_past, to_source = block.attention_weights
    assert to_past.shape == (2, 4, 4)
    assert to_source.shape == (2, 4, 7)


def test_lengths_reach_an_attention_by_torchs_call_or_by_another_name():
    class Named(nn.Module):
        def forward(self, q, k, v, lengths):
            seen.append(lengths)
            return q

    torch.manual_seed(0)
    layer, seen = MultiHeadAttention.from_torch(nn.MultiheadAttention(D, HEADS, batch_first=True)).double(), []
    X, lens = draw(2, 5, D), torch.tensor([3, 4])
    for given in (lens, lens[:, None].expand(2, 5)):
        out = EncoderBlock(layer, D, FFN).double()(X, given)
        assert (layer.attention_weights[0, ..., 3:] == 0).all()
        assert out.shape == X.shape
        DecoderBlock(layer, Named(), D, FFN).double()(X, X, given)
        EncoderBlock(Named(), D, FFN).double()(X, given)
    assert [x.ndim for x in seen] == [1, 1, 2, 2]


def test_terms_reach_the_attention_layer():
    block = EncoderBlock(heads(), D, FFN).double()
    X = draw(2, 5, D)
    near = torch.eye(5, dtype=torch.bool)
    block(X, mask=near)
    torch.testing.assert_close(block.attention_weights, near.double().expand(2, HEADS, 5, 5))


def test_dropout_is_off_in_evaluation():
    torch.manual_seed(0)
    block = EncoderBlock(heads(), D, FFN, dropout=0.5).double()
    X = draw(2, 5, D)
    assert not torch.equal(block(X), block(X))
    block.eval()
    assert torch.equal(block(X), block(X))


@pytest.mark.parametrize("call", ["init_state", "forward"])
def test_the_interface_asks_for_its_methods(call):
    decoder = AttentionDecoder()
    with pytest.raises(NotImplementedError):
        getattr(decoder, call)(None, None)
    with pytest.raises(NotImplementedError):
        _ = decoder.attention_weights
