"""Faults a reader could believe in, to see whether the tests would notice them."""

from tools.faults.engine import ENGINE
from tools.faults.fault import Fault
from tools.faults.fused import FUSED
from tools.faults.masks import MASKS
from tools.faults.terms import TERMS

FAULTS: list[Fault] = [*ENGINE, *FUSED, *MASKS, *TERMS]

__all__ = ["FAULTS", "Fault"]
