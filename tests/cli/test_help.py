"""What `--help` says: of every option what it is, its values and its default, all of it true."""

import json
import re
from dataclasses import fields

import pytest
import typer

from regard.cli import app
from regard.cli.options.training import Training
from regard.cli.train import classify as train_classify
from regard.cli.train import pretrain as train_pretrain
from regard.cli.train import summarize as train_summarize
from regard.cli.train import tag as train_tag
from regard.cli.train import translate as train_translate
from regard.compare.registry import PARTS
from regard.data.tokens import LEAST
from regard.models import encoder, seq2seq, transformer
from regard.tasks.reading import encoder_job
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.text import translate_job as translate
from regard.tasks.text.classify import ClassifyJob
from regard.tasks.text.pretrain_job import PretrainJob
from regard.tasks.text.summarize_job import RewriteJob, SummarizeJob
from regard.tasks.text.tag import TagJob
from regard.tasks.training.machine import PRECISIONS
from regard.tasks.training.recipe import SCHEDULES, Recipe
from tests.cli.test_app import list_commands

COMMANDS = dict(list_commands(typer.main.get_command(app.app)))
OPTIONS = [(names, option) for names, leaf in COMMANDS.items() for option in leaf.params]
# options that write a file of the user's choice
WRITES = ("output", "out", "look", "picture", "save")


def read_help(names, option) -> str:
    """What stands beside an option, on one line."""
    context = COMMANDS[names].make_context(" ".join(names), [], resilient_parsing=True)
    return " ".join(option.get_help_record(context)[1].split())


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is_and_its_default(names):
    for option in COMMANDS[names].params:
        said = read_help(names, option)
        what, *brackets = re.split(r" (?=\[(?:default|required|x>|\d+<))", said)
        assert re.match(r"[A-Z]\w+\b.*[.…]$|keep \(", what), said
        assert 9 <= len(what) <= 200
        # nothing that must be filled in
        assert not set("{}") & set(said)
        if not getattr(option, "is_flag", False) or option.secondary_opts:
            states = [x for x in brackets if x.startswith(("[default: ", "[required]"))]
            assert len(states) == 1, said


JOB_CLASSES = {
    "translate": (translate.TranslateJob,), "tag": (TagJob,), "classify": (ClassifyJob,), "pretrain": (PretrainJob,),
    "summarize": (SummarizeJob, RewriteJob),
}  # fmt: skip
MODELS = {name: [x for kind in kinds for x in kind.models] for name, kinds in JOB_CLASSES.items()}
METRICS = {name: [x for kind in kinds for x in kind.metrics] for name, kinds in JOB_CLASSES.items()}
VALUES = {
    "schedule": SCHEDULES, "precision": PRECISIONS, "tokens": (*LEAST, "auto"), "form": ("NFC", "NFKC"),
    "preset": encoder.PRESETS, "pooling": encoder.POOLINGS, "how": train_summarize.HOWS,
    "strategy": ("auto", "ddp", "fsdp"),
    "accelerator": ("auto", "cpu", "cuda"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_all_values_are_named(name):
    known = {**VALUES, "model": MODELS[name], "metric": METRICS[name]}
    assert set(encoder.PRESETS) == set(seq2seq.PRESETS) == set(transformer.PRESETS)
    for option in COMMANDS["train", name].params:
        words = set(re.findall(r"[\w-]+", read_help(("train", name), option).partition("[default")[0]))
        assert words >= set(known.get(option.name, ())), option.name
        if option.metavar in ("NAME", "KIND", "FORM"):
            assert option.name in (*known, "column", "key", "member"), option.name


def test_values_of_other_options_are_named():
    for names, option in OPTIONS:
        said = read_help(names, option)
        if option.name == "parts":
            assert set(re.findall(r"\w+", said)) >= set(PARTS)
        elif option.name == "device":
            assert "cpu, cuda or cuda:N" in said
    assert "13a, intl, zh, char or none" in read_help(("evaluate",), find(("evaluate",), "tokenize"))
    assert "en or zh" in read_help(("look",), find(("look",), "lang"))


def find(names, name):
    return next(option for option in COMMANDS[names].params if option.name == name)


JOBS = {
    "translate": (train_translate.SAID, [translate.TranslateJob.default(x) for x in translate.TranslateJob.models]),
    "tag": (train_tag.SAID, [TagJob.default(x) for x in encoder_job.MODELS] + [TagJob.default(start="hf:x")]),
    "classify": (
        train_classify.SAID, [ClassifyJob.default(x) for x in encoder_job.MODELS] + [ClassifyJob.default(start="hf:x")],
    ),
    "pretrain": (
        train_pretrain.SAID, [PretrainJob.default(x) for x in encoder_job.MODELS] + [PretrainJob.default(start="hf:x")],
    ),
    "summarize": (
        train_summarize.SAID,
        [SummarizeJob.default(x) for x in encoder_job.MODELS] + [SummarizeJob.default(start="hf:x")]
        + [RewriteJob.default(x) for x in translate.TranslateJob.models],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_defaults_are_those_of_the_jobs(name):
    said, jobs = JOBS[name]
    for key in ("epochs", "lr", "schedule", "weight_decay", "average", "vocab_size", "max_length", "label_smoothing"):
        if key not in said:
            continue
        is_recipe = key in {field.name for field in fields(Recipe)}
        values = {getattr(job.recipe if is_recipe else job, key) for job in jobs}
        shown = {value if isinstance(value, str) else f"{value:g}" for value in values}
        # names of models say for which
        others = {*translate.TranslateJob.models, "from", "a", "BERT", "rewrite"}
        assert set(re.findall(r"[\w.-]+", said[key])) - others == shown, key
    if "lowercase" in said:
        cases = {"lower case" if job.lowercase else "keep case" for job in jobs}
        assert set(re.findall("lower case|keep case", said["lowercase"])) == cases
        letters = {getattr(job, "has_letters", None) for job in jobs}
        assert letters == ({False} if said["letters"] == "off" else {None})
    # and those that stand in the help itself
    for option in COMMANDS["train", name].params:
        stated = re.search(r"\[default: ([\w.]+)\]", read_help(("train", name), option))
        key = {"how": None, "pooling": None, "column": None}.get(option.name, option.name)
        value = getattr(jobs[0], key or "", None)
        if stated and value is not None:
            assert stated[1] == (value if isinstance(value, str) else f"{value:g}"), key


def test_what_trains_says_which_end_comes_first():
    for field in fields(Training):
        if field.name in ("epochs", "max_steps"):
            for names in (names for names in COMMANDS if names[0] == "train"):
                assert "whichever is reached first" in read_help(names, find(names, field.name))


@pytest.mark.parametrize("name", MODELS)
def test_settings_need_no_data_and_no_folder(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in (PairCorpus, PretrainJob().corpus.__class__):
        monkeypatch.setattr(kind, "part", lambda self: pytest.fail("data are read"))
    status, out, err = command("train", name, "--settings", "--preset", "small", "--set", "num_hiddens=64")
    assert (status, err) == (0, "")
    title, *rows = out.splitlines()
    assert title.split() == ["SETTING", "VALUES", "DEFAULT", "WHAT", "IT", "IS"]
    found = {row.split(maxsplit=3)[0]: row.split(maxsplit=3)[1:] for row in rows}
    assert found["num_hiddens"][:2] == [">=1", "64"]
    assert found["dropout"][0] == "[0,1)"
    assert all(len(cells) == 3 for cells in found.values())
    # all defaults at once are a command line that changes nothing
    again = [f"--set={key}={cells[1]}" for key, cells in found.items()]
    assert command("train", name, "--settings", "--preset", "small", *again) == (0, out, "")
    assert list(tmp_path.iterdir()) == []


def test_a_run_needs_a_folder(complaint):
    assert complaint("train", "tag", "--epochs", "1") == (
        "Invalid value for '--out': name a folder for the run: see regard train tag --help."
    )
    assert "has no setting 'width' to change" in complaint("train", "tag", "--settings", "--set", "width=1")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("tag --window 16,4", "[16,4]"), ("classify --window=0", "0"), ("pretrain --set window=[2,0]", "[2,0]"),
        ("summarize --how rewrite --model transformer --window 3", "3"),
        ("translate --model transformer --window 3 --set window=null", "null"),
    ],
)  # fmt: skip
def test_attention_may_be_truncated(command, words, shown):
    status, out, _ = command("train", *words.split(), "--settings")
    (line,) = (line for line in out.splitlines() if line.startswith("window "))
    assert (status, line.split()[1:3]) == (0, [">=0|[>=0,>=0]|null", shown])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tag --window x", "--window must be a number, or two with a comma between, as 16 or 16,4, got 'x'"),
        ("pretrain --window 1,2,3", "--window must be a number, or two with a comma between, as 16 or 16,4, got '1,2,"),
        ("classify --model gru --window 4", "Config window is for kind='attention', got kind='gru': leave it out."),
        ("translate --window 4", "bahdanau has no setting 'window' to change"),
    ],
)
def test_what_cannot_be_truncated_says_so(complaint, words, said):
    assert said in complaint("train", *words.split(), "--settings")


PLACES = [(names, option) for names, option in OPTIONS if option.name in WRITES and option.metavar == "FILE"]
ENDINGS = {"look": ".png", "picture": ".png", "save": ".safetensors", "out": ".html", "output": ".jsonl"}


def test_all_that_write_are_known():
    found = {(names[0], option.name) for names, option in PLACES}
    asked = {(name, "output") for name in ("translate", "tag", "classify", "summarize", "fill", "embed", "evaluate")}
    pages = {("translate", "look"), ("look", "out"), ("look", "picture"), ("look", "save"), ("compare", "out")}
    assert found == asked | pages


@pytest.mark.parametrize(("names", "option"), PLACES, ids=[f"{names[0]} {x.name}" for names, x in PLACES])
def test_a_file_that_exists_is_kept(complaint, run_folder, names, option, tmp_path, monkeypatch):
    """It is refused before there is any work, whatever the run is."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"mine{ENDINGS[option.name]}"
    file.write_text("mine")
    given = [] if names == ("compare",) else [str(run_folder)] + ["x"] * (names != ("evaluate",))
    said = complaint(*names, *given, option.opts[0], file.name)
    assert f"{option.opts[0]} would overwrite {file.name}: name another file, or add --force" in said
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]
    assert find(names, "force").opts == ["--force"]


def test_force_overwrites(command, run_folder, tmp_path):
    out, quick = tmp_path / "a.txt", ("--device", "cpu", "--max-len", "3")
    out.write_text("mine")
    assert command("translate", run_folder, "西安", "--output", out, "--force", *quick)[0] == 0
    assert out.read_text() != "mine"
    # a file for each sentence is looked at, not the one that names them
    picture, second = tmp_path / "a.png", tmp_path / "a-2.png"
    picture.write_text("mine")
    second.write_text("mine")
    given = ("translate", run_folder, "西安", "北京", "--look", picture, *quick)
    status, said, err = command(*given)
    assert (status, said) == (2, "")
    assert f"--look would overwrite {second}" in err
    second.unlink()
    assert command(*given)[0] == 0
    assert picture.read_text() == "mine"
    assert (tmp_path / "a-1.png").stat().st_size > 1000 < second.stat().st_size


def test_a_comparison_is_drawn_again_beside_its_numbers(command, tmp_path):
    page = tmp_path / "a.html"
    sizes = (
        "--parts",
        "paths",
        "--lengths",
        "4,6,8",
        "--widths",
        "4",
        "--kernels",
        "3",
        "--heads",
        "2",
        "--width",
        "4",
    )
    assert command("compare", *sizes, "--out", page)[0] == 0
    page.unlink()
    # the numbers that are read are no loss
    assert command("compare", "--from", page.with_suffix(".json"), "--out", page)[0] == 0
    assert json.loads(page.with_suffix(".json").read_text())["settings"]["parts"] == ["paths"]
    assert command("compare", "--from", page.with_suffix(".json"), "--out", page)[0] == 2
