"""`regard train … --settings`: the settings of the model that --set may change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def show_settings(job: Any) -> Iterator[str]:
    """A line for each setting of a job's model: its name, its values, its default and what it is, in columns.

    No column but the last has a space in it, and what stands under default can be given to --set as it is.
    """
    rows = [("SETTING", "VALUES", "DEFAULT", "WHAT IT IS")]
    for one in job.list_settings():
        value = one.value if isinstance(one.value, str) else json.dumps(one.value, separators=(",", ":"))
        rows.append((one.name, one.values, value, one.help))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
