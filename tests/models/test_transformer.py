"""The Transformer: steps with caches against the whole, what may have influence, parameters."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.layers import LearnedPositionalEncoding, MultiHeadAttention
from regard.mask.integer import recall_range, remember_range
from regard.models.config import POSITIONS
from regard.models.decode import decode_greedily, search_beam
from regard.models.transformer import Config, Transformer, TransformerState
from tests.models.small import LENS, SMALL, SOURCE, TARGET, VOCAB, assert_same, build, draw

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


def test_what_is_known_of_the_lengths_goes_along_with_them():
    model, lens = build(), LENS.clone()
    state = model.init_state(model.encode(SOURCE, lens), lens)
    assert recall_range(state.take(torch.tensor([1])).memory_valid_lens) is None
    state = model.init_state(model.encode(SOURCE, lens), lens)
    remember_range(lens, 3, 7)
    kept = state.take(torch.tensor([1, 0, 1])).memory_valid_lens
    assert kept.tolist() == [7, 3, 7]
    assert recall_range(kept) == (3, 7)
    logits, _ = model.decode(torch.tensor([[1], [1], [1]]), state)
    wanted = model(SOURCE[[1, 0, 1]], LENS[[1, 0, 1]], torch.tensor([[1], [1], [1]]))
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
