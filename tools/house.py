"""The house in numbers: how long its files are, imports that run in circles, asserts, and where things are named.

python -m tools.house            # of this tree
python -m tools.house OLD/src    # of another
"""

from __future__ import annotations

import ast
import pathlib
import statistics
import sys
from collections import Counter

import networkx

SOURCE = pathlib.Path(__file__).parents[1] / "src"
# what is named, as a string or by its class, and the files of its own, by a part of their path
NAMES = {
    "tasks": (
        {"translate", "tag", "classify", "summarize", "pretrain", "Translator", "Tagger", "Classifier", "Summarizer",
         "Filler", "TagJob", "ClassifyJob", "SummarizeJob", "PretrainJob"},
        ("translat", "tag", "classif", "summari", "pretrain", "fill", "registry"),
    ),
    "scores": (
        {name for x in ("Additive", "Bilinear", "Cosine", "Concat", "Gaussian", "Feature") for name in (x, x.lower())},
        ("score/",),
    ),
    "weighers": (
        {name for x in ("Relu", "Sigmoid", "Entmax", "Sparsemax", "Hard", "Sum") for name in (x, x.lower())},
        ("weigh/",),
    ),
    "models": (
        {"regard-encoder", "regard-seq2seq", "regard-transformer", "Encoder", "Seq2Seq", "Transformer"},
        ("models/encoder", "models/seq2seq", "models/transformer"),
    ),
}  # fmt: skip


def read(source: pathlib.Path) -> dict[str, ast.Module]:
    """Every file of the package, by its path."""
    root = source / "regard"
    return {str(file.relative_to(root)): ast.parse(file.read_text()) for file in sorted(root.rglob("*.py"))}


def find_places(tree: ast.Module, names: set[str]) -> int:
    """How many strings and identifiers of a file are among these names; docstrings are neither."""
    found = Counter[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)):
                # as a reference or an option has it
                found.update({value, value.rpartition(":")[2]})
            # sum and hard in lower case are no terms
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name[:1].isupper():
                found[name] += 1
    return sum(found[name] for name in names)


def list_imports(path: str, tree: ast.Module, files: set[str]) -> set[str]:
    """The files that a file imports, at once or when a function is called; for types alone does not count."""
    found = set[str]()
    typed = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    left_out = {id(inner) for node in typed for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("regard"):
            inner = (node.module or "").split(".")[1:]
            for name in node.names:
                ways = ("/".join([*inner, name.name]) + ".py", "/".join([*inner, name.name, "__init__.py"]),
                        "/".join(inner) + ".py", "/".join([*inner, "__init__.py"]))  # fmt: skip
                found.update([way for way in ways if way in files and way != path][:1])
    return found


def find_cycles(trees: dict[str, ast.Module]) -> list[set[str]]:
    """Files that import one another, directly or by others."""
    graph = networkx.DiGraph()
    for path, tree in trees.items():
        graph.add_edges_from((path, other) for other in list_imports(path, tree, {*trees}))
    return [group for group in networkx.strongly_connected_components(graph) if len(group) > 1]


def describe(source: pathlib.Path) -> list[str]:
    """All of it, a line each."""
    trees = read(source)
    lengths = {path: len((source / "regard" / path).read_text().splitlines()) for path in trees}
    longest = max(lengths, key=lambda path: lengths[path])
    asserts = sum(isinstance(node, ast.Assert) for tree in trees.values() for node in ast.walk(tree))
    lines = [
        f"{len(trees)} files, {sum(lengths.values()):,} lines, median {statistics.median(lengths.values()):.0f},"
        f" largest {longest} ({lengths[longest]})",
        f"circular imports: {[sorted(group) for group in find_cycles(trees)] or 'none'}; asserts: {asserts}",
    ]
    for kind, (names, own) in NAMES.items():
        found = {path: find_places(tree, names) for path, tree in trees.items() if not any(x in path for x in own)}
        places = {path: count for path, count in found.items() if count}
        lines.append(f"{kind} are named in {len(places)} files that are not their own, {sum(places.values())} times")
        lines += [f"    {path} {count}" for path, count in places.items()] if "-v" in sys.argv else []
    return lines


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "-v"]
    print("\n".join(describe(pathlib.Path(given[0]) if given else SOURCE)))
