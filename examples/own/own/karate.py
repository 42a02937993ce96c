"""A task of one's own on one graph: a label for each node, learned from a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from own.graph_model import GraphLabeller
from own.karate_job import Club, ClubJob, Graph
from regard.core import RegardError
from regard.data.collated import Collated
from regard.data.rows import NO_LABEL
from regard.data.split import Split
from regard.models.pretrained import load_pretrained
from regard.tasks.looks.scenes import GraphScene
from regard.tasks.looks.sight import Sight
from regard.tasks.looks.token_labels import label_names
from regard.tasks.metrics.labels import report_labels
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.training.classification import ClassTask
from regard.tasks.training.device import find_device
from regard.tasks.training.held_out import find_learned
from regard.tasks.training.run import describe_parts
from regard.watching import watch


class Batch(NamedTuple):
    """A graph, and the labels of those of its nodes that count."""

    edges: Tensor
    labels: Tensor

    def to(self, device: Any) -> Batch:
        return Batch(self.edges.to(device), self.labels.to(device))


def stack_edges(graph: Graph) -> Tensor:
    """The edges of a graph, (2, count); it may have none."""
    return torch.tensor(graph.edges, dtype=torch.long).reshape(-1, 2).T


class ClubTask(ClassTask):
    """A graph whose nodes are labelled: each part is one batch of it."""

    unit = "nodes"

    def __init__(self, job: ClubJob, model: GraphLabeller, parts: Split) -> None:
        labels, self.parts = model.config.labels, parts
        train, valid = ([labels.index(label) for _, label in part] for part in (parts.train, parts.valid))
        super().__init__(model, job, parts[:2], labels=labels, train=train, valid=valid)
        self.test_digest = job.corpus.digest(parts.test)
        self.notes = [f"{describe_parts(parts, 'nodes')}."]

    def _batch(self, part: Any, rank: int = 0, world_size: int = 1) -> Collated:
        def collate(nodes: list[tuple[int, str]]) -> Batch:
            found = torch.full((len(part.source),), NO_LABEL)
            for node, label in nodes:
                found[node] = self.labels.index(label)
            return Batch(stack_edges(part.source), found)

        return Collated(part, collate, batch_size=len(part), rank=rank, world_size=world_size, what="node")

    def batches(self, rank: int, world_size: int) -> Collated:
        return self._batch(self.parts.train, rank, world_size)

    def batches_to_validate(self, rank: int, world_size: int) -> Collated:
        return self._batch(self.parts.valid, rank, world_size)

    def batches_to_judge(self) -> Collated:
        return self._batch(self.parts.test or self.parts.valid)

    def predict(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.edges)
        return logits


def prepare(job: ClubJob, parts: Split, folder: Any) -> ClubTask:
    """A model and one graph, ready to be trained in a folder."""
    graph = parts.train.source  # type: ignore[attr-defined]
    config = replace(job.configure()[0], num_nodes=len(graph), labels=tuple(sorted({*graph.labels})))
    torch.manual_seed(job.recipe.seed)
    return ClubTask(job, GraphLabeller(config), parts)


@dataclass(frozen=True)
class Member:
    """A node and its label, as the model has it."""

    node: int
    label: str

    def __str__(self) -> str:
        return f"{self.node} {self.label}"


class Labeller:
    """A trained model, and the graph that it knows."""

    def __init__(self, model: GraphLabeller, graph: Graph) -> None:
        self.model, self.graph = model, graph

    @classmethod
    def load(cls, folder: Any, device: Any = "auto") -> Labeller:
        """That of a run, with the graph it learned from; "auto" is a GPU where there is one."""
        model = load_pretrained(folder, find_device(device), kinds=(GraphLabeller,))
        return cls(model, find_learned(folder, Club).train.source)  # type: ignore[attr-defined]

    @torch.no_grad()
    def label(self) -> list[str]:
        """The label of every node."""
        edges = stack_edges(self.graph).to(self.model.output.weight.device)
        return [self.model.config.labels[k] for k in self.model(edges).argmax(-1).tolist()]

    def answer(self, nodes: Sequence[str], *, batch_size: int = 64, on_progress: Any = None) -> list[Member]:
        """The labels of some nodes, by number."""
        known = {str(node): node for node in range(len(self.graph))}
        for node in nodes:
            if node.strip() not in known:
                raise RegardError(f"a node must be a number from 0 to {len(known) - 1}, got {node!r:.40}.")
        labels = self.label()
        return [Member(known[node.strip()], labels[known[node.strip()]]) for node in nodes]


def score(run: Any, asked: Any, *, device: Any = "auto", batch_size: int = 64, bar: Bar = hide) -> Result:
    """The scores of a run on nodes: accuracy and F1, also of each label."""
    labeller = Labeller.load(run, device)
    if asked.source != labeller.graph:
        raise RegardError(f"data must be the graph that {run} learned from, which knows no other: leave --data out.")
    found, seconds = time_answers(bar, "labelling", len(asked), lambda on_progress: labeller.label())
    said, right = [found[node] for node, _ in asked], [label for _, label in asked]
    return report_labels(said, right, labeller.model.config.labels, seconds)


@torch.no_grad()
def look(labeller: Labeller, given: str | None = None, *, layers: Any = None, top: int = 16) -> Sight:
    """Whom each node attends to while it is labelled."""
    if given is not None:
        raise RegardError(f"look shows the graph that a run learned from, and no other: leave {given!r:.40} out.")
    with watch(labeller.model, layers=layers, top=top, keep=True) as seen:
        found = labeller.label()
    tokens = {"nodes": label_names([f"{node} {label}" for node, label in enumerate(found)])}
    scene = GraphScene([*labeller.graph.edges, *((node, node) for node in range(len(found)))])
    return Sight(seen, tokens, dict.fromkeys(seen, ("nodes", "nodes")), "Who attends to whom", scene=scene)
