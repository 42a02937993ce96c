"""Rules every source file keeps: nothing is unpickled, evaluated or fetched, and a file fits one sitting."""

import ast
import pathlib

import pytest

SRC = pathlib.Path(__file__).parents[2] / "src" / "regard"
FILES = sorted(SRC.rglob("*.py"))
MOST_LINES = 350
VAGUE = {"utils.py", "common.py", "helpers.py"}

# a name bans all that lies under it
BANNED = {
    *("pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"),
    *("eval", "exec", "builtins.eval", "builtins.exec"),
    *("torch.load", "torch.hub", "yaml.load", "yaml.unsafe_load", "yaml.full_load"),
    *("socket", "urllib", "http", "ftplib", "requests", "httpx", "aiohttp"),
}
# options that open the same doors elsewhere; naming one to switch it off is fine
OPTIONS = {"allow_pickle", "trust_remote_code"}
BUILTINS = {"eval", "exec", "__import__"}
IMPORTERS = {"importlib.import_module", "__import__"}


def is_banned(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:n]) in BANNED for n in range(1, len(parts) + 1))


def violations(source: str) -> list[str]:
    """What `source` does that no file here may, as "line: name"."""
    nodes = list(ast.walk(ast.parse(source)))
    # local name -> full name, so that `import torch as t; t.load` is seen, and a variable called `requests` is not
    known = {name: name for name in BUILTINS}
    used: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                known[alias.asname or root] = alias.name if alias.asname else root
                used.append((node.lineno, alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                used.append((node.lineno, f"{node.module}.{alias.name}"))

    def full_name(node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := full_name(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            used.append((node.lineno, full_name(node)))
        elif isinstance(node, ast.Call) and full_name(node.func) in IMPORTERS:
            used += [(node.lineno, str(arg.value)) for arg in node.args if isinstance(arg, ast.Constant)]

    found = {(line, name) for line, name in used if is_banned(name)}
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg in OPTIONS:
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                found.add((node.value.lineno, node.arg))
        # options handed on in a dict: {"allow_pickle": True}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OPTIONS:
            found.add((node.lineno, node.value))
    return [f"{line}: {name}" for line, name in sorted(found)]


def short(path: pathlib.Path) -> str:
    return str(path.relative_to(SRC))


def test_there_is_source_to_look_at():
    assert SRC / "__init__.py" in FILES


def test_every_file_keeps_the_rules():
    texts = {short(path): path.read_text(encoding="utf-8") for path in FILES}
    assert {name: found for name, text in texts.items() if (found := violations(text))} == {}
    assert [name for name, text in texts.items() if len(text.splitlines()) > MOST_LINES] == []
    assert [short(path) for path in FILES if path.name in VAGUE] == []


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle.loads"),
        ("import torch\ntorch.load('x')", "torch.load"),
        ("import torch as t\nt.load('x')", "torch.load"),
        ("from torch import load\nload('x')", "torch.load"),
        ("import torch\nread = torch.load", "torch.load"),
        ("import torch.nn\ntorch.hub.load('x', 'y')", "torch.hub.load"),
        ("eval('1')", "eval"),
        ("def f():\n    exec('1')", "exec"),
        ("import builtins\nbuiltins.eval('1')", "builtins.eval"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("load('x', **{'allow_pickle': True})", "allow_pickle"),
        ("import yaml\nyaml.load('x')", "yaml.load"),
        ("make('x', trust_remote_code=flag)", "trust_remote_code"),
        ("import socket", "socket"),
        ("import urllib.request", "urllib.request"),
        ("def f():\n    import requests", "requests"),
        ("from http import client", "http.client"),
        ("import importlib\nimportlib.import_module('pickle')", "pickle"),
        ("__import__('socket')", "socket"),
    ],
)
def test_the_scanner_sees(planted, name):
    assert any(line.endswith(f": {name}") for line in violations(planted))


@pytest.mark.parametrize(
    "innocent",
    [
        '"""Never use pickle or eval()."""',
        "model.eval()",
        "requests = [1]\nrequests.append(2)",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import yaml\nyaml.safe_load('x')",
        "import torch\ntorch.loading = 1",
    ],
)
def test_the_scanner_lets_pass(innocent):
    assert violations(innocent) == []
