"""The Transformer against Marian and torch with copied weights, and steps with caches against the whole."""

from __future__ import annotations

import copy
import json
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
import torch
from torch import Tensor, nn

from regard import RegardError
from regard.layers import LearnedPositionalEncoding, MultiHeadAttention, PositionalEncoding
from regard.models.decode import decode_greedily, search_beam
from regard.models.transformer import POSITIONS, PRESETS, WEIGHS, Config, Transformer, TransformerState

VOCAB = 23
SMALL = Config(VOCAB, None, num_hiddens=12, ffn_num_hiddens=20, num_heads=3, num_encoder_layers=2, num_decoder_layers=2)
LENS = torch.tensor([3, 7])


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    # over tensors this small, threads only wait for one another
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draw(*shape: int, seed: int = 0, vocab: int = VOCAB) -> Tensor:
    return torch.randint(1, vocab, shape, generator=torch.Generator().manual_seed(seed))


SOURCE, TARGET = draw(2, 7), draw(2, 6, seed=1)


def build(**changes) -> Transformer:
    """A model in float64 with every parameter drawn, so that none hides by being zero or one."""
    torch.manual_seed(0)
    model = Transformer(replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def assert_same(actual: Tensor, expected: Tensor, within: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=within)


# --- other libraries --------------------------------------------------------------------------------------------------


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


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("position", POSITIONS)
def test_steps_equal_the_whole(position, norm_first):
    model = build(position=position, norm_first=norm_first)
    with torch.no_grad():
        whole = model(SOURCE, LENS, TARGET)
        for widths in ((1,) * 6, (2, 1, 3)):
            state, found = model.init_state(model.encode(SOURCE, LENS), LENS), []
            for part in TARGET.split(widths, 1):
                logits, state = model.decode(part, state)
                found.append(logits)
            assert_same(torch.cat(found, 1), whole)
            assert [own.length for own, _ in state.caches] == [6, 6]


@pytest.mark.parametrize("terms", [{"score": "additive"}, {"weigh": "entmax"}, {"score": "cosine", "weigh": "sigmoid"}])
def test_steps_equal_the_whole_with_other_terms(terms):
    model = build(**terms)
    with torch.no_grad():
        state = model.init_state(model.encode(SOURCE, LENS), LENS)
        found = [model.decode(part, state)[0] for part in TARGET.split(1, 1)]
        assert_same(torch.cat(found, 1), model(SOURCE, LENS, TARGET))


@pytest.mark.parametrize("lens", [None, LENS], ids=["none", "lens"])
def test_a_reordered_state_goes_on_from_the_chosen_sequences(lens):
    model = build(position="relative")
    ways = [
        # beams of the same two sentences, twice; others of them; fewer
        [[0, 0, 1, 1], [1, 0, 3, 3], [2, 1, 0, 0], [3]],
        # nothing changes
        [[0, 1], [0, 1], [0, 1], [0, 1]],
    ]
    for way in ways:
        with torch.no_grad():
            state = model.init_state(model.encode(SOURCE, lens), lens)
            said, heard = torch.empty(2, 0, dtype=torch.int64), torch.arange(2)
            for step, indices in enumerate(map(torch.tensor, way)):
                state = model.reorder(state, indices)
                assert len(state) == len(indices)
                said, heard = said[indices], heard[indices]
                new = draw(len(indices), 1, seed=step)
                said = torch.cat((said, new), 1)
                logits, state = model.decode(new, state)
                wanted = model(SOURCE[heard], None if lens is None else lens[heard], said)[:, -1:]
                assert_same(logits, wanted)


def test_beams_of_one_sentence_keep_its_source():
    model = build()
    with torch.no_grad():
        state = model.init_state(model.encode(SOURCE, LENS), LENS)
        model.decode(TARGET[:, :1], state)
        state = model.reorder(state, torch.tensor([0, 0, 1, 1]))
        memory, kept = state.memory, [other.read()[0] for _, other in state.caches]
        state = model.reorder(state, torch.tensor([1, 0, 2, 2]))
        assert state.memory is memory
        assert all(other.read()[0].data_ptr() == x.data_ptr() for (_, other), x in zip(state.caches, kept, strict=True))
        assert state.device == memory.device
        assert model.reorder(state, torch.tensor([3, 0])).memory is not memory


@pytest.mark.parametrize("position", POSITIONS)
def test_decoding_scores_as_the_whole_pass_does(position):
    # few words and loud sources, so that sentences end, and not all at once
    model = build(position=position, target_vocab_size=9, ties_embeddings=False)
    with torch.no_grad():
        for block in model.decoder:
            block.attention2.W_o.weight *= 4
    marks = {"bos": 1, "eos": 2, "pad": 0, "max_len": 9}
    source, lens = draw(11, 7, seed=4), torch.tensor([7, 2, 5, 3, 6, 1, 4, 7, 7, 2, 5])

    def start() -> TransformerState:
        return model.init_state(model.encode(source, lens), lens)

    with torch.no_grad():
        greedy = decode_greedily(model.decode, start(), **marks)
        assert torch.equal(search_beam(model.decode, start(), beam=1, **marks).tokens, greedy.tokens)
        beam = search_beam(model.decode, start(), beam=4, alpha=0.6, **marks)
        # rows are dropped as sentences end
        assert len(set(beam.lengths.tolist())) > 1
        for found, alpha in ((greedy, 0.0), (beam, 0.6)):
            tokens = found.tokens
            before = torch.cat((torch.ones(11, 1, dtype=torch.int64), tokens[:, :-1]), 1)
            logs = model(source, lens, before).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
            said = torch.arange(tokens.shape[1]) < found.lengths[:, None]
            scores = (logs * said).sum(1) / ((5 + found.lengths.double()) / 6) ** alpha
            assert_same(found.scores, scores)


def test_gradients_pass_through_steps():
    model = build()
    wanted = torch.autograd.grad(model(SOURCE, LENS, TARGET).square().sum(), list(model.parameters()))
    state = model.init_state(model.encode(SOURCE, LENS), LENS)
    found = torch.cat([model.decode(part, state)[0] for part in TARGET.split(1, 1)], 1)
    found = torch.autograd.grad(found.square().sum(), list(model.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other, 1e-10 * max(1, other.abs().max().item()))


# --- what may have influence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("position", POSITIONS)
def test_the_future_and_padding_have_no_influence(position, norm_first):
    model = build(position=position, norm_first=norm_first)
    with torch.no_grad():
        whole = model(SOURCE, LENS, TARGET)
        later = TARGET.clone()
        later[:, 4:] = later[:, 4:] % (VOCAB - 1) + 1
        changed = model(SOURCE, LENS, later)
        assert_same(changed[:, :4], whole[:, :4], 1e-13)
        assert (changed[:, 4] - whole[:, 4]).abs().max() > 1e-4
        padded = SOURCE.clone()
        padded[0, 3:] = 0
        assert_same(model(padded, LENS, TARGET), whole, 1e-13)
        # as if there were no padding at all, here and beyond
        assert_same(model(SOURCE[:1, :3], None, TARGET[:1]), whole[:1])
        wider = nn.functional.pad(SOURCE, (0, 4))
        assert_same(model(wider, LENS, TARGET), whole)
        # what is valid does count
        other = SOURCE.clone()
        other[0, 2] = other[0, 2] % (VOCAB - 1) + 1
        assert (model(other, LENS, TARGET) - whole)[0].abs().max() > 1e-4


@pytest.mark.parametrize("position", POSITIONS)
def test_order_is_known_unless_positions_are_none(position):
    # in a second layer of the decoder the causal mask alone tells of order
    model = build(position=position, num_decoder_layers=1)
    # not the other way round: ALiBi's distances have no sign
    turned = SOURCE[1:].roll(1, 1)
    swapped = TARGET[1:][:, [1, 0, 2, 3, 4, 5]]
    with torch.no_grad():
        whole = model(SOURCE[1:], None, TARGET[1:])
        of_source = (model(turned, None, TARGET[1:]) - whole).abs().max().item()
        of_target = (model(SOURCE[1:], None, swapped) - whole)[:, 2:].abs().max().item()
    for far in (of_source, of_target):
        assert far < 1e-12 if position == "none" else far > 1e-4


def test_relative_positions_look_ahead_in_the_encoder_alone():
    model = build(position="relative")
    assert model.encoder_bias.two_sided
    assert not model.decoder_bias.two_sided


def test_embeddings_come_times_the_root_of_their_width():
    model = build(position="none")
    with torch.no_grad():
        rows = []
        model.encoder[0].register_forward_pre_hook(lambda _, given: rows.append(given[0]))
        model.encode(SOURCE)
        assert_same(rows[0], model.embedding.weight[SOURCE] * 12**0.5, 1e-13)


# --- parameters -------------------------------------------------------------------------------------------------------


def test_tied_weights_are_one_parameter():
    shared, two = build(), build(target_vocab_size=19)
    loose, apart = build(ties_embeddings=False), build(ties_embeddings=False, target_vocab_size=19)
    sizes = [(model, [name for name in model.state_dict() if name.startswith(("embedding", "target", "output"))])
             for model in (shared, two, loose, apart)]  # fmt: skip
    assert [names for _, names in sizes] == [
        ["embedding.weight"],
        ["embedding.weight", "target_embedding.weight"],
        ["embedding.weight", "target_embedding.weight", "output.weight"],
        ["embedding.weight", "target_embedding.weight", "output.weight"],
    ]
    # a change of the one matrix moves input and output
    with torch.no_grad():
        before = shared(SOURCE, LENS, TARGET)
        shared.embedding.weight[VOCAB - 1] += 1
        column = (shared(SOURCE, LENS, TARGET) - before).abs().amax((0, 1))
        assert column[VOCAB - 1] > 1e-3
    assert apart(SOURCE, LENS, TARGET % 19).shape == (2, 6, 19)
    # nothing is saved twice, so safetensors can hold it
    for model, _ in sizes:
        assert len({x.data_ptr() for x in model.state_dict().values()}) == len(model.state_dict())


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_first": True}, {"score": "bilinear", "ties_embeddings": False}, {"target_vocab_size": 19}],
    ids=str,
)
def test_gradients_reach_all_parameters(position, changes):
    model = build(position=position, **changes).train()
    vocab = changes.get("target_vocab_size", VOCAB)
    logits = model(SOURCE, LENS, TARGET % vocab)
    nn.functional.cross_entropy(logits.flatten(0, 1), draw(12, seed=3, vocab=vocab)).backward()
    # a bias of the keys adds the same to a row of scores: softmax does not see it
    unseen = {name for name, x in model.named_parameters() if x.grad is None or x.grad.abs().max() < 1e-12}
    assert all(name.endswith("W_k.bias") for name in unseen), unseen


def test_a_saved_model_is_the_same_model():
    model = build(position="learned", norm_first=True)
    other = Transformer(model.config).double().eval()
    assert not torch.equal(other(SOURCE, LENS, TARGET), model(SOURCE, LENS, TARGET))
    other.load_state_dict(model.state_dict())
    twin = copy.deepcopy(model)
    assert torch.equal(other(SOURCE, LENS, TARGET), model(SOURCE, LENS, TARGET))
    assert torch.equal(twin(SOURCE, LENS, TARGET), model(SOURCE, LENS, TARGET))
    with torch.no_grad():
        twin.embedding.weight.zero_()
    assert model.embedding.weight.any()


def test_it_starts_as_the_paper_has_it():
    torch.manual_seed(0)
    model = Transformer(Config.preset("small", vocab_size=2000, position="learned", ties_embeddings=False))
    for embedding in (model.embedding, model.target_embedding):
        assert not embedding.weight[0].any()
        assert embedding.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bound = (6 / sum(module.weight.shape)) ** 0.5
            assert bound * 0.99 < module.weight.abs().max() <= bound
            assert module.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
            assert module.bias is None or not module.bias.any()
        if isinstance(module, LearnedPositionalEncoding):
            assert module.P.std().item() == pytest.approx(256**-0.5, rel=0.02)


def test_base_has_the_papers_size():
    with torch.device("meta"):
        model = Transformer(Config.preset("base", vocab_size=37000))
    # the paper's table says 65 million
    assert sum(x.numel() for x in model.parameters()) == 63_082_496
    assert len(list(model.encoder)) == len(list(model.decoder)) == 6


def test_dropout_stands_where_the_config_says():
    model = Transformer(replace(SMALL, dropout=0.5, attention_dropout=0.25, ffn_dropout=0.125))
    rates = {name: x.p for name, x in model.named_modules() if isinstance(x, nn.Dropout)}
    inner = {name for name in rates if "ffn" in name}
    assert len(inner) == 4
    assert all(rate == (0.125 if name in inner else 0.5) for name, rate in rates.items())
    assert {x.dropout for x in model.modules() if isinstance(x, MultiHeadAttention)} == {0.25}
    assert not torch.equal(model(SOURCE, LENS, TARGET), model(SOURCE, LENS, TARGET))
    model.eval()
    assert torch.equal(model(SOURCE, LENS, TARGET), model(SOURCE, LENS, TARGET))


# --- a look -----------------------------------------------------------------------------------------------------------


def test_it_shows_its_weights():
    model = build()
    assert model.attention_weights == {name: (None, None) for name in ("encoder", "decoder", "cross")}
    with torch.no_grad():
        model(SOURCE, LENS, TARGET)
        seen = model.attention_weights
        sizes = {name: [tuple(x.shape) for x in layers] for name, layers in seen.items()}
        assert sizes == {"encoder": [(2, 3, 7, 7)] * 2, "decoder": [(2, 3, 6, 6)] * 2, "cross": [(2, 3, 6, 7)] * 2}
        assert all(not x.triu(1).any() for x in seen["decoder"])
        for name in ("encoder", "cross"):
            assert all(not x[0, ..., 3:].any() and x[1, ..., 3:].all() for x in seen[name])
        # a step shows its own row of them
        state = model.init_state(model.encode(SOURCE, LENS), LENS)
        for part in TARGET.split((5, 1), 1):
            model.decode(part, state)
        for name in ("decoder", "cross"):
            for row, whole in zip(model.attention_weights[name], seen[name], strict=True):
                assert_same(row, whole[:, :, -1:])


@pytest.mark.parametrize("weigh", WEIGHS)
def test_weighers_have_names(weigh):
    model = build(weigh=weigh)
    with torch.no_grad():
        assert model(SOURCE, LENS, TARGET).isfinite().all()
        assert {type(x.weigh) for x in model.modules() if isinstance(x, MultiHeadAttention)} == {WEIGHS[weigh]}


# --- config -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_go_through_json(preset):
    config = Config.preset(preset, vocab_size=50, norm_first=True)
    again = Config.from_dict(json.loads(json.dumps(asdict(config))))
    assert again == config
    assert hash(again) == hash(config)
    assert again.norm_first
    with pytest.raises(FrozenInstanceError):
        again.dropout = 0.5


def test_tiny_is_the_baseline_of_multi30k():
    config = Config.preset("tiny", vocab_size=9716)
    sizes = config.num_hiddens, config.ffn_num_hiddens, config.num_heads, config.num_encoder_layers
    assert (*sizes, config.num_decoder_layers, config.dropout) == (128, 256, 4, 4, 4, 0.3)
    assert not config.norm_first
    assert config.position == "sinusoidal"
    assert config.ties_embeddings


NAMES = (
    "vocab_size, target_vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_encoder_layers, num_decoder_layers,"
    " dropout, attention_dropout, ffn_dropout, bias, norm_first, ties_embeddings, position, score, weigh, activation,"
    " pad_id, max_len"
)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"vocab_size": "9"}, "Config vocab_size must be int, got '9'."),
        ({"vocab_size": True}, "Config vocab_size must be int, got True."),
        ({"vocab_size": None}, "Config vocab_size must be int, got None."),
        ({"vocab_size": 9, "target_vocab_size": 1.5}, "Config target_vocab_size must be int | None, got 1.5."),
        ({"vocab_size": 9, "norm_first": 1}, "Config norm_first must be bool, got 1."),
        ({"vocab_size": 9, "num_heads": 0}, "Config num_heads must be at least 1, got 0."),
        ({"vocab_size": 9, "dropout": 1}, "Config dropout must lie in [0, 1), got 1."),
        ({"vocab_size": 9, "ffn_dropout": float("nan")}, "Config ffn_dropout must lie in [0, 1), got nan."),
        (
            {"vocab_size": 9, "position": "absolute"},
            "Config position must be one of 'sinusoidal', 'learned', 'rotary', 'relative', 'alibi', 'none', got"
            " 'absolute'.",
        ),
        (
            {"vocab_size": 9, "activation": "tanh"},
            "Config activation must be one of 'relu', 'gelu', 'silu', got 'tanh'.",
        ),
        ({"vocab_size": 9, "num_heads": 7}, "Config num_hiddens=512 must be a multiple of num_heads=7."),
        ({"vocab_size": 9, "pad_id": 9}, "Config pad_id must lie in each vocabulary, 0 to 8, got 9."),
        (
            {"vocab_size": 9, "target_vocab_size": 5, "pad_id": -1},
            "Config pad_id must lie in each vocabulary, 0 to 4, got -1.",
        ),
        ({"vocab_size": 9, "layers": 3}, f"Config has no 'layers'; it has {NAMES}."),
        ({"num_heads": 8}, "Config needs 'vocab_size', got num_heads."),
        ({}, "Config needs 'vocab_size', got nothing."),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_wrong_config_is_named(entries, message):
    with pytest.raises(RegardError) as error:
        Config.from_dict(entries)
    assert str(error.value) == message


def test_an_unknown_preset_is_named():
    with pytest.raises(RegardError) as error:
        Config.preset("huge", vocab_size=9)
    assert str(error.value) == "Config preset must be one of 'tiny', 'small', 'base', got 'huge'."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, _: m.encode(SOURCE[0]),
            "Transformer source must be int64 or int32 (batch, positions), got int64 of shape (7,).",
        ),
        (
            lambda m, _: m.encode(SOURCE.double()),
            "Transformer source must be int64 or int32 (batch, positions), got float64 of shape (2, 7).",
        ),
        (
            lambda m, s: m.decode([[1]], s),
            "Transformer target must be int64 or int32 (batch, positions), got list.",
        ),
        (
            lambda m, _: m.encode(torch.tensor([[1, 45]])),
            "Transformer source must be at most 22 (the last of the vocabulary), got 45.",
        ),
        (lambda m, s: m.decode(TARGET - 30, s), "Transformer target must be at least 0, got -29."),
        (
            lambda m, s: m.decode(TARGET[:1], s),
            "Transformer needs a target for each source, got 1 and 2 sequences.",
        ),
        (
            lambda m, s: m.reorder(s, torch.tensor([[0]])),
            "Transformer state takes a vector of row numbers, got int64 of shape (1, 1).",
        ),
        (lambda m, s: m.reorder(s, [0]), "Transformer state takes a vector of row numbers, got list."),
        (
            lambda m, s: m.reorder(s, torch.tensor([2])),
            "Transformer state rows must be at most 1 (the last row), got 2.",
        ),
    ],
)
def test_a_wrong_call_is_named(call, message):
    model = build()
    state = model.init_state(model.encode(SOURCE, LENS), LENS)
    with pytest.raises(RegardError) as error:
        call(model, state)
    assert str(error.value) == message
    # and the state can still be used
    assert_same(model.decode(TARGET, state)[0], model(SOURCE, LENS, TARGET))
