"""What holds for every task that is trained: what is said, stops, damage and data that are no data."""

import gzip
import shutil
import signal
from dataclasses import asdict

import pytest

from regard.cli.options.training import Training
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.state import load_state
from tests.cli.kinds import ENCODER, KINDS

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)

TASKS = pytest.mark.parametrize("name", KINDS)
# those that read otherwise than `translate`
OTHERS = [name for name in KINDS if name != "translate"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("regard.views.draw_curves", lambda *args: None)


@pytest.fixture
def train(command, data):
    """Trains two epochs of a task in a folder."""

    def call(name, out, *options):
        return command(*KINDS[name].arguments, "--data", data(name), "--out", out, "--epochs", "2", *options)

    return call


@TASKS
def test_what_is_said(train, tmp_path, name, finished):
    out = tmp_path / "run"
    shutil.copytree(finished(name), out)
    before = (out / "resume.safetensors").read_bytes()
    status, said, err = train(name, out)
    # done is done
    assert (out / "resume.safetensors").read_bytes() == before
    assert (status, said) == (0, ""), err
    lines = err.splitlines()
    assert lines[0].startswith(f"Done (all steps done). {out}: step 10, ")
    # what it makes of examples held out
    assert lines[1].startswith("Of ")
    assert f"Curves: {out / 'curves.png'}. Use it: regard {KINDS[name].use.format(out)}" in lines


@pytest.mark.parametrize(
    ("name", "number", "status"),
    [*((name, signal.SIGTERM, 143) for name in KINDS if name != "rewrite"), ("translate", signal.SIGINT, 130)],
)
def test_stopped_and_gone_on_with(train, complaint, tmp_path, monkeypatch, finished, name, number, status):
    kind, seen = KINDS[name].task, []
    count = kind.count

    def stop(self, batch):
        seen.append(batch)
        if len(seen) == 3:
            signal.raise_signal(number)
        return count(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "count", stop)
        out = tmp_path / "run"
        assert train(name, out, "--quiet") == (
            status, "", f"Stopped and saved. {out}: step 3, 0 s of training. The same command resumes it.\n"
        )  # fmt: skip
    # before its first validation it has no model
    assert complaint("evaluate", out) == (
        f"{out} has no model yet, its first validation saves one: resume training, or validate sooner"
        " (--validate-every)."
    )
    assert train(name, out, "--quiet") == (0, "", "")
    whole = finished(name)
    state, other = (load_state(folder / "resume.safetensors") for folder in (out, whole))
    assert state["standing"]["step"] == other["standing"]["step"] == 10
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    for key, x in state["model"].items():
        assert x.equal(other["model"][key]), key


@pytest.mark.parametrize(
    ("name", "option", "setting", "now"),
    [
        *((name, ("--lr", "1"), "lr", "1.0") for name in KINDS if name != "rewrite"),
        # what is read follows from these: they are named all the same
        ("tag", ("--no-letters",), "has_letters", "false"),
        ("pretrain", ("--letters",), "has_letters", "true"),
        ("classify", ("--tokens", "bpe"), "tokens", '"bpe"'),
        ("summarize", ("--min-count", "2"), "min_count", "2"),
    ],
)
def test_other_options_are_another_run(complaint, data, tmp_path, finished, name, option, setting, now):
    shutil.copytree(finished(name), tmp_path / "run")
    arguments = (*KINDS[name].arguments, "--data", data(name), "--out", tmp_path / "run", "--epochs", "2")
    line = complaint(*arguments, *option)
    assert line.startswith(f"{tmp_path / 'run'} was begun with {setting}=")
    assert line.endswith(f", now it is {now}: name a new folder, or give the same.")


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "rewrite"])
def test_a_folder_in_use_is_left_alone(complaint, data, tmp_path, finished, name):
    folder = tmp_path / "run"
    shutil.copytree(finished(name), folder)
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    with RunFolder(folder).hold():
        line = complaint(*KINDS[name].arguments, "--data", data(name), "--out", folder, "--epochs", "3")
    assert line == f"{folder} is in use by another run: wait for it, or name another folder."
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["tag"])
@pytest.mark.parametrize("file", ["resume.safetensors", "resume.json", "tokenizer.json", "model.safetensors"])
def test_damaged_runs(complaint, data, tmp_path, finished, name, file):
    folder = tmp_path / "run"
    shutil.copytree(finished(name), folder)
    (folder / file).write_bytes((folder / file).read_bytes()[:60])
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    line = complaint(*KINDS[name].arguments, "--data", data(name), "--out", folder, "--epochs", "2")
    assert str(folder / file) in line
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


# the end of a file's name, what is in it, and what is said, by what comes before
BAD = {
    "empty": ("", lambda raw: b"", " has no "),
    "nul": ("", lambda raw: raw + b"a\0b\tc\n", "has a NUL byte, so this is no text"),
    "latin": ("", lambda raw: b"na\xefve\tX\n", "line 1 is not UTF-8 (byte 0xef at 2)"),
    "code": ("", lambda raw: b"\x80\x04cos\nsystem\n", "line 1 is not UTF-8 (byte 0x80 at 0)"),
    "long": ("", lambda raw: b"a" * 2_000_000, "line 1 is longer than 1,000,000 bytes"),
    "cut": (".gz", lambda raw: gzip.compress(raw)[:-20], " (Compressed file ended"),
    "bomb": (".gz", lambda raw: gzip.compress(bytes(2_000_000)), "line 1 is longer than 1,000,000 bytes"),
    "plain": (".gz", lambda raw: raw, "is damaged after line 0 (Not a gzipped file"),
    "other": (".bin", lambda raw: raw, "must end in "),
}


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "rewrite"])
@pytest.mark.parametrize("fault", BAD)
def test_bad_data(complaint, data, tmp_path, name, fault):
    end, change, words = BAD[fault]
    file = tmp_path / (KINDS[name].file + end)
    file.write_bytes(change(KINDS[name].data))
    new = ("--out", tmp_path / "new" / "run")
    # what validates is read by the same readers
    ways = [("--data", file), ("--data", data(name), "--valid", file)]
    for given in ways if fault == "latin" else ways[:1]:
        line = complaint(*KINDS[name].arguments, *given, *new)
        assert line.startswith(str(file))
        assert words in line
        assert len(line) <= 200 + len(str(file))
    assert not (tmp_path / "new").exists()


COLUMNS = "{}, line 1 must have at least 2 columns between tabs, has 1: mend the line, or name other columns."
# (what is trained, the file's name, what is in it, what is said)
MISFITS = [
    *((name, "none.tsv", None, "{} does not exist: check the name.") for name in OTHERS if name != "rewrite"),
    ("tag", "a.txt", "word\n", "{}, line 1 must have 2 columns, a word and its tag, has 1: mend the line, or "),
    ("tag", "a.conllu", "1\tword\tx\n", "{}, line 1 must have 10 columns between tabs, has 3: "),
    ("classify", "a.tsv", "word\n", COLUMNS),
    ("classify", "a.jsonl", '{"a": 1}\n', "{}, line 1 has no key 'text' (it has 'a'): "),
    ("pretrain", "a.jsonl", '{"a": 1}\n', "{}, line 1 has no key 'text' (it has 'a'): "),
    ("summarize", "a.tsv", "word\n", COLUMNS),
    ("summarize", "a.jsonl", '{"a": 1}\n', "{}, line 1 has no key 'source' (it has 'a'): "),
]


@pytest.mark.parametrize(("name", "file", "text", "message"), MISFITS)
def test_data_of_another_kind(complaint, tmp_path, monkeypatch, name, file, text, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / file).write_text(text)
    line = complaint(*KINDS[name].arguments, "--data", file, "--out", "new/run")
    assert line.startswith(message.format(file))
    assert not (tmp_path / "new").exists()


HELP = ": see regard train {} --help."
OPTIONS = {
    "tag --model bahdanau": "model must be one of attention, gru, cnn, got 'bahdanau'.",
    "tag --preset huge": "Config preset must be one of ",
    "tag --set nothing=3": "attention has no setting 'nothing' to change; it has ",
    "tag --set vocab_size=3": "attention has no setting 'vocab_size' to change; it has ",
    "tag --set num_hiddens=big": "Config num_hiddens must be ",
    "tag --metric bleu": "metric must be one of loss, accuracy, f1, got 'bleu'.",
    "tag --tokens nonsense": "kind must be one of 'bpe', 'words', 'spaces', 'characters', got 'nonsense'.",
    "tag --tokens bpe --letters": "letters are for tokens that are words: take tokens words or spaces, not 'bpe'.",
    "tag --column nothing": "{data} has two columns, a word and its tag: leave column='nothing' out.",
    "tag --from nowhere": "nowhere",
    "tag --from nowhere --tokens words": "Invalid value: --tokens is decided by what --from names: leave it out" + HELP,
    "tag --from nowhere --no-letters": "Invalid value: --letters is decided by what --from names: leave it out" + HELP,
    "tag --from nowhere --model gru": "model must be 'attention' where there is a start, which decides it, got 'gru'.",
    "tag --max-length 1": "batches need a sequence for each of 1 processes, got 80 sequences, 80 of them too long: ",
    "tag --label-smoothing 2": "label_smoothing must lie in [0, 1), got 2.0.",
    "classify --columns 0,1": "Invalid value: --columns must be named as in the first row, or counted from 1, got '0'"
    + HELP,
    "classify --columns text,mood": "{data}, line 1 names no column 'text' ",
    "classify --columns 1,9": "{data}, line 1 must have at least 9 columns between tabs, has 2",
    "classify --keys a": "Invalid value: --keys must be two with a comma between, got 'a'" + HELP,
    "classify --pooling odd": "Config pooling must be ",
    "classify --held-out 0.7": "held_out must be a fraction below one half, got 0.7.",
    "pretrain --rate 2": "rate, the fraction of the tokens to mask, must lie in (0, 1), got 2.0.",
    "pretrain --metric f1": "metric must be one of loss, accuracy, got 'f1'.",
    "pretrain --column 0": "Invalid value: --column must be named as in the first row, or counted from 1, got '0'"
    + HELP,
    "summarize --how shrink": "Invalid value: --how must be one of keep, rewrite, got 'shrink'" + HELP,
    "summarize --how rewrite --from nowhere": "Invalid value: --from is for --how keep: leave it out" + HELP,
    "summarize --how rewrite --model gru": "model must be one of bahdanau, transformer, got 'gru'.",
    "summarize --columns 0,1": "Invalid value: --columns must be two numbers counted from 1, as 1,2, got '0,1'" + HELP,
}


@pytest.mark.parametrize("given", OPTIONS)
def test_bad_options(complaint, data, tmp_path, monkeypatch, given):
    name, *options = given.split()
    monkeypatch.chdir(tmp_path)
    sizes = () if "rewrite" in given or "--from" in given else ENCODER
    new = ("--limit", "80", "--accelerator", "cpu", "--out", "new/run")
    line = complaint("train", name, "--data", data(name), *sizes, *new, *options)
    assert line.startswith(OPTIONS[given].format(name, data=data(name)))
    assert list(tmp_path.iterdir()) == []


def test_one_label_is_none(complaint, tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"text {number}\tsame\n" for number in range(60)))
    line = complaint(*KINDS["classify"].arguments, "--data", file, "--out", tmp_path / "new")
    assert line.endswith("has 1 (same): name another column.")
    assert not (tmp_path / "new").exists()


def test_one_run_begins_from_another(command, data, tmp_path, finished):
    arguments = ("train", "tag", "--data", data("tag"), "--limit", "40", "--accelerator", "cpu", "--max-steps", "2")
    start = ("--from", finished("pretrain"), "--out", tmp_path / "run", "--quiet")
    assert command(*arguments, *start) == (0, "", "")
    # and goes on
    assert command(*arguments, *start) == (0, "", "")
    first, second = ((folder / "tokenizer.json").read_bytes() for folder in (finished("pretrain"), tmp_path / "run"))
    assert first == second


@pytest.mark.parametrize("name", ["tag", "classify", "pretrain", "summarize"])
def test_without_data_the_phrasebook_is_learned(command, tmp_path, name):
    arguments = (*KINDS[name].arguments, "--max-steps", "1", "--out", tmp_path / "run", "--quiet")
    assert command(*arguments) == (0, "", "")
    assert '"data": ["phrasebook"]' in " ".join((tmp_path / "run" / "config.json").read_text().split()).replace(
        '[ "', '["'
    ).replace('" ]', '"]')


def test_options_reach_the_recipe_and_the_job(command, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(Training, "run", lambda self, job, out: jobs.append(job))
    recipe = {"epochs": 3, "max_steps": 7, "accumulate": 2, "lr": 0.5, "warmup": 4, "schedule": "linear",
              "weight_decay": 0.25, "clip": 2.0, "average": 0.75, "patience": 5, "validate_every": 6, "save_every": 8,
              "seed": 9}  # fmt: skip
    own = {"preset": "small", "vocab_size": 99, "min_count": 3, "form": "NFKC", "max_tokens": 500, "max_length": 60}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in {**recipe, **own}.items()]
    for name in ("tag", "classify", "pretrain", "summarize"):
        options = (*given, "--keep-case", "--set", "num_heads=2", "--label-smoothing", "0.2", "--limit", "11")
        assert command("train", name, "--out", tmp_path / "run", *options, "--model", "gru")[0] == 0
        job = asdict(jobs.pop())
        assert {**job["recipe"], **recipe} == job["recipe"]
        assert {**job, **own, "model": "gru", "lowercase": False, "label_smoothing": 0.2} == job
        assert (job["batch_size"], job["changes"]["num_heads"], job["corpus"]["limit"]) == (None, 2, 11)
