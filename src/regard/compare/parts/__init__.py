"""The parts of a comparison, one file each: how it is measured, and how it is told."""
