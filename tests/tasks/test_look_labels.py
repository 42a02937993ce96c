"""What a run that reads attends to: the weights of the pass that answered, and labels that join to the text."""

import json
import re

import pytest
import torch

from regard.core import RegardError
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.data.words import cut_words
from regard.models.encoder import Config, Encoder
from regard.tasks.looks.best_head import find_best_head
from regard.tasks.looks.look import look_at
from regard.tasks.looks.of_encoder import look_at_class, look_at_summary, look_at_tags, look_at_words
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classifier import Classifier
from regard.tasks.text.filler import Filler
from regard.tasks.text.summarizer import Summarizer
from regard.tasks.text.tagger import Tagger

TEXTS = ["The cat sat on the mat.", "could you please help me, cat", "我要一杯茶", "the mat isn't jumping"]
TAGS = ("DET", "NOUN", "VERB")
LAYER = "layers.1.attention"
SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 12, "num_heads": 2, "num_layers": 2}


def read(kind: str, **options) -> Lexicon:
    if kind == "wordpiece":
        words = ["the", "cat", "sat", "mat", "jump", "##ing", "is", "##n", "'", "t", ".", ","]
        return Lexicon(WordPiece.from_vocab({token: k for k, token in enumerate([*SPECIAL, *words])}))
    return Lexicon.train(TEXTS, kind, **{"vocab_size": 270, **options})


def build(head: str, lexicon: Lexicon, **changes) -> Encoder:
    torch.manual_seed(5)
    labels = {"tags": TAGS, "classes": ("plain", "polite")}.get(head, ())
    sizes = {**SIZES, "num_characters": lexicon.num_characters, "pad_id": lexicon.pad_id, **changes}
    model = Encoder(Config(lexicon.vocab_size, head=head, labels=labels, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # random weights are too much alike to look at
            parameter.mul_(2)
    return model


def save(folder, model: Encoder, lexicon: Lexicon, task: str):
    model.save_pretrained(folder, {"task": task, "max_length": 9})
    lexicon.save(folder)
    return folder


@pytest.fixture(scope="module")
def tagger():
    lexicon = read("spaces", has_letters=True)
    return Tagger(build("tags", lexicon), lexicon)


@pytest.fixture(scope="module")
def classifier():
    lexicon = read("words")
    return Classifier(build("classes", lexicon), lexicon)


def test_a_tagger_shows_the_pass_that_answered(tagger, monkeypatch):
    (alone,) = tagger.tag([TEXTS[0]])
    answers = []
    inner = tagger.tag
    monkeypatch.setattr(tagger, "tag", lambda given: answers.append(inner(given)) or answers[0])
    sight = look_at_tags(tagger, TEXTS[0])
    # to the last bit of the scores
    assert answers == [[alone]]
    assert sight.seen[LAYER].map.shape == (1, 2, 7, 7)
    kept = tagger.model.attention_weights["encoder"][1]
    torch.testing.assert_close(sight.seen[LAYER].map, kept, atol=1e-6, rtol=0)
    assert sight.seen.checks[LAYER].holds
    assert sight.sides == dict.fromkeys(["layers.0.attention", LAYER], ("tags", "text"))


def test_words_have_their_tags(tagger):
    (found,) = tagger.tag([TEXTS[0]])
    sight = look_at_tags(tagger, TEXTS[0])
    assert sight.tokens["text"].labels == ("The", " cat", " sat", " on", " the", " mat", ".")
    assert sight.tokens["text"].text == TEXTS[0]
    pairs = [f"{word}/{tag}" for word, tag in zip(found.words, found.tags, strict=True)]
    assert list(sight.tokens["tags"].labels) == pairs
    assert sight.title == f"{TEXTS[0]} → {' '.join(pairs)}"
    # "mat." is no word of the spaces that it learned from
    assert sight.notes == ("Parts of the text are unknown to this run.",)
    assert look_at_tags(tagger, "The cat sat").notes == ()


@pytest.mark.parametrize("kind", ["words", "spaces", "bpe", "characters", "wordpiece"])
@pytest.mark.parametrize("text", [" the  cat isn't jumping, ψ\n", "我要一杯茶", "the the www.a.org"])
def test_labels_join_to_the_text(kind, text):
    lexicon = read(kind)
    for sight in (
        look_at_tags(Tagger(build("tags", lexicon), lexicon), text),
        look_at_class(Classifier(build("classes", lexicon), lexicon), text),
        look_at_words(Filler(build("words", lexicon), lexicon), text),
    ):
        assert sight.tokens["text"].joined
        assert sight.tokens["text"].text == text
        assert len(sight.tokens["text"]) == sight.seen[LAYER].map.shape[-1]
        # none but the later bytes of a letter is without text of its own
        assert kind == "bpe" or not any(sight.tokens["text"].marks)


def test_the_first_piece_of_a_word_has_its_tag():
    lexicon = read("wordpiece")
    tagger = Tagger(build("tags", lexicon), lexicon)
    sight = look_at_tags(tagger, "The cat jumping")
    (found,) = tagger.tag(["The cat jumping"])
    assert sight.tokens["text"].labels == ("[CLS]", "The", " cat", " jump", "ing", "[SEP]")
    first, second, third = found.tags
    wanted = ("[CLS]", f"The/{first}", f"cat/{second}", f"jump/{third}", "ing", "[SEP]")
    assert sight.tokens["tags"].labels == wanted
    assert sight.tokens["tags"].special == (True, False, False, False, False, True)


@pytest.mark.parametrize("kind", ["attention", "gru", "cnn"])
@pytest.mark.parametrize("pooling", ["soft", "hard"])
def test_a_classifier_shows_what_it_pools_by(kind, pooling):
    lexicon = read("words")
    model = build("classes", lexicon, kind=kind, pooling=pooling)
    classifier = Classifier(model, lexicon)
    sight = look_at_class(classifier, TEXTS[1])
    (found,) = classifier.classify([TEXTS[1]])
    (ids,) = lexicon.tokenizer.encode_all([TEXTS[1]])
    with torch.no_grad():
        hidden = model.encode(torch.tensor([ids]))[0]
        layer = model.pooling
        scores = torch.tanh(hidden @ layer.W_k.weight.T + layer.W_k.bias) @ layer.query / SIZES["num_hiddens"] ** 0.5
    weights = scores.softmax(0) if pooling == "soft" else torch.eye(len(ids))[scores.argmax()]
    torch.testing.assert_close(sight.seen["pooling"].map[0, 0], weights, atol=1e-5, rtol=0)
    assert sight.tokens["label"].labels == (found.label,)
    assert sight.sides["pooling"] == ("label", "text")
    assert sight.said == f"{found.label} {found.score:.2f}"
    assert list(sight.seen) == ([*(f"layers.{k}.attention" for k in (0, 1))] if kind == "attention" else []) + [
        "pooling"
    ]
    assert find_best_head(sight) == ("pooling", 0)
    assert find_best_head(sight, is_queried=True)[0] != "pooling" or kind != "attention"


def test_an_answer_is_the_same_to_the_last_bit(classifier, monkeypatch):
    (alone,) = classifier.classify([TEXTS[1]])
    answers = []
    inner = classifier.classify
    monkeypatch.setattr(classifier, "classify", lambda given: answers.append(inner(given)) or answers[0])
    look_at_class(classifier, TEXTS[1])
    assert answers == [[alone]]


def read_page(sight, **options) -> dict:
    found = re.search(r'id="regard-data">(.*?)</script>', sight.page(None, **options).html, re.DOTALL)
    return json.loads(found[1])


def test_pages_and_pictures(tagger, classifier, tmp_path):
    labelled = look_at_class(classifier, TEXTS[1])
    data = read_page(labelled)
    assert data["start"] == {"view": "text", "entry": 4, "query": 0}
    assert (data["entries"][4]["name"], data["entries"][4]["kind"], data["produced"]) == ("pooling", "cross", False)
    both = read_page(labelled, other=look_at_class(classifier, "cat"))
    assert both["start"]["view"] == "compare"
    assert [side["name"] for side in both["sides"]] == ["text", "label", "text B", "label B"]
    tagged = look_at_tags(tagger, TEXTS[0])
    assert read_page(tagged, other=look_at_tags(tagger, "the cat"))["start"]["view"] == "compare"
    for sight in (labelled, tagged):
        sight.draw(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    labelled.draw(tmp_path / "a.svg", title="why polite")
    assert "why polite" in (tmp_path / "a.svg").read_text()
    # what a tagger and another make of a text are compared by its words
    mixed = read_page(tagged, other=labelled)
    pairs = {(e["model"], mixed["sides"][e["queries"]]["name"]) for e in mixed["entries"] if e["name"] == LAYER}
    assert pairs == {(0, "text"), (1, "text B")}


def test_blanks_are_guessed():
    lexicon = read("words", has_letters=True)
    model = build("words", lexicon)
    sight = look_at_words(Filler(model, lexicon), "the ___, please ____")
    the, comma, please = (lexicon.tokenizer.encode(f"cat{x}")[-1] for x in (" the", ",", " please"))
    ids = torch.tensor([[the, lexicon.mask_id, comma, please, lexicon.mask_id]])
    (one,) = lexicon.encode_texts(["the cat, please cat"])
    letters = [one.letters[0], [], one.letters[2], one.letters[3], []]
    most = max(map(len, letters))
    spelling = torch.tensor([[[*word, *[0] * (most - len(word))] for word in letters]])
    with torch.no_grad():
        logits = model(ids, spelling=spelling)[0, [1, 4]]
    logits[:, [0, 1, 2, 3, lexicon.mask_id]] = -torch.inf
    first, second = (lexicon.tokenizer.decode([k]) for k in logits.argmax(-1).tolist())
    assert sight.said == f"the {first}, please {second}"
    assert sight.tokens["text"].labels == ("the", " ___", ",", " please", " ____")
    assert sight.tokens["words"].labels == ("the", f"___/{first}", ",", " please", f"____/{second}")
    assert (sight.rows, sight.notes) == ((1, 4), ())
    torch.testing.assert_close(sight.seen[LAYER].map, model.attention_weights["encoder"][1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["bpe", "characters", "wordpiece"])
def test_a_blank_is_one_token(kind):
    lexicon = read(kind)
    sight = look_at_words(Filler(build("words", lexicon), lexicon), "the ___.")
    (place,) = sight.rows
    assert sight.tokens["text"].labels[place].strip() == "___"
    assert sight.tokens["text"].text == "the ___."
    assert len(sight.tokens["text"]) == sight.seen[LAYER].map.shape[-1]


def test_without_blanks_all_words_are_shown():
    lexicon = read("words")
    sight = look_at_words(Filler(build("words", lexicon), lexicon), TEXTS[1])
    assert (sight.rows, sight.said, sight.sides[LAYER]) == ((), None, ("text", "text"))
    assert look_at_words(Filler(build("none", lexicon), lexicon), "a ___").said is None


def test_runs_say_themselves_what_they_are(tagger, tmp_path):
    lexicon = read("words")
    labels = {"labels": ("drop", "keep")}
    kinds = {
        "classify": build("classes", lexicon), "pretrain": build("words", lexicon),
        "summarize": Encoder(Config(lexicon.vocab_size, head="tags", **labels, **SIZES)),
    }  # fmt: skip
    sights = {task: look_at(save(tmp_path / task, model, lexicon, task), TEXTS[1], device="cpu")
              for task, model in kinds.items()}  # fmt: skip
    sights["tag"] = look_at(save(tmp_path / "tag", tagger.model, tagger.lexicon, "tag"), TEXTS[1], device="cpu")
    assert sights["tag"].said == look_at_tags(tagger, TEXTS[1]).said
    assert "pooling" in sights["classify"].seen
    assert sights["pretrain"].said is None
    marked = [label.split("/") for label in sights["summarize"].tokens["tags"].labels]
    (short,) = Summarizer.load(tmp_path / "summarize", "cpu").summarize([TEXTS[1]])
    assert (sights["summarize"].said, {mark for _, mark in marked}) == (short.text, {"drop", "keep"})
    assert [word for word, mark in marked if mark == "keep"] == [word for word, _, _ in cut_words(short.text)]
    # of more than it was taught to read, the rest is cut off, and no label is of it
    long = look_at(tmp_path / "classify", " ".join(["cat"] * 12), device="cpu")
    assert long.tokens["text"].text == " ".join(["cat"] * 9)
    assert long.notes == ("The text has 12 tokens and the run reads 9: the rest is cut off.",)
    for options, message in (
        ({"target": "cat"}, f"look target is not for {tmp_path / 'tag'}, which tags words: leave it out."),
        ({"beam": 5}, f"look beam is not for {tmp_path / 'tag'}, which tags words: leave it out."),
        ({"image": "cat.png"}, "look image is for models that see"),
    ):
        with pytest.raises(RegardError, match=re.escape(message)):
            look_at(tmp_path / "tag", "cat", device="cpu", **options)
    with pytest.raises(RegardError, match="look needs a text: give one"):
        look_at(tmp_path / "tag", device="cpu")
    with pytest.raises(RegardError, match="look text is empty"):
        look_at(tmp_path / "tag", " \n", device="cpu")


def test_runs_without_weights():
    lexicon = read("words")
    gru = Tagger(build("tags", lexicon, kind="gru"), lexicon)
    message = (
        "look: this run is a gru without attention, there are no weights to look at: train one with --model attention."
    )
    with pytest.raises(RegardError, match=re.escape(message)):
        look_at_tags(gru, "cat")
    cnn = Classifier(build("classes", lexicon, kind="cnn", pooling="max"), lexicon)
    message = (
        "look: this run is a cnn that pools by max, there are no weights to look at: train one with --pooling soft."
    )
    with pytest.raises(RegardError, match=re.escape(message)):
        look_at_class(cnn, "cat")
    mean = look_at_class(Classifier(build("classes", lexicon, pooling="mean"), lexicon), "the cat")
    assert mean.notes == ("This run pools by mean: what is shown are the weights of its layers.",)
    assert list(mean.tokens) == ["text"]
    framed = read("words", is_framed=True)
    first = look_at_class(Classifier(build("classes", framed, pooling="first"), framed), "the cat")
    assert first.tokens["text"].labels == ("<bos>", "the", " cat")
    assert first.tokens["text"].special == (True, False, False)


@pytest.mark.parametrize(("name", "given"), [("target", "the cat"), ("beam", 2)])
def test_words_that_are_kept_are_not_written_anew(name, given):
    lexicon = read("spaces")
    config = Config(lexicon.vocab_size, head="tags", labels=("drop", "keep"), **SIZES)
    summarizer = Summarizer(Encoder(config).eval(), lexicon)
    with pytest.raises(RegardError) as error:
        look_at_summary(summarizer, TEXTS[0], **{name: given})
    assert str(error.value) == f"look {name} is not for a run that keeps and drops words: leave it out."
