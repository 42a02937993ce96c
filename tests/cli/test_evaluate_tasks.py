"""`regard evaluate` for runs that label, shorten and guess."""

import json
import shutil
from collections import Counter

import pytest

from regard.data.tagged import read_tagged
from regard.tasks.text.classifier import Classifier
from regard.tasks.text.pretrain_job import TextCorpus
from regard.tasks.text.summarizer import Summarizer, score_summaries
from regard.tasks.text.tagger import Tagger
from tests.cli.kinds import KINDS

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)

QUICK = ("--device", "cpu")


def read(command, *arguments):
    status, out, err = command("evaluate", *arguments, *QUICK, "--json")
    assert status == 0, err
    return json.loads(out), err


def test_tags(command, finished, data, tmp_path):
    run, file, out = finished("tag"), data("tag"), tmp_path / "out.txt"
    asked = list(read_tagged(file))[:30]
    found = Tagger.load(run, "cpu").tag([words for words, _ in asked])
    right = [a == b for one, (_, tags) in zip(found, asked, strict=True) for a, b in zip(one.tags, tags, strict=True)]
    row, err = read(command, run, "--data", file, "--limit", "30", "--output", out)
    assert (row["accuracy"], row["count"], err) == (pytest.approx(100 * sum(right) / len(right)), len(right), "")
    assert row["exact"] == sum(one.tags == tags for one, (_, tags) in zip(found, asked, strict=True))
    assert sum(label["count"] for label in row["labels"].values()) == len(right)
    assert sum(times for _, _, times in row["confusions"]) == len(right) - sum(right)
    assert len(out.read_text().splitlines()) == 30
    _, said, _ = command("evaluate", run, "--data", file, "--limit", "30", *QUICK)
    lines = said.splitlines()
    counts = Counter(tag for _, tags in asked for tag in tags)
    usual = max(sorted(counts), key=counts.get)
    assert (row["usual"], row["baseline"]) == (usual, pytest.approx(100 * counts[usual] / len(right)))
    shown = f"{sum(right)} of {len(right)}; always saying {usual}: {row['baseline']:.2f}"
    assert lines[0].split() == ["accuracy", f"{row['accuracy']:.2f}", *shown.split()]
    assert lines[1].split()[:3] == ["mean", "F1", f"{row['f1']:.2f}"]
    assert lines[4].split() == ["label", "precision", "recall", "F1", "count"]
    assert lines[5].split()[4] == str(max(label["count"] for label in row["labels"].values()))
    shown = {label: [f"{x['precision']:.2f}", f"{x['recall']:.2f}"] for label, x in row["labels"].items()}
    assert any(precision != recall for precision, recall in shown.values())
    for line in lines[5 : 5 + len(shown)]:
        assert line.split()[1:3] == shown[line.split()[0]]
    worst, answer, times = row["confusions"][0]
    assert f"Most often wrong: {answer} for {worst} ({times})" in said
    assert lines[-1].startswith("30 sentences in ")


def test_labels_that_a_run_does_not_know(command, finished, tmp_path):
    run, file = finished("classify"), tmp_path / "a.csv"
    texts = ["could you introduce dalian", "dalian", "xi'an"]
    labels = [one.label for one in Classifier.load(run, "cpu").classify(texts)]
    rows = zip(["x", *labels[1:]], texts, strict=True)
    file.write_text("mood,words\n" + "".join(f"{label},{text}\n" for label, text in rows))
    row, err = read(command, run, "--data", file, "--columns", "words,mood")
    assert (row["accuracy"], row["unknown"]) == (pytest.approx(200 / 3), {"x": 1})
    assert row["labels"]["x"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 1}
    assert err == "Labels that this run does not know count as wrong: x (1).\n"
    # without columns they are found as in training, by number
    counted = ("--data", file, "--columns", "2,1", "--limit", "1")
    assert read(command, run, *counted)[0]["unknown"] == {"mood": 1}
    assert read(command, run, *counted, "--header")[0]["unknown"] == {"x": 1}


def test_labels_are_shown_on_one_line(command, finished, tmp_path):
    run, file, out = tmp_path / "run", tmp_path / "a.tsv", tmp_path / "out.txt"
    shutil.copytree(finished("classify"), run)
    config = json.loads((run / "config.json").read_text())
    config["labels"] = [f"{label}\x1b[2J\n" for label in config["labels"]]
    (run / "config.json").write_text(json.dumps(config))
    file.write_text("dalian\tx\x1b[1m\n")
    shown = [
        *command("classify", run, "dalian", *QUICK)[1:],
        *command("evaluate", run, "--data", file, "--output", out, *QUICK)[1:],
        out.read_text(),
    ]
    assert [text.count("U+001B[2J↵") for text in shown] == [1, 0, 2, 0, 1]
    assert "x U+001B[1m".replace(" ", "") in shown[3]
    assert "\x1b" not in "".join(shown)
    assert (len(shown[0].splitlines()), len(shown[-1].splitlines())) == (1, 1)


@pytest.mark.parametrize("name", ["tag", "classify", "pretrain"])
def test_the_head_tells_what_a_model_is_for(command, complaint, finished, data, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(finished(name), run)
    entries = json.loads((run / "config.json").read_text())
    del entries["training"]["task"], entries["training"]["corpus"]
    (run / "config.json").write_text(json.dumps(entries))
    assert read(command, run, "--data", data(name), "--limit", "5")[0]["count"] > 0
    (run / "config.json").write_text(json.dumps({**entries, "head": "none"}))
    assert complaint("evaluate", run, "--data", data(name)) == (
        f"{run} has no head that answers: name a run that was trained for a task."
    )


def test_shorter_sentences(command, finished, data):
    pairs = [line.split("\t") for line in KINDS["summarize"].data.decode().splitlines()[:20]]
    for name in ("summarize", "rewrite"):
        row, _ = read(command, finished(name), "--data", data(name), "--limit", "20")
        found = Summarizer.load(finished(name), "cpu").summarize([source for source, _ in pairs])
        scores = score_summaries(found, [target for _, target in pairs])
        assert (row["f1"], row["ratio"]) == (pytest.approx(scores.f1), pytest.approx(scores.ratio))
        assert row["keep_all"]["ratio"] == 100
        # the same words, counted here, but for what stands at a hyphen
        words = [[len(side.split()) for side in pair] for pair in pairs]
        f1 = sum(2 * short / (short + long) for long, short in words) / len(words)
        assert row["keep_all"]["f1"] == pytest.approx(100 * f1, abs=1)
        assert 0 < row["lead"]["f1"] < row["keep_all"]["f1"]
    _, said, _ = command("evaluate", finished("summarize"), "--data", data(name), *QUICK)
    assert [line.split()[0] for line in said.splitlines()] == ["F1", "run", "keep", "lead", "lead", "122"]


def test_hidden_words(command, finished, data, tmp_path):
    run = finished("pretrain")
    row, _ = read(command, run, "--data", data("pretrain"))
    again, _ = read(command, run, "--data", data("pretrain"))
    assert [row[name] for name in ("perplexity", "accuracy", "count", "next")] == [
        again[name] for name in ("perplexity", "accuracy", "count", "next")
    ]
    # of the texts that validated, the words that were hidden then
    corpus = json.loads((run / "config.json").read_text())["training"]["corpus"]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for (text,) in TextCorpus.from_dict(corpus).part().valid))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = min(rows, key=lambda each: each["valid_loss"])
    for size in ("1", "64"):
        found, _ = read(command, run, "--data", tmp_path / "a.txt", "--batch-size", size)
        assert found["perplexity"] == pytest.approx(best["valid_perplexity"], rel=1e-4)
        assert found["accuracy"] == pytest.approx(best["valid_accuracy"])
    _, said, _ = command("evaluate", run, "--data", data("pretrain"), *QUICK)
    assert said.splitlines()[0].split() == ["perplexity", f"{row['perplexity']:.2f}"]


@pytest.mark.parametrize("name", ["tag", "summarize", "pretrain"])
def test_a_run_is_asked_what_it_held_out(command, complaint, finished, data, tmp_path, name):
    row, _ = read(command, finished(name))
    assert row["count"] > 0
    shutil.copytree(finished(name), tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    entries = json.loads(config.read_text())
    called = {"tag": "sentences", "summarize": "pairs"}.get(name, "texts")
    entries["training"]["corpus"]["held_out"] = 2
    config.write_text(json.dumps(entries))
    assert complaint("evaluate", tmp_path / "run") == (
        f"{config} is damaged (a corpus cannot have held_out=2): restore it, or name {called} by --data."
    )
    if name != "summarize":
        # those of a run of pairs are not needed
        assert complaint("evaluate", tmp_path / "run", "--data", tmp_path) == (
            f"{config} is damaged (a corpus cannot have held_out=2): restore it."
        )
    # rows that came later are parted anew, and what was learned from would be asked
    more = tmp_path / data(name).name
    more.write_bytes(2 * (data(name).read_bytes() + b"\n" * (name == "tag")))
    entries["training"]["corpus"] |= {"held_out": None, "data": [str(more)]}
    config.write_text(json.dumps(entries))
    assert complaint("evaluate", tmp_path / "run") == (
        f"{more} changed since {tmp_path / 'run'} was trained, so what it held out may be what it learned from:"
        f" name {called} it never saw by --data."
    )
    del entries["training"]["corpus"]
    config.write_text(json.dumps(entries))
    assert complaint("evaluate", tmp_path / "run") == (
        f"{tmp_path / 'run'} does not say what it was trained on: name {called} by --data."
    )


def test_the_phrasebook(command, finished):
    assert read(command, finished("tag"), "--data", "phrasebook", "--limit", "3")[0]["count"] > 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tag", ["--beam", "3"], "--beam is not for {}, which tags words: leave it out"),
        ("tag", ["--columns", "1,2"], "--columns is not for {}, which tags words: leave it out"),
        ("classify", ["--tokenize", "zh"], "--tokenize is not for {}, which labels texts: leave it out"),
        ("classify", ["--column", "a"], "--column is not for {}, which labels texts: leave it out"),
        ("pretrain", ["--output", "b.txt"], "--output is not for {}, which fills in words: leave it out"),
        ("summarize", ["--lowercase"], "--lowercase is not for {}, which shortens sentences: leave it out"),
        ("tag", ["--data", "nowhere.txt", "--data", "a.txt"], "nowhere.txt does not exist"),
        ("tag", ["--data", "a.txt"], "a.txt, line 1 must have 2 columns"),
        ("classify", ["--data", "a.tsv", "--columns", "0,1"], "--columns must be named as in the first row"),
        ("classify", ["--data", "a.tsv"], "a.tsv, line 1 must have at least 2 columns"),
        ("pretrain", ["--data", "empty.txt"], "empty.txt has no text"),
    ],
)
def test_complaints(complaint, finished, name, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"a.txt": b"one two\tthree\tX\n", "a.tsv": b"one\n", "empty.txt": b""}
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    assert message.format(finished(name)) in complaint("evaluate", finished(name), *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
