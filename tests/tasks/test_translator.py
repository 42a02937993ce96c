"""A translator says what its model says, in the order asked, and shows where it looked."""

import dataclasses

import pytest
import torch

from regard.core import RegardError
from regard.data import BOS, EOS, PAD, train_tokenizer
from regard.models.decode import search_beam
from regard.models.seq2seq import Seq2Seq
from regard.tasks.text.translator import Translator
from regard.tasks.training.device import find_device
from tests.cli.small import SOURCES, TARGETS, build

KINDS = ["seq2seq", "transformer"]
SENTENCES = ["介绍一下西安", "请问火车站在哪里", "我想吃饺子", "去西安的火车早上八点出发", "西", *SOURCES[:2]]


def say_greedily(translator, text, max_len) -> list[int]:
    """The definition: the whole of what was said is read again for every token; no batch, no cache, no `decode`."""
    source = torch.tensor([[*translator.source_tokenizer.encode(text), EOS]])
    said = [BOS]
    while len(said) <= max_len and said[-1] != EOS:
        with torch.no_grad():
            logits = translator.model(source, None, torch.tensor([said]))[0, -1]
        logits[[BOS, PAD]] = -torch.inf
        said.append(int(logits.argmax()))
    return said[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_the_definition_in_any_batch(kind):
    translator = build(kind, ends=0.5)
    found = translator.translate(SENTENCES, beam=1, max_len=9, batch_size=3)
    for text, said in zip(SENTENCES, found, strict=True):
        ids = say_greedily(translator, text, 9)
        assert said.source == text
        assert said.target_tokens == tuple(translator.target_tokenizer.list_tokens(ids))
        assert said.text == translator.target_tokenizer.decode(ids)
    # else any order would do
    assert len({said.text for said in found}) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_is_the_search_of_one_sentence(kind):
    translator = build(kind, ends=0.5)
    model = translator.model
    for text, said in zip(SENTENCES, translator.translate(SENTENCES, beam=4, alpha=1.0, max_len=11), strict=True):
        source = torch.tensor([[*translator.source_tokenizer.encode(text), EOS]])
        with torch.no_grad():
            memory = model.encode(source)
        state, decoder = (
            (memory, model.decoder) if isinstance(model, Seq2Seq) else (model.init_state(memory), model.decode)
        )
        alone = search_beam(decoder, state, bos=BOS, eos=EOS, pad=PAD, max_len=11, beam=4, alpha=1.0)
        assert said.target_tokens == tuple(translator.target_tokenizer.list_tokens(alone.tolist()[0]))
        assert said.score == pytest.approx(float(alone.scores[0]), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_saying_it_again(kind):
    translator = build(kind, ends=0.5)
    model = translator.model
    for said in translator.translate(SENTENCES, beam=2, max_len=7, batch_size=4, looks=True):
        source = torch.tensor([[*translator.source_tokenizer.encode(said.source), EOS]])
        assert said.weights.shape == (len(said.target_tokens), source.shape[1])
        assert said.source_tokens == (*said.source, "<eos>")
        torch.testing.assert_close(said.weights.sum(-1), torch.ones(len(said.weights)))
        # the way there, token by token
        (again,) = translator.translate([said.source], beam=2, max_len=7)
        ids = [translator.target_tokenizer._inner.token_to_id(f" {token}") for token in again.target_tokens]
        ids = [EOS if number is None else number for number in ids]
        with torch.no_grad():
            for i in range(len(ids)):
                model(source, None, torch.tensor([[BOS, *ids[:i]]]))
                if kind == "seq2seq":
                    row = model.attention_weights[0, -1]
                else:
                    row = torch.stack(list(model.attention_weights["cross"][0][0])).mean(0)[-1]
                torch.testing.assert_close(said.weights[i], row, atol=1e-4, rtol=0)


def test_a_layer_is_chosen():
    translator = build("transformer", num_decoder_layers=3)

    def look(**options):
        return translator.translate(["介绍一下西安"], max_len=4, looks=True, **options)[0].weights

    # of three layers the last but one
    assert torch.equal(look(), look(layer=1))
    assert not torch.equal(look(), look(layer=0))
    assert not torch.equal(look(), look(layer=2))
    only = build("transformer", num_decoder_layers=1).translate(["西安"], max_len=2, looks=True, layer=None)
    assert only[0].weights is not None
    with pytest.raises(RegardError, match=r"^translate layer must be from 0 to 2, the last of the decoder, got 3\.$"):
        look(layer=3)
    message = r"^translate layer=0: a Seq2Seq looks at its source in one place, leave it out\.$"
    with pytest.raises(RegardError, match=message):
        build().translate(["西安"], looks=True, layer=0)


def test_nothing_is_looked_at_unasked():
    assert build().translate(["西安"], max_len=2)[0].weights is None


def test_drawing_follows_the_seed():
    translator = build()

    def draw(**options):
        return [said.text for said in translator.translate(SENTENCES, temperature=1.0, max_len=6, **options)]

    assert draw(seed=1) == draw(seed=1)
    assert draw(seed=1) != draw(seed=2)
    assert draw() != draw()
    greedy = [said.text for said in translator.translate(SENTENCES, beam=1, max_len=6)]
    assert draw(seed=1, top_k=1) == greedy
    cold = translator.translate(SENTENCES, temperature=1e-6, seed=1, max_len=6)
    assert [said.text for said in cold] == greedy


def test_an_empty_sentence_stays_empty_and_keeps_its_place():
    found = build().translate(["", "西安", " \n "], max_len=3, looks=True)
    assert [said.text for said in (found[0], found[2])] == ["", ""]
    assert found[0].target_tokens == ("<eos>",)
    assert found[0].weights is None
    assert found[1].weights is not None
    assert build().translate([]) == []


def test_line_breaks_are_spaces_and_special_tokens_are_text():
    translator = build()
    assert translator.translate(["西\n安"], max_len=5)[0].text == translator.translate(["西 安"], max_len=5)[0].text
    (said,) = translator.translate(["西安<eos>"], max_len=5)
    assert said.source_tokens == ("西", "安", *["<unk>"] * 5, "<eos>")
    assert said.unknown == 5


def test_what_is_unknown_is_counted():
    found = build().translate(["ψφ", "西安", "西ψ"], max_len=3)
    assert [said.unknown for said in found] == [2, 0, 1]


def test_five_thousand_tokens():
    text = "西安" * 2500
    for kind in KINDS:
        (said,) = build(kind).translate([text], beam=2, max_len=4, looks=True)
        assert said.weights.shape[1] == 5001


def test_learned_positions_are_a_limit():
    translator = build("transformer", position="learned", max_len=8)
    found = translator.translate(["西安" * 3 + "西", "安"], beam=2)
    assert max(len(said.target_tokens) for said in found) <= 8
    message = r"^sentence 2 has 9 tokens with <eos>, and the model learned 8 positions: split the sentence\.$"
    with pytest.raises(RegardError, match=message):
        translator.translate(["西安", "西安" * 4])


def test_max_len_by_default_follows_the_source():
    # a model that never ends: <eos> is as unlikely as can be
    translator = build(ends=-1e4)
    lengths = [len(said.target_tokens) for said in translator.translate(["西", "西" * 15, "西" * 16], beam=1)]
    assert lengths == [52, 52, 84]


def test_progress_is_told():
    told = []
    build().translate(["", *SENTENCES], max_len=2, batch_size=5, on_progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (len(SENTENCES) + 1, len(SENTENCES) + 1)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_a_model_in_training_goes_on_so():
    translator = build(dropout=0.5, num_layers=2)
    quiet = translator.translate(SENTENCES, max_len=5)
    translator.model.train()
    assert translator.translate(SENTENCES, max_len=5) == quiet
    assert translator.model.decoder.rnn.training


def test_a_joiner_is_removed():
    pieces = ["in@@", "tro@@", "duce", "xi@@", "'an"]
    target = train_tokenizer([" ".join(pieces)], kind="spaces")
    translator = build()
    source = translator.source_tokenizer
    config = dataclasses.replace(translator.model.config, tgt_vocab_size=target.vocab_size)
    model, options = Seq2Seq.from_config(config), {"max_len": 5, "temperature": 1.0, "seed": 0}
    joined, plain = (Translator(model, source, target, mark).translate(SENTENCES, **options) for mark in ("@@ ", None))
    for one, other in zip(joined, plain, strict=True):
        assert "@@" not in one.text
        assert one.text == other.text.replace("@@ ", "").removesuffix("@@")
        assert one.target_tokens == other.target_tokens
    assert any("@@ " in said.text for said in plain)
    assert Translator(model, source, target, "@@ ").join("in@@ tro@@ duce xi@@") == "introduce xi"


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_brings_it_back(kind, tmp_path):
    translator = build(kind, joiner="@@ ")
    translator.save(tmp_path / "run", training={"seed": 3})
    again = Translator.load(tmp_path / "run", device="cpu")
    assert again.joiner == "@@ "
    assert again.translate(SENTENCES, max_len=5) == translator.translate(SENTENCES, max_len=5)


def test_one_tokenizer_for_both_is_one_file(tmp_path):
    both = train_tokenizer([*SOURCES, *TARGETS], kind="characters")
    build().save(tmp_path)
    model = build("transformer").model
    config = dataclasses.replace(model.config, vocab_size=both.vocab_size, target_vocab_size=None)
    Translator(type(model)(config), both).save(tmp_path)
    assert not (tmp_path / "target_tokenizer.json").exists()
    assert Translator.load(tmp_path, "cpu").target_tokenizer.vocab_size == both.vocab_size


def test_a_broken_folder_is_named(tmp_path):
    translator = build()
    with pytest.raises(RegardError, match="nowhere"):
        Translator.load(tmp_path / "nowhere")
    translator.save(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_text("{")
    with pytest.raises(RegardError, match=r"tokenizer\.json is not a tokenizer of regard"):
        Translator.load(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").unlink()
    with pytest.raises(RegardError, match=r"tokenizer\.json cannot be read"):
        Translator.load(tmp_path / "run")
    # tokenizers that changed places
    translator.target_tokenizer.save(tmp_path / "run" / "tokenizer.json")
    sizes = translator.target_tokenizer.vocab_size, translator.source_tokenizer.vocab_size
    message = (
        rf"^the source tokenizer has {sizes[0]} tokens and the model {sizes[1]}: they are not of one run, restore the"
        r" one that is\.$"
    )
    with pytest.raises(RegardError, match=message):
        Translator.load(tmp_path / "run")
    translator.save(tmp_path / "run", training={"joiner": 3})
    message = r"config\.json: joiner must be text or null, is 3: mend it\.$"
    with pytest.raises(RegardError, match=message):
        Translator.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("西安", {}, "texts must be a sequence of sentences, got one str: put it in a list."),
        (["西安", 3], {}, "sentence 2 must be str, is a int."),
        (["西", "\udce8"], {}, "sentence 2 is not unicode (half a surrogate pair): read it as UTF-8."),
        (["西"], {"beam": 0}, "translate beam must be at least 1, got 0."),
        (["西"], {"max_len": 0}, "translate max_len must be at least 1, got 0."),
        (["西"], {"batch_size": 0}, "translate batch_size must be at least 1, got 0."),
        (["西"], {"top_k": 4}, "translate top_k=4 is for sampling: give temperature too."),
        (["西"], {"seed": 4}, "translate seed=4 is for sampling: give temperature too."),
    ],
)
def test_complaints(texts, options, message):
    with pytest.raises(RegardError) as error:
        build().translate(texts, **options)
    assert str(error.value) == message


def test_broken_weights_are_said():
    translator = build()
    with torch.no_grad():
        translator.model.decoder.dense.bias.fill_(torch.nan)
    for options, answer in (({"beam": 1}, "nan"), ({"beam": 2, "looks": True}, "-inf")):
        message = f"sentence 1: the model answers {answer}: its weights are broken, train again."
        with pytest.raises(RegardError) as error:
            translator.translate(["西安"], max_len=3, **options)
        assert str(error.value) == message


def test_devices():
    assert find_device("auto").type in ("cpu", "cuda")
    for name in ("gpu", "meta"):
        with pytest.raises(RegardError, match=rf"^device must be auto, cpu or cuda, got '{name}'\.$"):
            find_device(name)
    count = torch.cuda.device_count()
    message = rf"^device 'cuda:99' is not there, torch sees {count} GPUs: use auto\.$"
    with pytest.raises(RegardError, match=message):
        find_device("cuda:99")
