"""The settings that --set may change: all are listed, and all that is listed is taken."""

import json
from dataclasses import fields

import pytest

from regard.data import train_tokenizer
from regard.models import encoder, seq2seq, transformer
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.classify import ClassifyJob
from regard.tasks.text.pretrain_job import PretrainJob
from regard.tasks.text.summarize_job import RewriteJob, SummarizeJob
from regard.tasks.text.tag import TagJob
from regard.tasks.text.translate import build_model
from regard.tasks.text.translate_job import TranslateJob

# what the data decide, or another option
DECIDED = {"vocab_size", "labels", "head", "kind", "num_characters", "pad_id", "has_next", "inputs", "input_size"}
SIZES = {"src_vocab_size", "tgt_vocab_size", "vocab_size", "target_vocab_size", "pad_id", "inputs", "input_size"}
JOBS = {
    "tag attention": (TagJob, "attention", DECIDED | {"has_pooler"}),
    **{f"tag {name}": (TagJob, name, DECIDED | {"has_pooler", "window"}) for name in ("gru", "cnn")},
    "classify": (ClassifyJob, "attention", DECIDED),
    "pretrain": (PretrainJob, "gru", DECIDED | {"has_pooler", "window"}),
    "summarize": (SummarizeJob, "cnn", DECIDED | {"has_pooler", "window"}),
    "bahdanau": (TranslateJob, "bahdanau", SIZES),
    "transformer": (TranslateJob, "transformer", SIZES),
    "rewrite": (RewriteJob, "transformer", SIZES),
}
LEXICON = Lexicon.train(["a b c"], "words")
TOKENIZER = train_tokenizer(["a b c"], kind="words")


def make(kind, model, changes):
    """A job, and the model that it builds."""
    job = kind.default(model, changes=changes)
    if issubclass(kind, TranslateJob):
        return job, build_model(job, TOKENIZER, TOKENIZER)
    return job, job.build(LEXICON, ["x", "y"])


def list_tries(setting):
    """Values that are said to be possible: all names, or the least number and the one that is the default."""
    found = [setting.value]
    for values in setting.values.split("|"):
        if ">=" in values:
            found.append(json.loads(values.replace(">=", "")))
        elif "," in values:
            low, high = map(float, values[1:-1].split(","))
            found += [low if values[0] == "[" else low + 1e-9, high - 1e-9]
        else:
            found.append({"true": True, "false": False, "null": None}.get(values, values))
    return found


@pytest.mark.parametrize("name", JOBS)
def test_all_are_listed_and_all_values_are_taken(name):
    kind, model, decided = JOBS[name]
    # small ones are built quickly
    small = {"num_hiddens": 8, **({} if issubclass(kind, TranslateJob) else {"num_heads": 2, "num_grams": 50})}
    job, built = make(kind, model, small)
    config = built.config
    known = {x.name for x in fields(config)}
    settings = job.list_settings()
    assert {one.name for one in settings} == known - decided
    for one in settings:
        # what is shown is what is built
        assert one.value == getattr(config, one.name), one.name
        # no column but the last has a space in it, and every line says something
        assert " " not in one.name + one.values + json.dumps(one.value)
        assert 8 < len(one.help) <= 84, one.help
        for value in list_tries(one):
            changes = {**small, one.name: value}
            if one.name == "num_hiddens":
                changes |= {} if value != 1 else {"num_heads": 1, "is_bidirectional": False, "position": "none"}
                changes = {key: x for key, x in changes.items() if key in known}
            make(kind, model, changes)


@pytest.mark.parametrize(
    ("values", "value"), [("[0,1)", 1.0), (">=1", 0), ("true|false", 3), ("soft|hard|mean|max|first", "x")]
)
def test_what_is_not_listed_is_refused(values, value):
    """The ranges that are shown are those that are held."""
    found = [one.name for one in ClassifyJob.default().list_settings() if one.values == values]
    assert found
    for name in found:
        with pytest.raises(ValueError, match=name):
            make(ClassifyJob, "attention", {name: value})


def test_presets_and_changes_are_shown():
    shown = {
        one.name: one.value
        for one in TranslateJob.default("transformer", preset="base", changes={"bias": False}).list_settings()
    }
    assert (shown["num_hiddens"], shown["num_encoder_layers"], shown["bias"]) == (512, 6, False)
    shown = {one.name: one.value for one in TagJob.default("gru", preset="small").list_settings()}
    # what suits a task is its default
    assert (shown["num_hiddens"], shown["word_dropout"], shown["scales_embedding"]) == (256, 0.1, False)
    assert {one.name for one in PretrainJob.default(has_next=True).list_settings()}.isdisjoint({"pooling", "num_types"})


def test_every_field_of_a_config_says_what_it_is():
    for module in (encoder, seq2seq, transformer):
        for field in fields(module.Config):
            assert field.metadata["help"], field.name


def test_a_start_decides_most(tmp_path):
    sizes = {"num_hiddens": 8, "num_heads": 2, "ffn_num_hiddens": 8, "num_layers": 1}
    trunk = PretrainJob.default(changes={**sizes, "window": [3, 1]}).build(LEXICON)
    trunk.save_pretrained(tmp_path)
    LEXICON.save(tmp_path)
    begun = TagJob.default(start=str(tmp_path), changes={"window": [2, 0]})
    shown = {one.name: one.value for one in begun.list_settings()}
    assert sorted(shown) == ["attention_dropout", "dropout", "embed_dropout", "ffn_dropout", "max_len", "pooling",
                             "start_std", "token_dropout", "window", "word_dropout"]  # fmt: skip
    for name, value in shown.items():
        TagJob.default(start=begun.start, changes={name: value}).build(LEXICON, ["x", "y"], trunk)
