"""What all commands share: help, version, the ways to fail."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import fields

import pytest
import typer

import regard
from regard import cli
from regard.cli import app, main
from regard.cli.options.files import name_program
from regard.cli.options.training import Training
from regard.extras import install

ASK = ("translate", "tag", "classify", "summarize")
SRC = pathlib.Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(command, arguments):
    status, out, err = command(*arguments)
    assert (status, err) == (0, "")
    for name in (*ASK, "train", "fill", "embed", "evaluate", "look", "--version"):
        assert name in out


@pytest.mark.parametrize("name", [*ASK, "evaluate"])
def test_help_of_a_command_has_examples_that_parse(command, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = command(name, "--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    # no boxes, no colours
    assert not set(out) & set("╭│─\x1b")
    examples = [line.strip() for line in out.partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    for example in examples:
        assert f"regard {name} runs/" in example
    # nothing asked, help given
    assert command(name)[:2] == (0, out)


@pytest.mark.parametrize("name", [*ASK, "pretrain"])
def test_what_trains_has_the_same_options(command, name):
    status, out, _ = command("train", name, "--help")
    assert status == 0
    given = re.findall(r"^  (--[a-z-]+)", out.partition("Options:\n")[2], re.MULTILINE)
    assert len(set(given)) == len(given)
    for field in fields(Training):
        assert f"--{field.name.replace('_', '-')}" in given
    # what is decided by the data comes first, the machine last
    assert given[:2] == ["--out", "--data"]
    assert given[-1] == "--quiet"


def list_commands(group, *names):
    for name in group.list_commands(None):
        inner = group.get_command(None, name)
        yield from list_commands(inner, *names, name) if hasattr(inner, "commands") else [((*names, name), inner)]


def test_all_examples_are_command_lines():
    known = dict(list_commands(typer.main.get_command(app.app)))
    for names, leaf in known.items():
        examples = leaf.epilog.partition("Examples:\n")[2].splitlines()
        assert len(examples) >= 2, names
        for example in examples:
            words = shlex.split(example)
            # what comes before is a pipe, or starts processes
            words = words[words.index("regard") + 1 :]
            path = tuple(words[: 2 if words[0] == "train" else 1])
            # raises where an option is unknown, or has no value
            known[path].make_context(" ".join(path), words[len(path) :])


def test_version(command):
    assert command("--version") == (0, f"regard {regard.__version__}\n", "")


def test_help_needs_no_torch_of_its_own():
    # what regard itself imports is not for the commands to say
    probe = (
        "import sys, types; package = types.ModuleType('regard'); package.__path__ = [sys.argv[1]];"
        "package.__version__ = '0'; sys.modules['regard'] = package;"
        "import time; start = time.perf_counter(); from regard.cli import main; main(['translate', '--help']);"
        "print(time.perf_counter() - start, [x for x in ('torch', 'numpy', 'rich', 'tokenizers') if x in sys.modules])"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", probe, str(SRC / "regard")], capture_output=True, text=True, check=True
        )
        seconds, _, modules = done.stdout.splitlines()[-1].partition(" ")
        assert modules == "[]"
        if float(seconds) < 1:
            break
    assert float(seconds) < 1


def test_as_a_module(run_folder):
    command = [sys.executable, "-m", "regard", "translate", str(run_folder), "西安", "--max-len", "3"]
    env = {**os.environ, "PYTHONPATH": str(SRC), "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_a_reader_that_leaves_is_no_error(run_folder, capsys, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main(["translate", str(run_folder), "西安", "--max-len", "1"]) == 1
        # and none when Python tries to flush it again
        stdout.flush()
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_behind_stdout(run_folder, capsys, monkeypatch):
    with open("/dev/full", "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main(["translate", str(run_folder), "西安", "--max-len", "1"]) == 2
    assert capsys.readouterr().err == (
        "the output cannot be used (No space left on device): check the name, its permissions and the free space.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command 'fly': see regard --help."),
        (["--fly"], "No such option: --fly: see regard --help."),
        (["translate", "x", "--zzz"], "No such option: --zzz: see regard translate --help."),
        (["translate", "x", "--beam"], "Option '--beam' requires an argument: see regard translate --help."),
        (
            ["translate", "x", "y", "--beam", "many"],
            "Invalid value for '--beam': 'many' is not a valid integer range: see regard translate --help.",
        ),
        (
            ["translate", "x", "y", "--beam", "0"],
            "Invalid value for '--beam': 0 is not in the range x>=1: see regard translate --help.",
        ),
        (["translate", "--beam", "2"], "Missing argument 'RUN': see regard translate --help."),
    ],
)
def test_a_wrong_command_line(complaint, arguments, message):
    said = complaint(*arguments)
    # typer's own words may change in detail
    assert said.split("'")[0] == message.split("'")[0]
    assert said.endswith(message.rpartition(":")[2])


def fail_with(monkeypatch, error: BaseException) -> None:
    def fail(arguments):
        raise error

    monkeypatch.setattr(app, "run", fail)


def test_ctrl_c(command, monkeypatch):
    fail_with(monkeypatch, KeyboardInterrupt())
    assert command("translate", "x") == (130, "", "Stopped.\n")


def test_ctrl_c_in_a_command(command, monkeypatch, run_folder):
    from regard.tasks.text.translator import Translator

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translate", stop)
    assert command("translate", run_folder, "西安") == (130, "", "Stopped.\n")


@pytest.mark.parametrize("error", [AttributeError, RecursionError, ModuleNotFoundError, OSError])
def test_an_import_that_is_interrupted_may_raise_anything(command, monkeypatch, error):
    def run(arguments):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error("half a module") from None

    monkeypatch.setattr("regard.cli.app.run", run)
    before = signal.getsignal(signal.SIGINT)
    assert command("translate", "x") == (130, "", "Stopped.\n")
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.setattr("regard.cli.app.run", lambda arguments: [][0])
    # a bug is a bug, where nobody interrupts
    with pytest.raises(IndexError):
        command("translate", "x")


def test_a_missing_package(complaint, monkeypatch):
    fail_with(monkeypatch, ModuleNotFoundError("No module named 'lightning.fabric'", name="lightning.fabric"))
    assert complaint("x") == f"This command needs the package lightning: {install('train')}."


def test_without_typer(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "regard.cli.app")
    monkeypatch.delattr(cli, "app")
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main(["--help"]) == 2
    assert capsys.readouterr().err == f"This command needs the package typer: {install('train')}.\n"


def test_a_file_that_fails(complaint, monkeypatch):
    fail_with(monkeypatch, PermissionError(13, "Permission denied", "a\nb.txt"))
    message = "a b.txt cannot be used (Permission denied): check the name, its permissions and the free space."
    assert complaint("x") == message


@pytest.mark.parametrize("bug", [ValueError("a bug"), KeyError("a bug"), ModuleNotFoundError("a bug", name="nothing")])
def test_a_bug_shows_where(monkeypatch, bug):
    fail_with(monkeypatch, bug)
    with pytest.raises(type(bug), match="a bug"):
        main(["x"])


@pytest.mark.parametrize(
    ("called", "is_found", "name"),
    [("/usr/bin/regard", True, "regard"), ("bin/regard", False, "bin/regard"), ("x/regard/__main__.py", False,
      "python -m regard"), ("bin/pytest", False, "regard")],
)  # fmt: skip
def test_the_program_is_named_as_it_can_be_called(called, is_found, name, monkeypatch):
    monkeypatch.setattr("sys.argv", [called])
    monkeypatch.setattr("shutil.which", lambda _: called if is_found else None)
    assert name_program() == name
