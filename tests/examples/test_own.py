"""A package of one's own, installed: its tasks, model and score go through train, stop, resume, evaluate, look."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.models.pretrained import load_pretrained
from tools.compare_runs import compare
from tools.own_package import forget, use_own

for package in ("lightning", "torchmetrics", "matplotlib", "sklearn", "networkx", "PIL"):
    pytest.importorskip(package)

SMALL = ("--accelerator", "cpu", "--max-steps", "12", "--validate-every", "5")
TRAIN = {
    "digits": ("--limit", "96", "--batch-size", "16", "--set", "num_hiddens=8", "--set", "num_heads=2",
               "--set", "ffn_num_hiddens=8"),
    "karate": ("--set", "num_hiddens=8"),
}  # fmt: skip
TASKS = pytest.mark.parametrize("name", TRAIN)


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    with use_own(tmp_path_factory.mktemp("own")) as place:
        yield place


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bin/regard"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task that nothing stopped, to be read only."""
    folders = {name: tmp_path_factory.mktemp("runs") / name for name in TRAIN}
    for name, folder in folders.items():
        assert main(["train", name, *TRAIN[name], *SMALL, "--out", str(folder), "--quiet"]) == 0
    return folders


@pytest.fixture
def say(capsys):
    def call(*words) -> tuple[str, str]:
        status = main([os.fspath(word) for word in words])
        out, err = capsys.readouterr()
        assert status == (2 if not out and err.count("\n") == 1 else 0), err
        return out, err

    return call


@pytest.fixture
def pictures(tmp_path):
    """The first digits of scikit-learn's in files, and as they are."""
    from PIL import Image
    from sklearn.datasets import load_digits

    rows = load_digits().images[:3]
    for number, row in enumerate(rows):
        Image.fromarray((row * (255 / 16)).astype(np.uint8)).save(tmp_path / f"{number}.png")
    return [tmp_path / f"{number}.png" for number in range(len(rows))], torch.tensor(rows, dtype=torch.float64)


def test_commands_know_it_before_torch_is_loaded(own):
    code = "import sys; from regard.cli import main; main(['train', '--help']); sys.exit('torch' in sys.modules)"
    paths = os.pathsep.join([str(own), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  digits .* reads digits.*\n  karate ", done.stdout.decode(), re.M)


@TASKS
def test_stopped_and_resumed_to_the_same_bits(runs, tmp_path, monkeypatch, name):
    import own.digits
    import own.karate

    kind, seen = {"digits": own.digits.DigitsTask, "karate": own.karate.ClubTask}[name], []
    count = kind.count

    def stop(self, batch):
        seen.append(batch)
        if len(seen) == 8:
            signal.raise_signal(signal.SIGTERM)
        return count(self, batch)

    words = ["train", name, *TRAIN[name], *SMALL, "--out", str(tmp_path / "run"), "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(kind, "count", stop)
        assert main(words) == 143
    assert main(words) == 0
    compare(tmp_path / "run", runs[name])


def test_digits_are_read_scored_and_looked_at(runs, say, pictures, tmp_path):
    files, rows = pictures
    model = load_pretrained(runs["digits"]).double()
    with torch.no_grad():
        # pixels of files are whole numbers from 0 to 255
        pixels = (rows * (255 / 16)).floor() / 255
        scores = model(pixels.flatten(1)[..., None]).softmax(-1)
    found = [json.loads(line) for line in say("digits", runs["digits"], *files, "--json")[0].splitlines()]
    assert [one["label"] for one in found] == [str(k) for k in scores.argmax(-1).tolist()]
    assert [one["score"] for one in found] == pytest.approx(scores.amax(-1).tolist(), abs=1e-5)
    result = json.loads(say("evaluate", runs["digits"], "--json")[0])
    assert (result["count"], "pictures_per_second" in result) == (89, True)
    out, _ = say("look", runs["digits"], files[0], "--out", tmp_path / "a.html")
    assert out.startswith("5 heads of 3 attentions over 64 patches. The page is ")
    page = json.loads(re.search(r'id="regard-data">(.*?)</script>', (tmp_path / "a.html").read_text(), re.DOTALL)[1])
    assert (page["image"]["grid"], page["start"]["view"]) == ([8, 8], "image")
    shown, _ = say("look", runs["digits"], files[0])
    assert shown.splitlines()[0].startswith("0.png → ")
    assert set("".join(shown.splitlines()[2:])) <= set(" ░▒▓█")
    assert say("look", runs["digits"])[1] == "look needs a picture: give image.\n"
    message = f"{tmp_path / 'x.png'} is not a picture on this machine: check the name.\n"
    assert say("digits", runs["digits"], tmp_path / "x.png")[1] == message


def test_nodes_are_labelled_scored_and_looked_at(runs, say, tmp_path):
    from own.karate_job import draw_club

    club, model = draw_club(), load_pretrained(runs["karate"])
    assert model.layers[0].score == "laplace"
    assert model.layers[0].score_weight.shape == (2, 4)
    labels = [model.config.labels[k] for k in model(torch.tensor(club.edges).T).argmax(-1).tolist()]
    assert say("karate", runs["karate"], "5", "33")[0] == f"5 {labels[5]}\n33 {labels[33]}\n"
    asked = [node for node, part in enumerate(club.parts) if part == "test"]
    right = sum(labels[node] == club.labels[node] for node in asked)
    result = json.loads(say("evaluate", runs["karate"], "--json")[0])
    assert (result["count"], result["accuracy"]) == (26, pytest.approx(100 * right / 26))
    # the same graph in a file, read anew, and nodes that are none of it
    lines = [f"node {label.replace(' ', '')} {part}" for label, part in zip(club.labels, club.parts, strict=True)]
    (tmp_path / "club.txt").write_text("\n".join([*lines, *(f"edge {a} {b}" for a, b in club.edges), "edge 1\n"]))
    assert say("train", "karate", "--data", tmp_path / "club.txt", "--out", tmp_path / "new")[1] == (
        f"{tmp_path / 'club.txt'}, line {len(lines) + len(club.edges) + 1} must be node LABEL PART or edge FROM TO.\n"
    )
    assert not (tmp_path / "new").exists()
    assert say("karate", runs["karate"], "34")[1] == "a node must be a number from 0 to 33, got '34'.\n"
    out, _ = say("look", runs["karate"], "--out", tmp_path / "a.html", "--picture", tmp_path / "a.png")
    assert "6 heads of 3 attentions over 34 nodes." in out
    assert "look target is not for" in say("look", runs["karate"], "--target", "x")[1]
    assert "leave 'x' out" in say("look", runs["karate"], "x")[1]


def test_a_run_knows_its_graph_and_no_other(runs, say, tmp_path):
    file, run = tmp_path / "graph.txt", tmp_path / "run"
    nodes = [f"node {label} {part}" for part in ("train", "valid", "test") for label in "ab"]
    file.write_text("\n".join([*nodes, "edge 0 2", "edge 1 3", "edge 4 0"]))
    say("train", "karate", "--data", file, *SMALL, "--out", run, "--quiet")
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*nodes, "node a test", "edge 6 0"]))
    for name in (runs["karate"], run):
        said = f"data must be the graph that {name} learned from, which knows no other: leave --data out.\n"
        assert say("evaluate", name, "--data", other)[1] == said
    assert json.loads(say("evaluate", run, "--data", file, "--json")[0])["count"] == 2
    # one edge is another's
    file.write_text(file.read_text().replace("edge 4 0", "edge 4 1"))
    for words in (("karate", run, "0"), ("look", run)):
        assert say(*words)[1] == (
            f"{file} changed since {run} was trained, which knows the nodes as they were: restore them, or train it"
            " anew.\n"
        )
    config = json.loads((run / "config.json").read_text())
    for corpus in ("x", [1], True):
        config["training"]["corpus"] = corpus
        (run / "config.json").write_text(json.dumps(config))
        assert f"{run / 'config.json'} is damaged (" in say("karate", run, "0")[1]


def test_a_graph_without_edges_is_learned(say, tmp_path):
    (tmp_path / "graph.txt").write_text("node a train\nnode b train\nnode a valid\nnode b test")
    say("train", "karate", "--data", tmp_path / "graph.txt", *SMALL, "--out", tmp_path / "run", "--quiet")
    assert say("karate", tmp_path / "run", "3")[0] in ("3 a\n", "3 b\n")


def test_as_many_digits_are_held_out_as_one_says():
    from own.digits_job import Digits

    train, *held_out = Digits(held_out=0.2).part()
    assert all(abs(len(part) - 0.2 * 1797) < 1 for part in held_out)
    assert len(train) + sum(map(len, held_out)) == 1797


def test_digits_in_files_are_read_and_never_fetched(say, tmp_path, monkeypatch):
    from own.digits_job import Digits

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("it fetches"))
    word = "http://127.0.0.1/digits.csv"
    assert say("train", "digits", "--data", word, "--out", tmp_path / "run")[1] == (
        f"{word} does not exist: check the name.\n"
    )
    file = tmp_path / "digits.csv"
    for content in ("", "1,2,3\n", ",".join(["17"] * 65), ",".join(["1"] * 64 + ["10"])):
        file.write_text(content)
        assert say("train", "digits", "--data", file, "--out", tmp_path / "run")[1] == (
            f"{file} must have lines of 64 numbers from 0 to 16 and a digit.\n"
        )
    file.write_text("\n".join(",".join([str(k)] * 64 + [str(k)]) for k in range(3)))
    assert [(int(one.sum()), label) for one, label in Digits().open((str(file),))] == [(0, "0"), (64, "1"), (128, "2")]


def test_its_part_is_in_the_comparison(say, tmp_path):
    given = ("--parts", "parameters", "--widths", "8,16", "--out", tmp_path / "a.html")
    out, _ = say("compare", *given)
    assert re.search(r"^convolution +8 +192 *$", out, re.M)
    assert "The most are learned by GRU: 1,536 at d = 16." in (tmp_path / "a.html").read_text()
    numbers = json.loads((tmp_path / "a.json").read_text())["parts"]["parameters"]["rows"]
    assert {"kind": "attention", "d": 16, "numbers": 4 * 16**2} in numbers


def test_without_the_package_its_runs_are_refused_by_name(runs, say, own, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(own)])
    forget()
    try:
        for run, words in (("karate", "has the model_type 'own-graph'"), ("digits", "no task is called 'digits'")):
            for command in ("evaluate", "look"):
                assert words in say(command, runs[run])[1]
    finally:
        monkeypatch.undo()
        forget()
