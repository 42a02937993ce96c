"""The folder of a run: settings, checkpoint and history, locked so that no two runs share it."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from regard.core import RegardError
from regard.core.files import write_whole
from regard.models.layout import CONFIG, PREFIX, WEIGHTS

STATE, SETTINGS, METRICS, LOCK = "resume.safetensors", "resume.json", "metrics.jsonl", ".lock"
# what every run writes; a task names what else it does
WRITTEN = (STATE, SETTINGS, METRICS, CONFIG, WEIGHTS)
# the name of a file that is not yet whole: see `write_whole`
HALF = re.compile(r"\..+\.[a-z0-9_]{8}")
# where a run ends, which may be moved, and where it is kept that it was
ENDS, MOVED = ("epochs", "max_steps", "patience"), "moved"
# what else may differ from one call to the next: when to save is not what is learned, and the data are known by their
# digest, wherever they lie now
FREE = ("save_every", "data", "valid", MOVED)
# what settings mean that runs of earlier versions do not have
UNSAID = {"corpus.parting": "hash"}


class RunFolder:
    """The folder of a run on disk.

    >>> import tempfile
    >>> folder = RunFolder(pathlib.Path(tempfile.mkdtemp(), "run"))
    >>> folder.is_begun()
    False
    >>> folder.save({"step": 0}, history=[])
    >>> folder.is_begun(), folder.load()["step"]
    (True, 0)

    `files` are what its task writes beside what every run does, as tokenizers.
    """

    def __init__(self, path: str | os.PathLike[str], files: tuple[str, ...] = ()) -> None:
        self.path, self.files = pathlib.Path(path), files

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the folder until the block is left, however it is left."""
        self.check()
        written = (*WRITTEN, *self.files)
        halves = tuple(f".{name}." for name in written)
        with say_why(self.path):
            try:
                self.path.mkdir(parents=True)
                is_new = True
            except FileExistsError:
                is_new = False
            handle = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            if not self._lock(handle):
                raise RegardError(f"{self.path} is in use by another run: wait for it, or name another folder.")
            try:
                self._sweep(halves)
                yield
            finally:
                if is_new and not self.is_begun():
                    # nothing came of it
                    with suppress(OSError, RegardError):
                        self._sweep((*halves, LOCK, *written))
                        self.path.rmdir()
        finally:
            # the lock goes with the handle, even if the process is killed
            os.close(handle)

    def _lock(self, handle: int) -> bool:
        """Try to lock the folder; whether it is now this run's alone."""
        try:
            import fcntl
        except ImportError:
            # no such locks on this system; two runs in one folder are then the user's to avoid
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # a start that came to nothing may have taken the file away since it was opened
            return os.path.samestat(os.fstat(handle), os.stat(self.path / LOCK))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                return False
            raise RegardError(
                f"{self.path} cannot be locked ({error.strerror or error}): name a folder on another file system."
            ) from None

    def _sweep(self, starts: tuple[str, ...]) -> None:
        """Remove files whose names begin so, such as temporary files of a run that was killed."""
        with say_why(self.path):
            for name in [entry.name for entry in self.path.iterdir() if entry.name.startswith(starts)]:
                (self.path / name).unlink(missing_ok=True)

    def check(self) -> None:
        """Check that the folder is a run's, or free for a new one; nothing is written."""
        with say_why(self.path):
            if not self.path.exists():
                return
            if not self.path.is_dir():
                raise RegardError(f"{self.path} is a file: name a folder for the run.")
            names = sorted(entry.name for entry in self.path.iterdir())
        strange = [name for name in names if name != LOCK and not HALF.fullmatch(name)]
        if strange and SETTINGS not in names:
            raise RegardError(
                f"{self.path} holds {strange[0]!r} but no {SETTINGS}, so it is no run: name a new folder."
            )
        if WEIGHTS in names and STATE not in names:
            raise RegardError(f"{self.path} holds a model but no {STATE} to resume from: name a new folder.")

    def is_begun(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return (self.path / STATE).exists()

    def begin(self, settings: Mapping[str, Any], free: Sequence[str] = ()) -> dict[str, tuple[Any, Any]]:
        """Write the settings of a new run; or check that a resumed run has the same, but for those that are `free`.

        Where it ends may be moved: what was and what is to be now, by name.
        """
        now = json.loads(json.dumps(settings))
        if not self.is_begun():
            self._write_settings(now)
            return {}
        before, after = _flatten(self.read_settings()), _flatten(now)
        before = {name: value for name, value in UNSAID.items() if name in after} | before
        if "task" in before and before["task"] != after.get("task"):
            raise RegardError(f"{self.path} is a run of {before['task']!s:.20}: name a new folder.")
        # a model decides its settings, and what a digest is of says more than it
        for name in sorted({*before, *after}, key=lambda x: (x == "data_digest", x != "model", x)):
            said = name.rpartition(".")[2]
            if said not in (*FREE, *free, *ENDS) and before.get(name) != after.get(name):
                was = f"{said}={_show(before.get(name))}, now it is {_show(after.get(name))}"
                if said == "data_digest":
                    was = "other examples than it is given now"
                raise RegardError(f"{self.path} was begun with {was}: name a new folder, or give the same.")
        pairs = {name: (before.get(f"recipe.{name}"), after.get(f"recipe.{name}")) for name in ENDS}
        return {name: (was, will) for name, (was, will) in pairs.items() if was != will}

    def move_end(self, step: int, moved: Mapping[str, tuple[Any, Any]]) -> None:
        """Write where the run ends now (epochs, steps, patience), and from which step on that is so."""
        kept = self.read_settings()
        kept["recipe"] |= {name: now for name, (_, now) in moved.items()}
        before = kept.get(MOVED)
        kept[MOVED] = [*(before if isinstance(before, list) else []), {"step": step, **moved}]
        self._write_settings(kept)

    def _write_settings(self, settings: Mapping[str, Any]) -> None:
        with say_why(self.path):
            write_whole(self.path / SETTINGS, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")

    def read_settings(self) -> dict[str, Any]:
        """The settings that `begin` wrote."""
        path = self.path / SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RegardError(
                f"{path} cannot be read ({type(error).__name__}): restore it, or name a new folder."
            ) from None
        if not isinstance(found, dict):
            raise RegardError(f"{path} must be a JSON object, is a {type(found).__name__}: restore it.")
        return found

    def load(self) -> Any:
        """Load the last checkpoint."""
        # brings torch, which nothing else here needs
        from regard.tasks.training.state import load_state

        return load_state(self.path / STATE)

    def save(self, state: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> None:
        """Write a checkpoint, and beside it the history, a line per validation."""
        from regard.tasks.training.state import save_state

        with say_why(self.path):
            write_whole(self.path / METRICS, _list_rows(history))
            save_state(self.path / STATE, dict(state))

    def restore_history(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the history file again, if someone deleted it."""
        with say_why(self.path):
            if not (self.path / METRICS).exists():
                write_whole(self.path / METRICS, _list_rows(history))


@contextmanager
def say_why(path: pathlib.Path) -> Iterator[None]:
    """Turn an error of the file system into one line that says what to do."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or path} cannot be written ({error.strerror or error})"
        if os.path.exists(path / STATE):
            raise RegardError(f"{what}: mend that, and the same command resumes from the last checkpoint.") from None
        raise RegardError(f"{what}: mend that, or name another folder.") from None


def is_same_start(one: Any, other: Any) -> bool:
    """Whether two runs start from the same pretrained folder, however its name is written.

    >>> is_same_start("runs/words", "./runs/words/"), is_same_start("hf:bert", "bert"), is_same_start(None, "bert")
    (True, False, False)
    """
    if not isinstance(one, str) or not isinstance(other, str) or one.startswith(PREFIX) != other.startswith(PREFIX):
        return bool(one == other)
    one, other = (os.path.abspath(os.path.expanduser(x.removeprefix(PREFIX))) for x in (one, other))
    return bool(one == other)


def _list_rows(history: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in history)


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _flatten(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found.update(_flatten(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value})
    return found
