"""Which calls of a module go on where the one before ended, and which stay apart."""

import pytest
import torch
from torch import nn

from regard import attend
from regard.mask import Causal
from regard.models import Seq2Seq, Transformer, seq2seq, transformer
from regard.watching import Seen, watch


class Plain(nn.Module):
    def forward(self, x, y):
        return attend(x, y, y, mask=Causal())


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def weigh_kept(look):
    """The weights by what a look keeps."""
    places = torch.arange(look.received.shape[-1])
    allowed = (places >= look.spans[..., :1]) & (places < look.spans[..., 1:])
    scores = look.query.double() @ look.key.double().transpose(-1, -2) - look.logsumexp.double().unsqueeze(-1)
    return scores.exp().masked_fill(~allowed, 0.0)


def gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=64, initializer_range=1.0, bos_token_id=0,
        eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


def test_beams_that_change_places_stay_apart():
    model, prompt = gpt2(), torch.tensor([[1, 2, 3]])
    with watch(model, keep=True) as seen:
        model.generate(prompt, num_beams=3, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    assert 0 < len(seen.steps) < len(seen) - 2
    joined = seen.join()
    assert len(joined) == len(seen) - len(seen.steps)
    assert set(joined) == set(seen) - seen.steps
    for look in joined.values():
        # maps of blocks of one
        torch.testing.assert_close(weigh_kept(look).float(), look.map, atol=1e-4, rtol=0)


def test_greedy_sequences_of_a_batch_join():
    model, prompt = gpt2(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    with watch(model, keep=True) as seen:
        model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    joined = seen.join()
    assert list(joined) == ["transformer.h.0.attn", "transformer.h.1.attn"]
    for look in joined.values():
        torch.testing.assert_close(weigh_kept(look).float(), look.map, atol=1e-4, rtol=0)


@pytest.mark.parametrize("where", [(1, 0, 2), (0, 1, 1), (1, 1, 3)])
@pytest.mark.parametrize("change", ["swap", "centred"])
def test_any_key_that_is_another_ends_the_steps(where, change):
    query, key = rows(2, 2, 5, 8), rows(2, 2, 5, 8)
    # rows whose sum is zero, as after a norm
    key = key - key.mean(-1, keepdim=True) if change == "centred" else key
    other = key.clone()
    other[where] = other[where].flip(-1) if change == "centred" else key[1 - where[0], where[1], where[2]]
    model = Plain()
    for keys, is_step in ((key, True), (other, False)):
        with watch(model) as seen:
            model(query[:, :, :4], key[:, :, :4])
            model(query[:, :, 4:], keys)
        assert ("Plain#2" in seen.steps) == is_step
        assert list(seen.join()) == (["Plain"] if is_step else ["Plain", "Plain#2"])


def test_the_same_keys_in_other_strides_go_on():
    query, key = rows(2, 2, 5, 8), rows(2, 5, 2, 8).transpose(1, 2)
    model = Plain()
    with watch(model) as seen:
        model(query[:, :, :4], key[:, :, :4])
        model(query[:, :, 4:], key.contiguous())
    assert seen.steps == {"Plain#2"}


def test_two_texts_are_two_looks():
    query, key = rows(1, 2, 5, 8), rows(2, 1, 2, 5, 8)
    model = Plain()
    with watch(model) as seen:
        for text in key:
            model(query[:, :, :3], text[:, :, :3])
            model(query[:, :, 3:4], text[:, :, :4])
            model(query[:, :, 4:], text)
    joined = seen.join()
    assert list(joined) == ["Plain", "Plain#4"]
    assert [look.entropy.shape[-1] for look in joined.values()] == [5, 5]
    # what is joined is not joined again with what came after it
    assert list(joined.join()) == ["Plain", "Plain#4"]


@pytest.mark.parametrize("layers", [None, ["*.EncDecAttention"]])
def test_two_passes_over_one_source_are_no_steps(layers):
    pytest.importorskip("transformers")
    from tests.watching.families import build, feed

    model, inputs = build("t5", "sdpa"), feed("t5")
    with torch.no_grad(), watch(model, layers=layers) as seen:
        model(**inputs)
        model(**inputs | {"decoder_input_ids": inputs["decoder_input_ids"].flip(1)})
    assert not seen.steps
    assert list(seen.join()) == list(seen)
    # the source is read once, and the decoder begins twice
    states = model.encoder(inputs["input_ids"])
    with torch.no_grad(), watch(model, layers=layers) as seen:
        for _ in range(2):
            model(encoder_outputs=states, decoder_input_ids=inputs["decoder_input_ids"])
    assert not seen.steps


@pytest.mark.parametrize("layers", [None, ["*.EncDecAttention"], ["decoder.block.1.layer.1"]])
def test_steps_of_chosen_layers_join(layers):
    pytest.importorskip("transformers")
    from tests.watching.families import build, feed

    model = build("t5", "sdpa")
    with watch(model, layers=layers) as seen:
        model.generate(feed("t5")["input_ids"], max_new_tokens=4, min_new_tokens=4, do_sample=False)
    joined = seen.join()
    assert not any("#" in name for name in joined)
    assert joined["decoder.block.1.layer.1.EncDecAttention"].entropy.shape[-1] == 4


def test_an_rnn_that_reads_one_source_twice():
    torch.manual_seed(3)
    model = Seq2Seq.from_config(seq2seq.Config(19, 17, embed_size=8, num_hiddens=12, num_layers=1)).eval()
    source, lengths = torch.randint(1, 17, (1, 6)), torch.tensor([6])
    with torch.no_grad(), watch(model) as seen:
        model(source, lengths, torch.tensor([[1, 2, 3]]))
        model(source, lengths, torch.tensor([[1, 2, 3, 4]]))
    assert [look.entropy.shape[-1] for look in seen.join().values()] == [3, 4]


def test_a_decoder_of_ours_with_a_cache():
    torch.manual_seed(3)
    config = transformer.Config(
        19, 17, num_hiddens=16, ffn_num_hiddens=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2
    )
    model = Transformer(config).eval()
    source, lengths, target = torch.randint(1, 17, (1, 6)), torch.tensor([6]), torch.tensor([[1, 2, 3]])
    with torch.no_grad(), watch(model) as whole:
        model(source, lengths, target)
        model(source, lengths, target)
    assert not whole.steps
    assert len(whole.join()) == 10


class Tied(nn.Module):
    """One attention to the same rows in turns with one to itself."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"look": Cross(), "mix": Plain()})

    def forward(self, x, y):
        for _ in range(2):
            x = self.parts["look"](x, y)
            x = self.parts["mix"](x, x)


class Cross(nn.Module):
    def forward(self, queries, keys):
        return attend(queries, keys, keys)


def test_turns_of_one_module_are_no_steps():
    model = Tied()
    with watch(model) as seen:
        model(rows(1, 2, 3, 8), rows(1, 2, 5, 8))
    assert seen.kinds["parts.look#2"] == "cross"
    assert not seen.steps


class Named(nn.Module):
    """Modules whose names are like those of later calls."""

    def __init__(self):
        super().__init__()
        for name in ("x", "x#2", "a#b", "a#c"):
            self.add_module(name, Plain())

    def forward(self, x):
        for name in ("x", "x", "x#2", "a#b", "a#c", "x"):
            self._modules[name](x, x)


def test_names_of_modules_are_theirs(tmp_path):
    model = Named()
    with watch(model) as seen:
        model(rows(1, 2, 3, 4))
    assert list(seen) == ["x", "x#3", "x#2", "a#b", "a#c", "x#4"]
    assert list(seen.modules.values()) == ["x", "x", "x#2", "a#b", "a#c", "x"]
    assert list(seen.join()) == list(seen)
    pytest.importorskip("safetensors")
    seen.save(tmp_path / "x.safetensors")
    assert Seen.load(tmp_path / "x.safetensors").modules == seen.modules


def test_steps_of_modules_with_such_names_join():
    model, query, key = Named(), rows(1, 2, 4, 8), rows(1, 2, 4, 8)
    with watch(model) as seen:
        for end in (3, 4):
            for name in ("a#b", "a#c"):
                model._modules[name](query[:, :, 0 if end == 3 else 3 : end], key[:, :, :end])
    assert list(seen) == ["a#b", "a#c", "a#b#2", "a#c#2"]
    joined = seen.join()
    assert list(joined) == ["a#b", "a#c"]
    assert [look.entropy.shape[-1] for look in joined.values()] == [4, 4]
