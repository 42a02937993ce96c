"""What an encoder is to learn: settings that are refused, that data decide, and that another model brings."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

from regard import RegardError
from regard.data import UNK
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.encoder_job import MODELS, EncoderJob
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classify import ClassifyJob, LabelledCorpus
from regard.tasks.text.tag import TaggedCorpus, TagJob
from regard.tasks.training.examples import Examples
from regard.tasks.training.job import TrainingJob, check_changes
from tests.tasks.reading import LABELLED, MOODS, TAGGED, TAGS, TINY, build, make, mood_job, read_pieces, tag_job

pytest.importorskip("tokenizers")

WORDS = [words for words, _ in TAGGED]


def refuse(call, *args, **options):
    with pytest.raises(RegardError) as error:
        call(*args, **options)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) <= 200
    return message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "lstm"}, "model must be one of attention, gru, cnn, got 'lstm'."),
        ({"metric": "bleu"}, "metric must be one of loss, accuracy, f1, got 'bleu'."),
        ({"vocab_size": 0}, "vocab_size must be from 1 to 2**31, got 0."),
        ({"batch_size": 2**31 + 1}, "batch_size must be from 1 to 2**31, got 2147483649."),
        ({"max_length": -1}, "max_length must be from 1 to 2**31, got -1."),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in [0, 1), got 1.0."),
        ({"label_smoothing": -0.1}, "label_smoothing must lie in [0, 1), got -0.1."),
        (
            {"start": "x", "model": "gru"},
            "model must be 'attention' where there is a start, which decides it, got 'gru'.",
        ),
    ],
)
def test_wrong_settings_are_named(settings, message):
    for kind in (TagJob, ClassifyJob):
        assert refuse(kind, **settings) == message


def test_wrong_changes_are_named():
    lexicon = Lexicon.train(WORDS, "spaces")
    for name in ("nothing", "labels", "pad_id", "head"):
        message = refuse(make(TagJob, **{name: 3}).build, lexicon, TAGS)
        assert message.startswith(f"attention has no setting '{name}' to change; it has ")
        assert message.endswith(" and others.")
    assert (
        refuse(check_changes, "gru", Config, {"num_layers": 1001}, ()) == "num_layers must be at most 1000, got 1001."
    )
    assert refuse(check_changes, "gru", Config, {"num_hiddens": 2.0**21}, ()) == (
        "num_hiddens must be at most 1048576, got 2097152.0."
    )
    assert check_changes("gru", Config, {"num_hiddens": 2**20}, ()) == {"num_hiddens": 2**20}
    assert refuse(make(TagJob, num_heads=3).build, lexicon, TAGS) == (
        "Config num_hiddens=8 must be a multiple of num_heads=3."
    )


def test_what_a_task_of_ones_own_leaves_out_is_named():
    class OwnJob(TrainingJob):
        task = "own"

    assert refuse(OwnJob().list_settings) == (
        "own has no settings of its model to change: leave --set and --settings out."
    )
    assert refuse(OwnJob().part) == "no examples come with regard: name some (--data)."
    assert refuse(Examples().read, ("",), "test") == "no examples come with regard: name some (--data)."


def test_a_model_beyond_all_memory_is_one_line():
    message = refuse(make(TagJob, num_hiddens=2**20).build, Lexicon.train(WORDS, "spaces"), TAGS)
    assert message.startswith("attention cannot be made of these settings (")
    assert message.endswith("): make it smaller.")


@pytest.mark.parametrize("kind", [TagJob, ClassifyJob])
def test_defaults_are_the_kinds_with_what_differs(kind, tmp_path, monkeypatch):
    for name in MODELS:
        job = kind.default(name, recipe={"lr": 0.5}, changes={"dropout": 0.0}, min_count=2)
        assert (job.recipe.lr, job.recipe.schedule) == (0.5, kind.recipes[name]["schedule"])
        assert job.changes == {**kind.styles[name], "dropout": 0.0}
        assert (job.model, job.min_count) == (name, 2)
    # another's trunk is made already; what is dropped in training is not part of it
    started = kind.default(start="runs/words")
    assert started.recipe == kind.default().recipe
    assert started.changes == {name: x for name, x in kind.styles["attention"].items() if "dropout" in name} != {}
    started = kind.default(start="hf:bert")
    assert (started.changes, started.recipe.lr) == ({}, kind.recipes["bert"]["lr"])
    # a run that began from a BERT is one, too
    read_pieces().save(tmp_path)
    again = kind.default(start=str(tmp_path))
    assert (again.changes, again.recipe) == (started.changes, started.recipe)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert kind.default(start=f"~/{tmp_path.name}").changes == {}
    # what others may change, they change for themselves
    job.changes["num_layers"] = 99
    assert "num_layers" not in kind.default().changes


@pytest.mark.parametrize("job", [tag_job, mood_job])
def test_settings_go_through_json(job):
    entries = json.loads(json.dumps(job.settings))
    corpus = type(job.corpus).from_dict(entries["corpus"])
    assert corpus == job.corpus
    expected = {"task": job.task, **asdict(job)}
    # nothing is left open in what is kept
    assert expected.pop("adapts") == ()
    assert {**entries, "corpus": asdict(corpus), "recipe": asdict(job.recipe)} == expected


def test_tokens_follow_from_the_text():
    chinese = ["我爱你。", "介绍西安"]
    assert [tag_job.choose_kind(x) for x in (WORDS, [["我", "爱"]])] == ["spaces", "spaces"]
    assert [mood_job.choose_kind(x) for x in (["good film"], chinese)] == ["words", "characters"]
    # words are spelled, letters are not
    assert [mood_job.reads_letters(x) for x in (["good film"], chinese)] == [True, False]
    assert not replace(mood_job, has_letters=False).reads_letters(["good film"])
    assert not replace(mood_job, tokens="bpe").reads_letters(["good film"])
    assert replace(tag_job, tokens="words").reads_letters(WORDS)
    with pytest.raises(NotImplementedError):
        EncoderJob().choose_kind([])


def test_a_lexicon_is_as_the_job_says():
    job = make(TagJob, pooling="first", min_count=2, lowercase=False)
    lexicon = job.train_lexicon([("a", "A", "A"), ("b", "A")])
    assert lexicon.is_framed
    assert [lexicon.encode_words([[x]])[0].ids[1] == UNK for x in ("a", "A", "b")] == [True, False, True]
    assert lexicon.letters is not None
    assert tag_job.train_lexicon(WORDS).is_framed is False
    assert tag_job.train_lexicon([("A", "b")]).encode_words([["a", "B"]])[0].ids == [4, 5]
    assert make(ClassifyJob, tokens="characters").train_lexicon(["ab"]).letters is None


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_what_the_data_decide(name):
    model, lexicon = build(make(TagJob, model=name))
    config = model.config
    assert (config.kind, config.head, config.labels, config.pad_id) == (name, "tags", TAGS, 0)
    assert (config.vocab_size, config.num_characters) == (lexicon.vocab_size, lexicon.num_characters)
    assert (config.num_hiddens, config.num_layers) == (8, 1)
    assert build(make(ClassifyJob, model=name))[0].config.head == "classes"


def test_a_trunk_brings_its_sizes_and_weights():
    lexicon = Lexicon.train([text for text, _ in LABELLED], "words")
    torch.manual_seed(1)
    options = {"pooling": "first", "has_next": True, "has_pooler": True, "num_types": 2}
    trunk = Encoder(Config.preset("tiny", lexicon.vocab_size, head="words", **TINY, **options))
    model = ClassifyJob(start="x", preset="base").build(lexicon, MOODS, trunk)
    assert (model.config.num_hiddens, model.config.num_types, model.config.pooling) == (8, 2, "first")
    assert (model.config.head, model.config.labels, model.config.has_next) == ("classes", MOODS, False)
    for name, x in model.state_dict().items():
        assert name.startswith("output.") or x.equal(trunk.state_dict()[name]), name
    # what its head does not ask would wait for a gradient that never comes
    tagger = TagJob(start="x", changes={"dropout": 0.5}).build(lexicon, TAGS, trunk)
    assert (model.pooler is None, tagger.pooler, tagger.next_sentence, tagger.pooling) == (False, None, None, None)
    assert tagger.config.dropout == 0.5
    tagger(torch.tensor([[4, 5]])).sum().backward()
    assert [name for name, x in tagger.named_parameters() if x.grad is None] == []
    assert refuse(TagJob(start="x", changes={"num_layers": 2}).build, lexicon, TAGS, trunk) == (
        "Encoder cannot adopt: its num_layers is 2, the other's 1; make them equal."
    )


def test_what_no_head_asks_is_refused():
    lexicon = Lexicon.train(WORDS, "spaces")
    trunk = Encoder(Config.preset("tiny", lexicon.vocab_size, **TINY))
    for start in (None, trunk):
        assert refuse(make(TagJob, has_pooler=True).build, lexicon, TAGS, start) == (
            "has_pooler is for classes and has_next, a model of tags never uses it: leave it out."
        )
        for kind, head in ((TagJob, "tags"), (ClassifyJob, "classes")):
            assert refuse(make(kind, has_next=True).build, lexicon, TAGS, start) == (
                f"has_next is for pre-training, a model that gives {head} never uses it: leave it out."
            )
    assert make(ClassifyJob, has_pooler=True).build(lexicon, MOODS).pooler is not None


@pytest.mark.parametrize("name", ["word_dropout", "token_dropout"])
def test_words_of_a_bert_are_not_hidden_by_ids_of_others(name):
    message = refuse(make(TagJob, **{name: 0.1}).build, read_pieces(), TAGS)
    assert message == f"{name} knows the special tokens of regard's tokenizers, not BERT's: leave it out."
    assert make(TagJob, **{name: 0.0}).build(read_pieces(), TAGS).config.head == "tags"


def test_corpora_read_what_they_are_told(tmp_path):
    (tmp_path / "a.txt").write_text("the DET\ncat NOUN\n\nsat VERB\n")
    (tmp_path / "a.csv").write_text("id,mood,said\n1,good,one\n2,bad,two\n")
    (tmp_path / "a.jsonl").write_text('{"x": "one", "y": 1}\n')
    first, second, third = (str(tmp_path / name) for name in ("a.txt", "a.csv", "a.jsonl"))
    tagged = [(("the", "cat"), ("DET", "NOUN")), (("sat",), ("VERB",))]
    assert list(TaggedCorpus().open((first, first))) == tagged * 2
    assert TaggedCorpus().read_key(tagged[0]) == "the cat"
    assert list(LabelledCorpus(columns=("said", "mood")).open((second,))) == [("one", "good"), ("two", "bad")]
    assert list(LabelledCorpus(columns=(2, 1)).open((second,)))[-1] == ("two", "bad")
    assert list(LabelledCorpus(keys=("x", "y")).open((third,))) == [("one", "1")]
    for entries in ({"columns": [1]}, {"keys": ["a", 1]}):
        assert "a corpus cannot have " in refuse(LabelledCorpus.from_dict, entries)
    assert "a corpus cannot have column=3" in refuse(TaggedCorpus.from_dict, {"column": 3})
    assert LabelledCorpus.from_dict({"columns": ["said", 1]}).columns == ("said", 1)
