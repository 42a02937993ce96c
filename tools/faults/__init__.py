"""Faults a reader could believe in, to see whether the tests would notice them."""

from tools.faults.again import AGAIN
from tools.faults.cli import CLI
from tools.faults.compare import COMPARE
from tools.faults.data import DATA
from tools.faults.drawn import COMMAND, DRAWN
from tools.faults.engine import ENGINE
from tools.faults.equivalent import EQUIVALENT
from tools.faults.fault import Fault, SeedError
from tools.faults.fused import FUSED
from tools.faults.layers import LAYERS
from tools.faults.masks import MASKS
from tools.faults.models import MODELS
from tools.faults.tasks import TASKS
from tools.faults.terms import TERMS
from tools.faults.views import VIEWS
from tools.faults.watching import WATCHING

# from the lowest rooms up
FAULTS: list[Fault] = [
    *MASKS, *TERMS, *ENGINE, *AGAIN, *FUSED, *WATCHING, *LAYERS, *DATA, *MODELS, *VIEWS, *TASKS, *COMPARE, *CLI, *DRAWN,
]  # fmt: skip

__all__ = ["COMMAND", "DRAWN", "EQUIVALENT", "FAULTS", "Fault", "SeedError"]
