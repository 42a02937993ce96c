"""Weighers (normalisers): how scores become weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.names import Named
from regard.lazy import export

if TYPE_CHECKING:
    from regard.core import Weigh
    from regard.weigh.entmax import Entmax, Sparsemax
    from regard.weigh.hard import Hard
    from regard.weigh.relu import Relu
    from regard.weigh.sigmoid import Sigmoid
    from regard.weigh.softmax import Softmax
    from regard.weigh.sum import Sum

__all__ = ["Entmax", "Hard", "Relu", "Sigmoid", "Softmax", "Sparsemax", "Sum"]
# the file is the class in lower case, or that of a relative
__getattr__, __dir__ = export(__name__, {name: name.lower() for name in __all__} | {"Sparsemax": "entmax"})
WEIGHS: Named[Weigh] = Named("weigh", "Weigh", __all__)
