"""Whether a run that is stopped at any moment comes to the same end: kill it, go on, and compare every bit.

Small models of several tasks are trained without a stop, then again with stops: SIGKILL at random moments and inside
saves, SIGTERM and SIGINT, full disks. After each stop the same command goes on, by itself, now and then from another
place.
"""

from __future__ import annotations

import argparse
import errno
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tools.arguments import Parser, read_count
from tools.compare_runs import DifferenceError, compare
from tools.disks import fill_disk, mount_disk
from tools.own_package import use_own

# what a run may be made of; each is trained once without a stop
SMALL = ("--max-steps", "40", "--accelerator", "cpu")
FEW = ("--limit", "250", "--batch-size", "16")
GRU = ("--set", "num_hiddens=16", "--set", "embed_size=8")
ENCODER = (
    *("--set", "num_hiddens=16", "--set", "num_heads=2", "--set", "ffn_num_hiddens=16", "--set", "num_layers=1"),
    *("--set", "num_grams=50", "--validate-every", "9"),
)
# a task, and its options
KINDS: dict[str, tuple[str, ...]] = {
    "accumulated and averaged": (
        *("translate", *GRU, "--set", "dropout=0.2"),
        *("--accumulate", "2", "--average", "0.9", "--validate-every", "7"),
    ),
    "tagger": ("tag", *ENCODER, "--average", "0.9"),
    "transformer": (
        *("translate", "--model", "transformer"),
        *("--set", "num_hiddens=16", "--set", "num_heads=2", "--set", "ffn_num_hiddens=16"),
        *("--warmup", "10", "--schedule", "cosine", "--validate-every", "9"),
    ),
    "classifier": ("classify", *ENCODER, "--set", "word_dropout=0.1", "--pooling", "hard"),
    "plain": ("translate", *GRU, "--swap"),
    "pre-trained": ("pretrain", *ENCODER, "--accumulate", "2"),
    # of the package in examples/own
    "pictures": ("digits", *FEW, *ENCODER[:-4], "--validate-every", "9", "--average", "0.9"),
    "one graph": ("karate", "--set", "num_hiddens=8", "--validate-every", "9"),
}
# the data of each task on texts
FILES = {"translate": "pairs.tsv", "tag": "tags.txt", "classify": "texts.tsv", "pretrain": "texts.txt"}
# longer than any attempt takes
LIMIT = 120.0


class KillError(Exception):
    """A run that did not do what a stopped run must do."""


@dataclass
class Run:
    """A run that is stopped and goes on: its command, its folder, how often it was stopped."""

    arguments: tuple[str, ...]
    folder: pathlib.Path
    save_every: int
    stops: int = 0

    def start(self, log: pathlib.Path, room: int | None = None) -> int:
        """Its command in a process of its own, which has all packages from the start; `room` is bytes left on disk."""
        pid = os.fork()
        if pid:
            return pid
        status = 70
        try:
            stream = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(stream, number)
            from regard.cli import main

            if room is not None:
                fill_disk(room)
            status = main([*self.arguments, "--save-every", str(self.save_every), "--out", str(self.folder)])
        finally:
            sys.stderr.flush()
            os._exit(status)

    def is_saving(self) -> bool:
        try:
            return any(
                name.startswith((".resume", ".model", ".metrics", ".config")) for name in os.listdir(self.folder)
            )
        except FileNotFoundError:
            return False


def wait(pid: int, seconds: float) -> int | None:
    """The status a process ends with, below 0 for a signal; None where it goes on."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


@dataclass
class Trial:
    """All stops, in one temporary folder."""

    place: pathlib.Path
    chance: random.Random
    kinds: Sequence[str]
    counts: Counter[str] = field(default_factory=Counter)
    wholes: dict[str, tuple[pathlib.Path, float]] = field(default_factory=dict)

    def name_command(self, kind: str) -> tuple[str, ...]:
        task, *options = KINDS[kind]
        texts = ("--data", str(self.place / FILES[task]), *FEW, "--tokens", "words") if task in FILES else ()
        return ("train", task, *texts, *SMALL, *options, "--quiet")

    def begin(self, kind: str, parent: pathlib.Path | None = None) -> Run:
        self.counts["runs"] += 1
        folder = (parent or self.place) / f"run{self.counts['runs']}"
        return Run(self.name_command(kind), folder, self.chance.randint(1, 3))

    def find_whole(self, kind: str) -> tuple[pathlib.Path, float]:
        """The run that nothing stopped, and how long it took."""
        if kind not in self.wholes:
            run, start = Run(self.name_command(kind), self.place / f"whole{len(self.wholes)}", 1000), time.monotonic()
            self.finish(run)
            self.wholes[kind] = run.folder, time.monotonic() - start
        return self.wholes[kind]

    @property
    def log(self) -> pathlib.Path:
        return self.place / "log"

    def finish(self, run: Run) -> None:
        """Go on to the end."""
        pid = run.start(self.log)
        try:
            status = wait(pid, LIMIT)
        finally:
            stop(pid)
        if status != 0:
            raise KillError(f"{run.folder.name} went on after {run.stops} stops and ended with {status}: {self.said}")

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8").strip()

    def stop_once(self, run: Run, how: str, seconds: float) -> bool:
        """Stop a run at some moment; False where it had ended before."""
        pid = run.start(self.log)
        try:
            status = wait(pid, self.chance.uniform(0.1, seconds))
            if status is None and how == "save":
                while not run.is_saving() and status is None:
                    status = wait(pid, 0.0)
            if status is None:
                number = {"term": signal.SIGTERM, "int": signal.SIGINT}.get(how, signal.SIGKILL)
                os.kill(pid, number)
                status = wait(pid, LIMIT)
        finally:
            stop(pid)
        if status == 0:
            return False
        if status == -signal.SIGKILL:
            self.counts["kills"] += 1
            self.counts["kills inside a save"] += run.is_saving()
        elif how in ("term", "int") and self.said.startswith("Stopped and saved. "):
            if status != {"term": 143, "int": 130}[how] or self.said.count("\n"):
                raise KillError(f"after {how} the status was {status}, and it said: {self.said}")
            self.counts[how] += 1
        # before the first step there is nothing to save
        elif not (status in (-signal.SIGTERM, 130) and self.said in ("", "Stopped.")):
            raise KillError(f"{run.folder.name} ended with {status}: {self.said}")
        run.stops += 1
        return True

    def move(self, run: Run) -> None:
        """Now and then a run goes on in another place."""
        if run.folder.exists() and self.chance.random() < 0.2:
            self.counts["moves"] += 1
            run.folder = run.folder.rename(run.folder.with_name(f"{run.folder.name}m"))

    def stop_often(self, wanted: Counter[str]) -> None:
        """Runs, one after the other, stopped until there were enough stops of each kind."""
        at = 0
        while any(self.counts[name] < count for name, count in wanted.items()):
            kind = self.kinds[at % len(self.kinds)]
            whole, seconds = self.find_whole(kind)
            run, at, is_going = self.begin(kind), at + 1, True
            if at > 20 + wanted.total():
                raise KillError(f"{at - 1} runs ended too soon for the stops that were wanted: {dict(self.counts)}")
            while is_going and any(self.counts[name] < count for name, count in wanted.items()):
                missing = [name for name, count in wanted.items() if self.counts[name] < count]
                how = {"kills": "kill", "kills inside a save": "save"}.get(name := self.chance.choice(missing), name)
                is_going = self.stop_once(run, how, 0.6 * seconds)
                self.move(run)
            self.finish(run)
            compare(run.folder, whole)
            print(f"{run.folder.name} ({kind}): stopped {run.stops} times, the same end", flush=True)
            shutil.rmtree(run.folder)

    def fill(self) -> None:
        """A run on a disk that becomes full, at the start or later; then there is room again."""
        kind = self.chance.choice(list(self.kinds))
        whole, seconds = self.find_whole(kind)
        size = (whole / "resume.safetensors").stat().st_size
        # with room for curves, too
        with mount_disk(self.place / "disk", 4 * size + 2**20) as disk:
            run, is_new = self.begin(kind, disk), self.counts["full disks"] % 3 == 2
            run.save_every = 1
            if not is_new:
                while not (run.folder / "resume.safetensors").exists():
                    if not self.stop_once(run, "kill", 0.6 * seconds):
                        # it had ended before, which says nothing of disks: the machine is quicker than it was
                        shutil.rmtree(run.folder)
                        seconds /= 2
            room, filler = self.chance.randrange(size), disk / "filler"
            if disk.is_mount():
                left = os.statvfs(disk)
                filler.write_bytes(bytes(max(left.f_bavail * left.f_frsize - room, 0)))
            pid = run.start(self.log, None if disk.is_mount() else room)
            status = wait(pid, LIMIT)
            stop(pid)
            if status != 2 or os.strerror(errno.ENOSPC) not in self.said or "\n" in self.said or len(self.said) > 300:
                raise KillError(f"on a full disk the status was {status}, and it said: {self.said}")
            if is_new and run.folder.exists() and not (run.folder / "resume.safetensors").exists():
                raise KillError(f"a run without room left {sorted(os.listdir(run.folder))}")
            if run.is_saving():
                raise KillError(f"a full disk left {sorted(os.listdir(run.folder))}")
            filler.unlink(missing_ok=True)
            run.stops += 1
            self.counts["full disks"] += 1
            self.counts["full disks, truly"] += disk.is_mount()
            self.finish(run)
            compare(run.folder, whole)
            print(f"{run.folder.name} ({kind}): the disk was full, the same end", flush=True)


def stop(pid: int) -> None:
    """Let no process outlive this one."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def prepare(place: pathlib.Path) -> None:
    """The data; and all packages, once for all processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import lightning.fabric  # noqa: F401
    import torch

    import regard.cli.app
    import regard.tasks.text.pretrain
    import regard.tasks.text.translate
    import regard.views.curves  # noqa: F401
    from regard.data.grammar import list_tagged, split_polite
    from regard.data.phrasebook import draw_pairs

    # a thread would not survive the fork
    torch.set_num_threads(1)
    pairs, tagged = draw_pairs(400), list_tagged()[:8000:20]
    for name, lines in (
        ("pairs.tsv", (f"{source}\t{target}" for source, target in pairs)),
        ("texts.txt", (target for _, target in pairs)),
        ("texts.tsv", (f"{text}\t{label}" for text, label in split_polite().train[:400])),
        ("tags.txt", ("\n".join(map("\t".join, zip(*one, strict=True))) + "\n" for one in tagged)),
    ):
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m tools.kill_runs",
        description="Stop small runs at random moments, let them go on, compare every bit; status 1 where one differs.",
        epilog="examples:\n  python -m tools.kill_runs\n"
        "  python -m tools.kill_runs --kills 4 --saves 2 --terms 1 --full 1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default, what in (
        ("kills", 50, "SIGKILLs"),
        ("saves", 15, "how many of them, at least, inside a save"),
        ("terms", 10, "SIGTERMs, and as many SIGINTs"),
        ("full", 5, "full disks"),
        ("kinds", len(KINDS), "kinds of runs"),
    ):
        text = f"{what} (default {default})"
        parser.add_argument(f"--{name}", type=read_count, default=default, metavar="N", help=text)
    parser.add_argument("--only", choices=list(KINDS), help="one kind of runs alone")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other moments (default 0)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options, start = read_options(arguments), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, ExitStack() as stack:
        place = pathlib.Path(folder)
        stack.enter_context(use_own(place / "own"))
        prepare(place)
        trial = Trial(
            place, random.Random(options.seed), [options.only] if options.only else list(KINDS)[: options.kinds]
        )
        wanted = {"kills": options.kills, "kills inside a save": options.saves}
        try:
            trial.stop_often(Counter({**wanted, "term": options.terms, "int": options.terms}))
            for _ in range(options.full):
                trial.fill()
        except (KillError, DifferenceError) as problem:
            print(problem, file=sys.stderr)
            return 1
    counts = trial.counts
    print(
        f"\n{counts['kills']} kills, {counts['kills inside a save']} of them inside a save; {counts['term']} SIGTERM,"
        f" {counts['int']} SIGINT; {counts['full disks']} full disks, {counts['full disks, truly']} of them real;"
        f" {counts['moves']} moves\n{counts['runs']} runs, all with the same end to the bit"
        f" ({time.monotonic() - start:.0f} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
