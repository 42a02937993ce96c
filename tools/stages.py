"""Which tests judge a fault, in stages: its own file's, the rest of its room, then the rooms above from near to far."""

from __future__ import annotations

import pathlib
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache

from tools.faults.fault import Fault, SeedError
from tools.faults.fused import FUSED

TOP = "above everything"
DOCS = "tests/packaging/test_docs.py"
# folders of tests that are no room, and the highest room whose faults they judge
PLACES = {
    **dict.fromkeys(("conformance", "incidents", "metamorphic", "fused", "fuzz"), "engine"),
    **dict.fromkeys(("examples", "benchmarks"), TOP),
}
# slow ones that seldom tell what the others did not: after all rooms; the last runs every example of src and docs
LAST = (
    "tests/engine/test_compiled.py", "tests/conformance/test_second_derivatives.py", DOCS,
)  # fmt: skip
# plants faults of its own
LEFT_OUT = ("tests/fuzz/test_faults.py",)
TILES = ("tests/conformance/test_backends.py", "tests/conformance/test_gradients.py")
KERNELS = ("tests/fused/test_conformance.py", "tests/fused/test_edges.py")
# where the tests of a file do not bear its name
NEAR = {
    "core/draws.py": ("tests/score/test_draws.py", "tests/engine/test_errors.py"),
    "core/terms.py": ("tests/engine/test_versions.py",),
    "core/closures.py": ("tests/score/test_custom.py", "tests/score/test_draws.py", "tests/engine/test_versions.py"),
    "mask/window.py": ("tests/mask/test_rules.py",),
    "weigh/relu.py": ("tests/incidents/test_nan_shows.py",),
    **dict.fromkeys((f"engine/{name}.py" for name in ("transform", "vmap")), ("tests/engine/test_transforms.py",)),
    "engine/run.py": (
        "tests/engine/test_hooks.py",
        "tests/engine/test_versions.py",
        "tests/engine/test_double_backward.py",
    ),
    "engine/check.py": ("tests/engine/test_errors.py",),
    "engine/fold.py": ("tests/engine/test_shapes.py", "tests/engine/test_torch.py"),
    "engine/poison.py": ("tests/incidents/test_poison.py", "tests/incidents/test_nan_shows.py"),
    "engine/backends/sdpa.py": ("tests/engine/test_torch.py", "tests/incidents/test_torch.py"),
    "engine/backends/sdpa_cuda.py": ("tests/engine/test_torch_on_cuda.py",),
    **dict.fromkeys(sorted({fault.file for fault in FUSED}), KERNELS),
    **{f"engine/backends/fused/{name}.py": (f"tests/fused/test_{name}.py",) for name in ("driver", "passes")},
    **dict.fromkeys((f"engine/tiles/{name}.py" for name in ("steps", "walk", "work")), TILES),
    "engine/tiles/strips.py": ("tests/engine/test_double_backward.py", "tests/conformance/test_second_derivatives.py"),
    "weigh/sum.py": ("tests/conformance/test_gradients.py",),
    "watching/join.py": ("tests/watching/test_steps.py",),
    "watching/files.py": ("tests/watching/test_seen.py",),
    "layers/inputs.py": ("tests/layers/test_errors.py",),
    "layers/padding.py": ("tests/layers/test_every_layer.py",),
    "layers/torch_parity.py": ("tests/layers/test_multihead.py",),
    "models/seq2seq_state.py": ("tests/models/test_seq2seq.py", "tests/models/test_decode.py"),
    "views/page/build.py": ("tests/views/page/test_document.py",),
    "views/figures/map.py": ("tests/views/test_figures.py",),
    "views/figures/axes.py": ("tests/views/test_figures.py",),
    "views/braille.py": ("tests/views/test_live.py",),
    "views/page/assets/data.js": ("tests/views/page/browser/test_views.py",),
    "views/page/assets/table.js": ("tests/views/page/browser/test_views.py",),
    "views/page/assets/export.js": ("tests/views/page/browser/test_export.py",),
    "tasks/training/fit.py": ("tests/tasks/test_fit_stops.py", "tests/incidents/test_kills.py"),
    "tasks/training/state.py": ("tests/incidents/test_kills.py",),
    "tasks/training/task.py": ("tests/tasks/test_two_optimizers.py", "tests/tasks/test_fit.py"),
    "tasks/training/held_out.py": ("tests/cli/test_evaluate.py",),
    "tasks/training/classification.py": ("tests/tasks/test_label.py",),
    "tasks/metrics/labels.py": ("tests/tasks/test_scores.py", "tests/cli/test_evaluate_tasks.py"),
    "tasks/looks/scenes.py": ("tests/tasks/test_look_scenes.py",),
    "compare/report/cells.py": ("tests/compare/test_tables.py",),
    "compare/parts/puzzles.py": ("tests/compare/test_figures.py",),
    "compare/parts/paths.py": ("tests/compare/test_figures.py",),
    "cli/ask/tag.py": ("tests/cli/test_ask.py",),
    "cli/options/training.py": ("tests/cli/test_train.py",),
    "cli/train/pretrain.py": ("tests/cli/test_every_task.py",),
}


def read_rooms(root: pathlib.Path) -> list[list[str]]:
    """The rooms from the lowest to the highest, those of one level together: the contract that import-linter holds."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip(" ()") for room in level.split("|")] for level in reversed(layers)]


def list_folders(root: pathlib.Path, room: str) -> list[str]:
    """The folders of tests that judge a room: its own, and those of the rooms that may import it, from near to far."""
    levels = read_rooms(root)
    at = next((number for number, level in enumerate(levels) if room in level), None)
    if at is None:
        raise SeedError(f"pyproject.toml has no room {room!r} in its contract of layers.")
    judges = [room, *(other for level in levels[at + 1 :] for other in level), TOP]
    return [folder for judge in judges for folder in (judge, *_list_guests(judge))]


def _list_guests(room: str) -> list[str]:
    return [folder for folder, place in PLACES.items() if place == room]


def plan_stages(root: pathlib.Path, fault: Fault, first: Sequence[str] = ()) -> list[list[str]]:
    """Files of tests, each once, a list for each call of pytest; those that name the fault's module lead in each."""
    folders = [_list_tests(root / "tests" / folder, root) for folder in list_folders(root, fault.room)]
    named = f"test_{fault.path.stem}.py"
    own = [test for test in folders[0] if test.endswith(f"/{named}")]
    near = [test for test in NEAR.get(fault.file, ()) if (root / test).is_file()]
    if fault.path.suffix == ".py" and (root / DOCS).is_file():
        # its examples take no time
        own.insert(0, f"{DOCS}::test_docstrings[{fault.path}]")
    last = [test for test in LAST if test == DOCS or any(test in tests for tests in folders)]
    wanted = [test for path in first for test in _list_tests(root / path, root)]
    taken: set[str] = set()
    stages = [_take(wanted, taken), _take([*own, *near], taken)]
    module = ".".join(fault.path.with_suffix("").parts[1:]).removesuffix(".__init__")
    for tests in folders:
        tests = sorted(tests, key=lambda test: module not in _read(root / test))
        stages.append(_take([test for test in tests if test not in last], taken))
    stages.append(_take([test for test in last if (root / test).is_file()], taken))
    return [stage for stage in stages if stage]


def _take(tests: Iterable[str], taken: set[str]) -> list[str]:
    """Those that no earlier stage has."""
    fresh = [test for test in dict.fromkeys(tests) if test not in taken]
    taken.update(fresh)
    return fresh


def _list_tests(top: pathlib.Path, root: pathlib.Path) -> list[str]:
    """The files of tests in a folder, or the one that it is."""
    found = [top] if top.is_file() else sorted(top.rglob("test_*.py"))
    tests = [path.relative_to(root).as_posix() for path in found]
    return [test for test in tests if test not in LEFT_OUT]


@cache
def _read(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


def gather_tests(stages: Iterable[Sequence[str]]) -> list[list[str]]:
    """All tests of these stages, each once, by their folders: what must pass without a fault."""
    folders: dict[str, dict[str, None]] = {}
    for stage in stages:
        for test in stage:
            # the examples of one file are among all of them
            test = test.partition("::")[0]
            folders.setdefault("LAST" if test in LAST else "/".join(test.split("/")[:2]), {})[test] = None
    return [sorted(tests) for tests in folders.values()]
