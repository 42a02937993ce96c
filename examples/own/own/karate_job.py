"""One graph whose nodes are split by masks: who of Zachary's karate club followed whom; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.core import RegardError
from regard.data.lines import check_file, read_lines
from regard.data.split import Split, split_by_masks
from regard.tasks.training.examples import Examples
from regard.tasks.training.job import TrainingJob, check_changes

# settings of the model that the graph decides
FIXED = ("num_nodes", "labels")


@dataclass(frozen=True)
class Graph(Sequence[tuple[int, str]]):
    """One graph: edges from and to, and of each node the label and the part it is in."""

    edges: tuple[tuple[int, int], ...]
    labels: tuple[str, ...]
    parts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, node: Any) -> Any:
        return node, self.labels[node]

    def split(self) -> Split:
        """Its nodes by part: none of them is read without the graph."""
        masks: Any = {part: [x == part for x in self.parts] for part in Split._fields}
        return split_by_masks(self, masks)


def draw_club() -> Graph:
    """Zachary's karate club, of which four members are learned from."""
    from networkx import karate_club_graph

    club = karate_club_graph()
    edges = [pair for one, other in club.edges for pair in ((one, other), (other, one))]
    labels = [club.nodes[node]["club"] for node in club]
    parts = {0: "train", 33: "train", 8: "train", 1: "train", 3: "valid", 7: "valid", 29: "valid", 32: "valid"}
    return Graph(tuple(edges), tuple(labels), tuple(parts.get(node, "test") for node in club))


@dataclass(frozen=True)
class Club(Examples):
    """A graph in one file of lines: `node LABEL PART`, in order from 0, and `edge FROM TO`."""

    called: ClassVar[str] = "nodes"
    builtin: ClassVar[str] = "karate club"

    def open(self, paths: tuple[str, ...]) -> Split:
        if len(paths) != 1:
            raise RegardError(f"data must be one file with a graph, got {len(paths)}.")
        nodes, edges = list[tuple[str, str]](), list[tuple[int, int]]()
        for number, line in read_lines(check_file(paths[0])):
            match line.split():
                case ["node", label, part] if part in (*Split._fields, "-"):
                    nodes.append((label, part))
                case ["edge", one, other] if one.isdecimal() and other.isdecimal():
                    edges.append((int(one), int(other)))
                case [_, *_]:
                    raise RegardError(f"{paths[0]}, line {number} must be node LABEL PART or edge FROM TO.")
        if max((end for edge in edges for end in edge), default=0) >= len(nodes):
            raise RegardError(f"{paths[0]} has edges of nodes that it does not name, of {len(nodes)}: name all.")
        return Graph(tuple(edges), tuple(x for x, _ in nodes), tuple(x for _, x in nodes)).split()

    def draw(self) -> Split:
        return draw_club().split()


@dataclass(frozen=True)
class ClubJob(TrainingJob):
    """All that decides what a labeller of nodes learns."""

    corpus: Examples = field(default_factory=Club)
    batch_size: int | None = None
    metric: str = "accuracy"

    task: ClassVar[str] = "karate"
    trainer: ClassVar[str] = "own.karate:prepare"
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False, "accuracy": True, "f1": True}
    presets: ClassVar[tuple[str, ...]] = ()
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {"": {"lr": 1e-2}}

    def configure(self) -> tuple[Any, set[str]]:
        from own.graph_model import Config

        changes = check_changes("karate", Config, self.changes, FIXED)
        # as many of both as the graph has, in the end
        return Config(num_nodes=1, labels=("a", "b"), **changes), set(FIXED)
