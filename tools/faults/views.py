"""Faults of the views: pages that run what they should show, maps and curves the wrong way round, labels, packing.

Those of the page's scripts are seen by the tests that have a Chromium, and by no others.
"""

from tools.faults.fault import Fault

BUILD, ASSETS = "views/page/build.py", "views/page/assets"

VIEWS = [
    Fault(
        BUILD,
        "return text.translate(ESCAPES)",
        "return text",
        "a token can end the page's script",
    ),
    Fault(
        BUILD,
        '<title>{html.escape(title or "attention")}</title>',
        '<title>{title or "attention"}</title>',
        "a title becomes markup",
    ),
    Fault(
        "views/page/scenes.py",
        "return look.map[stop, start].numpy()",
        "return look.map[start, stop].numpy()",
        "edges of a graph have the weights of the way back",
    ),
    Fault(
        "views/page/blobs.py",
        "            at += array.size\n",
        "",
        "every head of the overview has the first one's picture",
    ),
    Fault(
        "views/page/tokens.py",
        "labels.append(text[at:stop])",
        "labels.append(text[start:stop])",
        "spaces between tokens are lost",
    ),
    Fault(
        "views/page/heads.py",
        "keys[h * len(keys) // count]",
        "keys[h % len(keys)]",
        "grouped heads are shown with the keys of others",
    ),
    Fault(
        "views/page/payload.py",
        "ranked = sorted(range(len(self.heads)), key=lambda k: -self.heads[k].interest)",
        "ranked = sorted(range(len(self.heads)), key=lambda k: self.heads[k].interest)",
        "a page has details of the least interesting heads",
    ),
    Fault(
        "views/labels.py",
        'in ("Cc", "Cf", "Cs",',
        'in ("Cc", "Cs",',
        "signs that turn text around stay in labels",
    ),
    Fault(
        "views/figures/map.py",
        "extent = (-0.5, columns * across - 0.5, rows * down - 0.5, -0.5)",
        "extent = (-0.5, columns * across - 0.5, -0.5, rows * down - 0.5)",
        "a map stands on its head beside its labels",
    ),
    Fault(
        "views/figures/compare.py",
        "for term in terms).mean() / 2)",
        "for term in terms).mean())",
        "a divergence is twice what it is",
    ),
    Fault(
        "views/curves.py",
        'falls = any(word in FALLING for word in name.lower().split("_"))',
        'falls = name == "loss"',
        "the worst perplexity is marked as the best",
    ),
    Fault(
        "views/braille.py",
        "y = round((high - point[1]) /",
        "y = round((point[1] - low) /",
        "curves in the terminal are upside down",
    ),
    Fault(
        f"{ASSETS}/data.js",
        "    if (rest > 0) for (let j = 0; j < kept.length; j++) kept[j] /= rest;\n",
        "",
        "page: without sinks the rest of a row does not add to one",
    ),
    Fault(
        f"{ASSETS}/data.js",
        "row[keys[at]] = weights[at];",
        "row[at - i * count] = weights[at];",
        "page: the largest weights of a row lie on its first keys",
    ),
    Fault(
        f"{ASSETS}/table.js",
        "const cells = [entry.name, entry.layer, entry.head, entropy, first, local, distance, received];",
        "const cells = [entry.name, entry.layer, entry.head, entropy, local, first, distance, received];",
        "page: two columns of the table of heads change places",
    ),
    Fault(
        f"{ASSETS}/export.js",
        """text = "'" + text;""",
        "text = text.trim();",
        "page: a token is a formula in the spreadsheet",
    ),
]
