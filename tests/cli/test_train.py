"""`regard train translate`: what it says, and what it refuses without leaving anything behind."""

import fcntl
import gzip
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import warnings
import zipfile

import pytest

from regard.tasks.text.translate import TranslateTask
from tests.cli.kinds import KINDS
from tests.cli.small import PAIRS

pytest.importorskip("lightning")

TINY, LINES = KINDS["translate"].arguments[2:], KINDS["translate"].data


@pytest.fixture
def tsv(data):
    return data("translate")


@pytest.fixture
def train(command, tsv):
    return lambda *arguments: command("train", "translate", "--data", tsv, *TINY, *arguments)


def test_what_is_said(train, command, tmp_path):
    out = tmp_path / "run"
    status, said, err = train("--out", out, "--epochs", "2")
    lines = err.splitlines()
    assert (status, said, len(lines)) == (0, "", 9)
    assert " for training, " in lines[0]
    assert lines[1].endswith("5 steps per epoch, 2 epochs: 10 steps, 1 of them warmup; validation every 5 steps.")
    assert lines[2].startswith("step 5  epoch 1.0  loss ")
    assert lines[3].endswith("  best")
    assert lines[4].startswith(f"Done (all steps done). {out}: step 10, ")
    assert ", best loss " in lines[4]
    assert lines[4].endswith(" at step 10.")
    assert lines[5].endswith(" come out exactly right.")
    assert lines[6].startswith(
        "The answers are as near to those of others, so nothing was learned that holds for new sentences: "
    )
    assert lines[8] == f'Score it: regard evaluate {out}. See it: regard look {out} "a sentence" --out page.html'
    assert lines[7] == f'Curves: {out / "curves.png"}. Use it: regard translate {out} "a sentence"'
    # done is done
    before = (out / "resume.safetensors").read_bytes()
    assert train("--out", out, "--epochs", "2")[2].splitlines() == lines[4:]
    assert (out / "resume.safetensors").read_bytes() == before
    status, said, _ = command("translate", out, PAIRS[0][0], "--device", "cpu")
    assert (status, said.count("\n")) == (0, 1)


def test_quiet(train, tmp_path):
    assert train("--out", tmp_path / "run", "--max-steps", "2", "--quiet") == (0, "", "")


def test_quiet_in_a_process_of_its_own(tmp_path, tsv):
    # of this precision, lightning says that it is used
    options = ("--out", tmp_path / "run", "--max-steps", "1", "--precision", "bf16-mixed", "--quiet")
    done = subprocess.run(
        [sys.executable, "-m", "regard", "train", "translate", "--data", tsv, *TINY, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("options", [["--quiet"], []])
def test_torch_says_nothing(train, tmp_path, monkeypatch, recwarn, options):
    inner = TranslateTask.measure

    def warn(self, model, batch):
        warnings.warn("of torch's", stacklevel=2)
        return inner(self, model, batch)

    monkeypatch.setattr(TranslateTask, "measure", warn)
    assert train("--out", tmp_path / "run", "--max-steps", "1", *options)[0] == 0
    assert [str(warning.message) for warning in recwarn] == []
    # afterwards all is as it was
    assert logging.getLogger("lightning.fabric").level == logging.INFO


def test_patience(train, tmp_path):
    err = train("--out", tmp_path / "run", "--validate-every", "1", "--patience", "1", "--lr", "9", "--epochs", "90")[2]
    assert f"Done (early stopping). {tmp_path / 'run'}: step " in err


def zip_up(folder: pathlib.Path, **members: str) -> bytes:
    with zipfile.ZipFile(folder / "new.zip", "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("_", "."), text)
    return (folder / "new.zip").read_bytes()


DATA = {
    "empty.tsv": (lambda folder: b"", "has no sentence pairs (0 blank lines): name a file that has some."),
    "header.tsv": (lambda folder: b"source\ttarget\n", "leaves no pairs for validation, of 1 (1 different): "),
    "ragged.tsv": (lambda folder: LINES + b"one\n", "line 121 must have at least 2 columns between tabs, has 1"),
    "nul.tsv": (lambda folder: LINES + b"a\0b\tc\n", "line 121 has a NUL byte, so this is no text"),
    "latin.tsv": (lambda folder: b"na\xefve\tx\n", "line 1 is not UTF-8 (byte 0xef at 2): convert the file"),
    "bad.jsonl": (lambda folder: b'{"source": "a", "target": "b"}\n{bad\n', "line 2 is not JSON (Expecting property"),
    "nan.jsonl": (lambda folder: b'{"source": NaN, "target": "b"}\n', "line 1: 'source' must be text, is a float"),
    "label.jsonl": (lambda folder: b'{"source": "a"}\n', "line 1 has no key 'target' (it has 'source')"),
    "long.tsv": (lambda folder: b"a" * 2_000_000 + b"\tb\n", "line 1 is longer than 1,000,000 bytes"),
    "cut.tsv.gz": (lambda folder: gzip.compress(LINES)[:-20], "is damaged after line 0 (Compressed file ended"),
    "bomb.tsv.gz": (lambda folder: gzip.compress(bytes(50_000_000)), "line 1 is longer than 1,000,000 bytes"),
    "not.tsv.gz": (lambda folder: LINES, "is damaged after line 0 (Not a gzipped file"),
    "up.zip": (lambda folder: zip_up(folder, evil_bin="x"), "must hold one .tsv, .txt or .jsonl file, holds 0"),
    "two.zip": (
        lambda folder: zip_up(folder, a_tsv="x", b_tsv="y"),
        "holds 2 (a.tsv, b.tsv): name the member to read.",
    ),
    "code.tsv": (lambda folder: b"\x80\x04cos\nsystem\n", "line 1 is not UTF-8 (byte 0x80 at 0)"),
    "pairs.csv": (lambda folder: LINES, "must end in .tsv, .txt, .tab, .jsonl or .ndjson (then .gz), or .zip"),
}


@pytest.mark.parametrize("name", DATA)
def test_bad_data(complaint, tmp_path, name):
    content, words = DATA[name]
    (tmp_path / name).write_bytes(content(tmp_path))
    for option in ("--data", "--valid"):
        if option == "--valid" and name == "header.tsv":
            # one pair is little, but enough to validate by
            continue
        line = complaint("train", "translate", option, tmp_path / name, "--out", tmp_path / "new" / "run", *TINY)
        assert line.startswith(str(tmp_path / name))
        assert words in line
    assert not (tmp_path / "new").exists()


def test_data_that_is_not_there(complaint, tmp_path, tsv):
    new = ("--out", tmp_path / "new" / "run", *TINY)
    assert complaint("train", "translate", "--data", "none.tsv", *new) == "none.tsv does not exist: check the name."
    assert complaint("train", "translate", "--data", tmp_path, *new) == f"{tmp_path} is a folder: name a file in it."
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    line = complaint("train", "translate", "--data", tmp_path / "a.en", "--data", tmp_path / "a.de", *new)
    assert "must have as many lines" in line
    assert not (tmp_path / "new").exists()


HELP = ": see regard train translate --help."
OPTIONS = {
    "--model gpt": "model must be one of bahdanau, transformer, got 'gpt'.",
    "--preset huge": "Config preset must be one of 'tiny', 'small', 'base', got 'huge'.",
    "--set nothing=3": "bahdanau has no setting 'nothing' to change; it has ",
    "--set src_vocab_size=3": "bahdanau has no setting 'src_vocab_size' to change; it has ",
    "--set num_hiddens=big": "Config num_hiddens must be int, got 'big'.",
    "--set num_hiddens=-3": "Config num_hiddens must be at least 1, got -3.",
    "--set num_layers=99999999999999999999": "num_layers must be at most 1000, got 99999999999999999999.",
    "--set dropout=NaN": "Config dropout must lie in [0, 1), got nan.",
    "--set attention=magic": "Config attention must be one of ",
    "--set num_hiddens": "Invalid value: --set must be KEY=VALUE, got 'num_hiddens'" + HELP,
    "--lr -1": "lr must be above 0, got -1.0.",
    "--lr x": "Invalid value for '--lr': ",
    "--schedule wave": "schedule must be one of 'constant', 'linear', 'cosine', 'inverse-sqrt', got 'wave'.",
    "--seed 99999999999999999999": "seed must be below 2**63, got 99999999999999999999.",
    "--metric ter": "metric must be one of loss, bleu, exact, got 'ter'.",
    "--tokens nonsense": "kind must be one of 'bpe', 'words', 'spaces', 'characters', got 'nonsense'.",
    "--tokens a,b,c": "Invalid value: --tokens must be one kind, or two with a comma between, got 'a,b,c'" + HELP,
    "--vocab-size -5": "vocab_size must be from 1 to 2**31, got -5.",
    "--max-length 1": "batches need a pair for each of 1 processes, got 80 pairs, 80 of them too long: ",
    "--columns 0,1": "Invalid value: --columns must be two numbers counted from 1, as 1,2, got '0,1'" + HELP,
    "--keys a": "Invalid value: --keys must be two with a comma between, got 'a'" + HELP,
    "--held-out 0.7": "held_out must be a fraction below one half, got 0.7.",
    "--accelerator abacus": "accelerator must be one of auto, cpu, cuda, gpu, mps, got 'abacus'.",
    "--strategy deepspeed": "this machine cannot be set up (",
    "--devices none": "devices must be 'auto', a count, or numbers as 0,2, got 'none'.",
    "--precision 16": "precision must be one of 32-true, bf16-mixed, bf16-true, 64-true, got '16'.",
    "--magic": "No such option: --magic",
}


@pytest.mark.parametrize("given", OPTIONS)
def test_bad_options(complaint, tmp_path, tsv, given):
    line = complaint("train", "translate", "--data", tsv, "--out", tmp_path / "new" / "run", *TINY, *given.split())
    assert line.startswith(OPTIONS[given])
    assert len(line) <= 200
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("num_heads=-1", "Config num_heads must be at least 1, got -1."),
        ("num_heads=5", "Config num_hiddens=64 must be a multiple of num_heads=5."),
        ("score=magic", "Config score must be one of "),
        ("embed_size=4", "transformer has no setting 'embed_size' to change; it has "),
        (f"position={'[' * 50_000}", "Config position must be "),
    ],
)
def test_bad_settings_of_a_transformer(complaint, tmp_path, tsv, given, message):
    out = ("--out", tmp_path / "new" / "run", "--accelerator", "cpu", "--set", "num_hiddens=64")
    status_line = complaint("train", "translate", "--data", tsv, "--model", "transformer", *out, "--set", given[:60])
    assert status_line.startswith(message)
    assert not (tmp_path / "new").exists()


def test_places_that_are_no_runs(complaint, tmp_path, tsv):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("mine")
    for place, message in (
        (tmp_path / "file", f"{tmp_path / 'file'} is a file: name a folder for the run."),
        (tmp_path / "file" / "run", f"{tmp_path / 'file' / 'run'} cannot be written (Not a directory): "),
        (tmp_path / "photos", f"{tmp_path / 'photos'} holds 'cat.png' but no resume.json, so it is no run: name a new"),
    ):
        assert complaint("train", "translate", "--data", tsv, "--out", place, *TINY).startswith(message)
    assert os.listdir(tmp_path / "photos") == ["cat.png"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_rights(complaint, tmp_path, tsv):
    (tmp_path / "locked").mkdir(mode=0o500)
    line = complaint("train", "translate", "--data", tsv, "--out", tmp_path / "locked" / "run", *TINY)
    assert "Permission denied" in line


def test_a_run_in_use(complaint, tmp_path, tsv, finished):
    shutil.copytree(finished("translate"), tmp_path / "run")
    with open(tmp_path / "run" / ".lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        line = complaint("train", "translate", "--data", tsv, "--out", tmp_path / "run", *TINY, "--epochs", "2")
    assert line == f"{tmp_path / 'run'} is in use by another run: wait for it, or name another folder."


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def flip(raw: bytes) -> bytes:
    return raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("resume.safetensors", cut, "resume.safetensors cannot be read as a state ("),
        ("resume.safetensors", flip, "resume.safetensors cannot be read as a state (damaged, its sha256 is another): "),
        ("resume.safetensors", lambda raw: b"", "resume.safetensors cannot be read as a state (0 bytes"),
        ("resume.safetensors", lambda raw: b"\x80\x04cos\nsystem\n", "resume.safetensors cannot be read as a state ("),
        ("resume.safetensors", None, "holds a model but no resume.safetensors to resume from: name a new folder."),
        ("resume.json", cut, "resume.json cannot be read (JSONDecodeError): restore it, or name a new folder."),
        ("resume.json", lambda raw: b"[]", "resume.json must be a JSON object, is a list: restore it."),
        ("resume.json", None, "but no resume.json, so it is no run: name a new folder."),
        ("tokenizer.json", lambda raw: b"{}", "tokenizer.json is not a tokenizer"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("target_tokenizer.json", lambda raw: b"\xff", "target_tokenizer.json"),
    ],
)
def test_damaged_runs(complaint, tmp_path, tsv, finished, name, damage, words):
    folder = tmp_path / "run"
    shutil.copytree(finished("translate"), folder)
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(damage((folder / name).read_bytes()))
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    line = complaint("train", "translate", "--data", tsv, "--out", folder, *TINY, "--epochs", "2")
    assert words in line
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before
