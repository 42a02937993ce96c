"""Faults of the command line: statuses, streams, files, columns, what a run is scored on."""

from tools.faults.fault import Fault

CLI = [
    Fault(
        "cli/__init__.py",
        "def _complain(message: str, status: int = 2) -> int:",
        "def _complain(message: str, status: int = 1) -> int:",
        "a complaint ends with status 1",
    ),
    Fault(
        "cli/options/training.py",
        "return 128 + signal.Signals[standing.ended]",
        "return 0",
        "a run that was stopped ends with status 0",
    ),
    Fault(
        "cli/options/files.py",
        "write_whole(path, ",
        "path.write_text(",
        "answers are written over the old file",
    ),
    Fault(
        "cli/ask/tag.py",
        "enumerate(zip(one.words, one.tags, strict=True), 1)",
        "enumerate(zip(one.words, one.tags, strict=True))",
        "words of CoNLL-U are counted from 0",
    ),
    Fault(
        "tasks/training/held_out.py",
        "test = corpus.part().test",
        "test = corpus.part().valid",
        "a run is scored on what chose its weights",
    ),
    Fault(
        "cli/ask/answers.py",
        'are unknown to this run.", file=sys.stderr)',
        'are unknown to this run.")',
        "a note stands among the answers",
    ),
    Fault(
        "cli/ask/embed.py",
        "best = (table @ row).topk(min(count, len(others)))",
        "best = (table @ row).topk(min(count, len(others)), largest=False)",
        "the nearest texts are the farthest",
    ),
    Fault(
        "tasks/metrics/labels.py",
        "{x.precision:9.2f}  {x.recall:6.2f}",
        "{x.recall:9.2f}  {x.precision:6.2f}",
        "precision stands under recall",
    ),
    Fault(
        "cli/ask/translate.py",
        'yield " ".join(said.text.splitlines())',
        "yield said.text",
        "a translation may take two lines",
    ),
    Fault(
        "cli/compare.py",
        "        keep.unlink(missing_ok=True)\n",
        "        pass\n",
        "a finished comparison leaves its parts behind",
    ),
]
