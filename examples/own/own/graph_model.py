"""A model of one's own: attention along the edges of one graph, a label for each node."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import torch
from torch import Tensor, nn

from regard.layers import SelfAttention
from regard.mask import Edges
from regard.models.config import ModelConfig, setting
from regard.models.pretrained import Pretrained
from regard.score import SCORES


@dataclass(frozen=True)
class Config(ModelConfig):
    """What a `GraphLabeller` is made of."""

    num_nodes: int = setting(MISSING, "nodes of the graph")
    labels: tuple[str, ...] = setting(MISSING, "the labels to predict, in order")
    num_hiddens: int = setting(32, "width of the hidden states")
    num_heads: int = setting(2, "attention heads; must divide num_hiddens")
    num_layers: int = setting(3, "number of layers")
    score: str = setting("laplace", "attention score of a query and a key", SCORES)
    dropout: float = setting(0.3, "dropout on the hidden states")


class GraphLabeller(Pretrained):
    """Nodes that attend to their neighbours, and to themselves: the logits of each node's label.

    >>> model = GraphLabeller(Config(num_nodes=3, labels=("a", "b"), score="dot"))
    >>> model(torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    model_type, config_class = "own-graph", Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, d = config, config.num_hiddens
        self.embedding = nn.Embedding(config.num_nodes, d)
        self.layers = nn.ModuleList(
            SelfAttention(d, config.num_heads, score=config.score) for _ in range(config.num_layers)
        )
        self.dropout, self.output = nn.Dropout(config.dropout), nn.Linear(d, len(config.labels))

    def forward(self, edges: Tensor) -> Tensor:
        """Logits (nodes, labels), by the edges (2, count) from and to."""
        loops = torch.arange(self.config.num_nodes, device=edges.device).expand(2, -1)
        sources, targets = torch.cat([edges, loops], 1)
        nodes = self.embedding.weight[None]
        for layer in self.layers:
            nodes = self.dropout(torch.tanh(layer(nodes, mask=Edges(targets, sources))))
        logits: Tensor = self.output(nodes)[0]
        return logits
