"""The Transformer against Marian and torch, with copied weights."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from regard.layers import MultiHeadAttention, PositionalEncoding
from regard.models.transformer import Transformer
from tests.models.small import LENS, SMALL, SOURCE, TARGET, VOCAB, assert_same, build, draw


def copy_linear(ours: nn.Linear, theirs: nn.Linear) -> None:
    ours.load_state_dict(theirs.state_dict())


def copy_marian_attention(ours: MultiHeadAttention, theirs: nn.Module) -> None:
    for name, other in {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj"}.items():
        copy_linear(ours.get_submodule(name), theirs.get_submodule(other))


@pytest.mark.parametrize("is_shared", [True, False], ids=["one-vocabulary", "two-vocabularies"])
def test_it_is_marians(is_shared):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    other_size = None if is_shared else 19
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=VOCAB, decoder_vocab_size=other_size or VOCAB, share_encoder_decoder_embeddings=is_shared,
            d_model=12, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
            encoder_ffn_dim=20, decoder_ffn_dim=20, activation_function="relu", scale_embedding=True,
            max_position_embeddings=32, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1,
            forced_eos_token_id=None, dropout=0.0,
        )
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    ours = Transformer(replace(SMALL, target_vocab_size=other_size)).double().eval()
    body = theirs.model
    ours.embedding.load_state_dict(body.encoder.embed_tokens.state_dict())
    if not is_shared:
        ours.target_embedding.load_state_dict(body.decoder.embed_tokens.state_dict())
    for mine, other in zip(ours.encoder, body.encoder.layers, strict=True):
        copy_marian_attention(mine.attention, other.self_attn)
        copy_linear(mine.addnorm1.ln, other.self_attn_layer_norm)
        copy_linear(mine.addnorm2.ln, other.final_layer_norm)
        copy_linear(mine.ffn.dense1, other.fc1)
        copy_linear(mine.ffn.dense2, other.fc2)
    for mine, other in zip(ours.decoder, body.decoder.layers, strict=True):
        copy_marian_attention(mine.attention1, other.self_attn)
        copy_marian_attention(mine.attention2, other.encoder_attn)
        copy_linear(mine.addnorm1.ln, other.self_attn_layer_norm)
        copy_linear(mine.addnorm2.ln, other.encoder_attn_layer_norm)
        copy_linear(mine.addnorm3.ln, other.final_layer_norm)
        copy_linear(mine.ffn.dense1, other.fc1)
        copy_linear(mine.ffn.dense2, other.fc2)
    # Marian's table has sines first and cosines after, ours turn by turn; its entries were rounded to float32
    turns = torch.arange(12).view(2, 6).T.flatten()
    for stack in (body.encoder, body.decoder):
        exact = PositionalEncoding(12).rows(0, 32, torch.float64, torch.device("cpu"))
        assert_same(stack.embed_positions.weight[:, turns], exact, 1e-6)
        stack.embed_positions.weight.data[:, turns] = exact
    permuted = copy.deepcopy(ours)
    restore_order(permuted, turns)
    target = draw(2, 6, seed=1, vocab=other_size or VOCAB)
    mask = (torch.arange(7) < LENS[:, None]).long()
    with torch.no_grad():
        wanted = theirs(input_ids=SOURCE, attention_mask=mask, decoder_input_ids=target).logits
        assert_same(permuted(SOURCE, LENS, target), wanted, 1e-9)
        # and the same numbers are not reached with columns left as they are
        assert (ours(SOURCE, LENS, target) - wanted).abs().max() > 1e-3


def restore_order(model: Transformer, turns: Tensor) -> None:
    """Put hidden column `turns[j]` in place j wherever a parameter meets the residual stream."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            reads = ("embedding.weight", "W_q.weight", "W_k.weight", "W_v.weight", "dense1.weight")
            writes = ("W_o.weight", "W_o.bias", "dense2.weight", "dense2.bias", "ln.weight", "ln.bias")
            if name.endswith(reads):
                parameter.copy_(parameter[:, turns])
            elif name.endswith(writes):
                parameter.copy_(parameter[turns])


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_it_is_torchs(norm_first, activation):
    torch.manual_seed(0)
    theirs = nn.Transformer(
        12, 3, 2, 2, 20, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    if not norm_first:
        # torch ends both stacks in a norm even here, the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    ours = build(norm_first=norm_first, activation=activation)
    for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
        mine.attention = MultiHeadAttention.from_torch(other.self_attn)
        for name, its in {"addnorm1.ln": "norm1", "addnorm2.ln": "norm2"}.items():
            mine.get_submodule(name).load_state_dict(other.get_submodule(its).state_dict())
        copy_linear(mine.ffn.dense1, other.linear1)
        copy_linear(mine.ffn.dense2, other.linear2)
    for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
        mine.attention1 = MultiHeadAttention.from_torch(other.self_attn)
        mine.attention2 = MultiHeadAttention.from_torch(other.multihead_attn)
        for i in (1, 2, 3):
            mine.get_submodule(f"addnorm{i}.ln").load_state_dict(other.get_submodule(f"norm{i}").state_dict())
        copy_linear(mine.ffn.dense1, other.linear1)
        copy_linear(mine.ffn.dense2, other.linear2)
    if norm_first:
        for stack in (theirs.encoder, theirs.decoder):
            nn.init.normal_(stack.norm.weight)
            nn.init.normal_(stack.norm.bias)
        ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    with torch.no_grad():
        # embeddings times √d and the paper's sines and cosines, written out
        rows = [
            torch.stack(
                [ours.embedding.weight[i] * 12**0.5 + sinusoid(at) for each in ids for at, i in enumerate(each)]
            )
            for ids in (SOURCE, TARGET)
        ]
        source, target = rows[0].view(2, 7, 12), rows[1].view(2, 6, 12)
        padding = torch.arange(7) >= LENS[:, None]
        hidden = theirs(
            source,
            target,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        assert_same(ours(SOURCE, LENS, TARGET), hidden @ ours.embedding.weight.T)


def sinusoid(position: int) -> Tensor:
    angles = [position / 10000 ** (column // 2 * 2 / 12) for column in range(12)]
    angles = torch.tensor(angles, dtype=torch.float64)
    return torch.where(torch.arange(12) % 2 == 0, angles.sin(), angles.cos())
