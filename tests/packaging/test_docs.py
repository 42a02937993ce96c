"""Every example in README, docs and docstrings runs and prints what it says, and every link of theirs leads somewhere.

Examples in a page share their names from top to bottom, and start with none: a reader can paste them.
Examples in a docstring know what their module knows, and all that `regard` and the term rooms offer.
"""

import doctest
import importlib
import pathlib
import re
from urllib.parse import unquote

import pytest
import torch

import regard

ROOT = pathlib.Path(__file__).parents[2]
SRC = ROOT / "src"
README = ROOT / "README.md"
PAGES = [README, ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(SRC.rglob("*.md"))]
# importing a __main__ would run it
MODULES = [path for path in sorted((SRC / "regard").rglob("*.py")) if path.name != "__main__.py"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CODE = re.compile(r"^[ ]*```.*?^[ ]*```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"""(?:\]\(\s*<?|(?:src|href)="|^\[[^\]]+\]:\s*)(?P<place>[^\s)>"]+)""", re.MULTILINE)
BLOCK = re.compile(r"^(?P<indent>[ ]*)```python\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


def page_test(text: str, name: str) -> doctest.DocTest:
    """All ```python blocks of a page that hold >>>, as one test; the rest blanked so that line numbers stay true."""
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        if ">>>" in block["body"]:
            first = text.count("\n", 0, block.start("body"))
            body = block["body"].splitlines()
            lines[first : first + len(body)] = body
    return doctest.DocTestParser().get_doctest("\n".join(lines), {}, name, name, 0)


def module_tests(module) -> list[doctest.DocTest]:
    names = {"torch": torch, "regard": regard, **{name: getattr(regard, name) for name in regard.__all__}}
    for room in (regard.score, regard.weigh, regard.mask, regard.bias, module):
        names |= {name: thing for name, thing in vars(room).items() if not name.startswith("__")}
    return doctest.DocTestFinder().find(module, module.__name__, globs={**names, "__name__": module.__name__})


def run(tests: list[doctest.DocTest]) -> tuple[int, str]:
    """How many examples ran, and what went wrong."""
    torch.manual_seed(0)
    runner, report = doctest.DocTestRunner(optionflags=FLAGS, verbose=False), []
    for test in tests:
        runner.run(test, out=report.append)
    return runner.tries, "".join(report)


def short(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_page(page, monkeypatch):
    # as a reader runs it, who has no use for Triton's interpreter
    monkeypatch.setattr("regard.engine.backends.fused._is_interpreted", lambda: False)
    ran, report = run([page_test(page.read_text(encoding="utf-8"), short(page))])
    assert not report, report
    # a first page with nothing to try would pass for the wrong reason
    assert ran or page != README, "README.md has no examples"


def find_lost(text: str, folder: pathlib.Path) -> list[str]:
    """Relative links and images of a page that lead nowhere; what stands in code is none."""
    plain = CODE.sub("", text)
    places = [match["place"] for match in LINK.finditer(plain) if not re.match(r"[a-z]+:", match["place"])]
    return [place for place in places if (name := place.partition("#")[0]) and not (folder / unquote(name)).exists()]


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links(page):
    assert find_lost(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_lost_link_is_found(tmp_path):
    (tmp_path / "a b.md").write_text("")
    good = "[a](a%20b.md), [part](#part), [web](https://x.y/z.md), [mail](mailto:a@b.c), `[code](no)`\n"
    good += "```\n[code](no)\n```\n"
    assert find_lost(good, tmp_path) == []
    page = good + '![x](no.png "title") [y](sub/no.md#part)\n<img src="no.svg" width="3">\n[z]: no.txt\n'
    assert find_lost(page, tmp_path) == ["no.png", "sub/no.md#part", "no.svg", "no.txt"]


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_docstrings(path):
    name = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    _, report = run(module_tests(importlib.import_module(name)))
    assert not report, report


PLANTED = """Text.

```python
>>> one = 1
```

Outside of any block: >>> 1 / 0

```python
>>> one + 1
{}
```

```python
1 / 0
```
"""


def test_a_true_page_passes():
    assert run([page_test(PLANTED.format(2), "page")]) == (2, "")


def test_a_false_page_fails_at_its_line():
    ran, report = run([page_test(PLANTED.format(3), "page")])
    assert ran == 2
    assert "line 10" in report
    assert "Got:\n    2" in report


def test_a_page_without_examples_has_none():
    assert run([page_test("Only text.\n\n```python\nx = 1\n```\n", "page")]) == (0, "")
