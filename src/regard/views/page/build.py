"""The HTML document: one file, one script, one style, and a content security policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

# in this order: what a script uses at once stands before it
SCRIPTS = (
    "data.js", "state.js", "terms.js", "draw.js", "grid.js", "plot.js", "map.js", "compare.js", "tokens.js", "flow.js",
    "text.js", "arcs.js", "align.js", "image.js", "graph.js", "table.js", "export.js", "keys.js", "focus.js", "main.js",
)  # fmt: skip
STYLES = ("page.css", "views.css")
WORDS = ("words.json", "words2.json", "terms.json")
FOLDER = pathlib.Path(__file__).parent / "assets"
# what ends a script, begins markup or ends a line, as JSON and JavaScript both read it
ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def assemble(payload: Mapping[str, Any], stores: Sequence[str]) -> str:
    """The whole page as HTML.

    >>> text = assemble({"title": "</title><script>alert(1)</script>", "lang": "en"}, ["q80AAA=="])
    >>> text.count("<script>"), "alert(1)<" in text, 'id="regard-blob-0"' in text
    (1, False, True)
    """
    script, style = read_script(), read_style()
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )
    # half a surrogate pair is no character, and no file could hold it
    title = str(payload["title"]).encode(errors="replace").decode()
    blobs = "\n".join(
        f'<script type="text/plain" class="regard-blob" id="regard-blob-{k}">{store}</script>'
        for k, store in enumerate(stores)
    )
    return f"""<!DOCTYPE html>
<html lang="{html.escape(str(payload["lang"]))}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title or "attention")}</title>
<style>{style}</style>
</head>
<body>
<main id="regard-page"></main>
<script type="application/json" id="regard-data">{write_json(payload)}</script>
{blobs}
<script>{script}</script>
</body>
</html>
"""


def measure_rest(payload: Mapping[str, Any]) -> int:
    """The size of a page in bytes without its arrays, their names included."""
    names = 800 * len(payload["entries"])
    return sum(len(text.encode()) for text in (read_script(), read_style(), write_json(payload))) + names


def read_script() -> str:
    """All JavaScript as one function that runs at once; the words of the interface are a constant of it."""
    words = {key: word for name in WORDS for key, word in json.loads(read_asset(name)).items()}
    parts = [f"const WORDS = {write_json(words)};", *map(read_asset, SCRIPTS)]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"


def read_style() -> str:
    return "\n".join(map(read_asset, STYLES))


def read_asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The hash of a script or a style, as a content security policy names it.

    >>> digest("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_json(data: Any) -> str:
    """JSON that is valid (no NaN) and safe inside HTML.

    >>> write_json({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script\\\\u003e","b":null}'
    """
    text = json.dumps(_clean(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text) if _has_halves(text) else text
    return text.translate(ESCAPES)


def _has_halves(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _clean(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _clean(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_clean(value) for value in data]
    return data
