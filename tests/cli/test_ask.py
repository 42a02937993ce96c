"""`regard tag`, `classify`, `summarize` and `fill`: what goes in, what comes out, what is said of what is wrong."""

import gzip
import json
import shutil

import pytest

from regard.cli.ask.answers import find_longest
from regard.data.tagged import read_tagged
from regard.tasks.registry import find_task
from regard.tasks.text.classifier import Classifier
from regard.tasks.text.filler import Filler
from regard.tasks.text.summarizer import Summarizer
from regard.tasks.text.tagger import Tagger

for package in ("lightning", "torchmetrics"):
    pytest.importorskip(package)

TEXTS = ["please introduce dalian", "have you been to xi'an"]
QUICK = ("--device", "cpu")


def answer_tag(run, texts):
    return [" ".join(map("/".join, zip(one.words, one.tags, strict=True))) for one in Tagger.load(run).tag(texts)]


def answer_classify(run, texts):
    found = Classifier.load(run).classify(texts)
    return [f"{one.label}\t{one.score:.2f}\t{one.text}" for one in found]


def answer_summarize(run, texts):
    return [one.text for one in Summarizer.load(run).summarize(texts)]


ASKED = {
    "tag": ("tag", answer_tag), "classify": ("classify", answer_classify), "summarize": ("summarize", answer_summarize),
    "rewrite": ("summarize", answer_summarize),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_texts_a_file_stdin_and_typing_are_the_same(command, finished, tmp_path, name):
    run, (called, answer) = finished(name), ASKED[name]
    lines = answer(run, TEXTS)
    assert len(set(lines)) == 2 or name == "rewrite"
    expected = "".join(f"{line}\n" for line in lines)
    packed, out, raw = tmp_path / "a.txt.gz", tmp_path / "out.txt", "\n".join(TEXTS).encode()
    packed.write_bytes(gzip.compress(raw))
    assert command(called, run, *TEXTS, *QUICK)[:2] == (0, expected)
    assert command(called, run, *QUICK, stdin=raw)[:2] == (0, expected)
    assert command(called, run, "--input", packed, "--output", out, *QUICK)[:2] == (0, "")
    assert out.read_text() == expected
    status, said, err = command(called, run, *QUICK, stdin=raw, is_typed=True)
    assert (status, said) == (0, expected)
    assert err.startswith("Sentences, one per line; Ctrl-D ends.\n")
    # a line for a line
    assert command(called, run, *QUICK, "--batch-size", "1", stdin=b"\nxi'an\n")[1].count("\n") == 2
    assert command(called, run, *QUICK, stdin=b"") == (0, "", "")


def read_rows(command, *arguments):
    status, out, _ = command(*arguments, *QUICK, "--json")
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


def test_json(command, finished):
    (row,) = read_rows(command, "tag", finished("tag"), TEXTS[0])
    assert row["words"] == TEXTS[0].split()
    assert len(row["tags"]) == len(row["scores"]) == 3
    (row,) = read_rows(command, "classify", finished("classify"), TEXTS[0])
    assert sorted(row["scores"]) == ["plain", "polite", "rude"]
    assert sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert row["score"] == row["scores"][row["label"]] == max(row["scores"].values())
    assert (row["text"], row["left_out"]) == (TEXTS[0], 0)
    (row,) = read_rows(command, "summarize", finished("summarize"), TEXTS[0], "--ratio", "0.6")
    assert (row["source"], row["words"], sum(row["kept"])) == (TEXTS[0], TEXTS[0].split(), 2)
    assert row["summary"] == " ".join(word for word, kept in zip(row["words"], row["kept"], strict=True) if kept)
    assert list(read_rows(command, "summarize", finished("rewrite"), TEXTS[0])[0]) == ["source", "summary"]
    (row,) = read_rows(command, "fill", finished("pretrain"), "please ___ dalian", "--top", "2")
    ((first, second),) = row["guesses"]
    assert first["score"] >= second["score"]
    assert row["text"] == f"please {first['word']} dalian"


def test_formats_of_tags(command, finished, tmp_path):
    run, text = finished("tag"), "Isn't it far, Xi'an?"
    words, tags = (read_rows(command, "tag", run, text)[0][name] for name in ("words", "tags"))
    assert words == ["Is", "n't", "it", "far", ",", "Xi'an", "?"]
    for name, end in (("words", ".txt"), ("conllu", ".conllu")):
        out = tmp_path / f"a{end}"
        assert command("tag", run, text, "", text, *QUICK, "--format", name, "--output", out)[0] == 0
        assert list(read_tagged(out)) == [(tuple(words), tuple(tags))] * 2
    numbers = [line.split("\t")[0] for line in out.read_text().split("\n\n")[0].splitlines() if line[:1] != "#"]
    assert numbers == [str(at) for at in range(1, len(words) + 1)]
    # words that are parted already stay as they are
    (row,) = read_rows(command, "tag", run, text, "--words")
    assert row["words"] == text.split()
    # other tags have another place
    shutil.copytree(run, tmp_path / "other")
    config = tmp_path / "other" / "config.json"
    config.write_text(config.read_text().replace('"column": "upos"', '"column": "xpos"'))
    out = tmp_path / "b.conllu"
    command("tag", tmp_path / "other", text, *QUICK, "--format", "conllu", "--output", out)
    assert list(read_tagged(out, column="xpos")) == [(tuple(words), tuple(tags))]


def test_fill(command, finished):
    found = Filler.load(finished("pretrain"), "cpu").fill("___ introduce ___", 2)
    shown = ["  ".join(f"{guess.word} {guess.score:.2f}" for guess in some) for some in found.guesses]
    given = ("fill", finished("pretrain"), "___ introduce ___", "--top", "2", *QUICK)
    assert command(*given) == (0, f"{found.text}\n  {shown[0]}\n  {shown[1]}\n", "")


def test_what_is_noted(command, finished, tmp_path):
    _, _, err = command("tag", finished("tag"), "have you been", "ψ", *QUICK)
    assert err == "Parts of sentence 2 are unknown to this run.\n"
    run = tmp_path / "run"
    shutil.copytree(finished("classify"), run)
    config = run / "config.json"
    config.write_text(config.read_text().replace('"max_length": 512', '"max_length": 2'))
    _, out, err = command("classify", run, "could you introduce dalian", "you", *QUICK)
    assert out.splitlines()[0].endswith("could you introduce dalian")
    assert err == "The end of sentence 1 is not read: this run reads 2 tokens of a text.\n"


def read_longest(run) -> int:
    return json.loads((run / "config.json").read_text())["training"]["longest"]


BEYOND = "Longer than any text in training ({} tokens): {}. Expect worse answers.\n"


@pytest.mark.parametrize(
    ("name", "called"),
    [("translate", "translate"), ("tag", "tag"), ("classify", "classify"), ("summarize", "summarize"),
     ("rewrite", "summarize"), ("pretrain", "fill"), ("classify", "embed")],
)  # fmt: skip
def test_a_text_beyond_the_training_is_told(command, finished, tmp_path, name, called):
    run = finished(name)
    longest = read_longest(run)
    assert 2 < longest < 60
    first, word = "___" if called == "fill" else "you", "西安" if name == "translate" else "you"
    fits, beyond = (" ".join([first, *[word] * (count - 1)]) for count in (longest, longest + 1))
    status, _, err = command(called, run, fits, beyond, *QUICK)
    assert status == 0
    told = [line for line in err.splitlines(keepends=True) if "unknown" not in line]
    assert told == [BEYOND.format(longest, "sentence 2")]
    # a run of before says nothing, nor does one whose record is broken
    config = tmp_path / "run" / "config.json"
    shutil.copytree(run, config.parent)
    whole = config.read_text()
    for record in ('"9"', "true", "-1", "null"):
        config.write_text(whole.replace(f'"longest": {longest}', f'"longest": {record}'))
        assert find_longest(config.parent) is None
    assert "Longer" not in command(called, config.parent, beyond, *QUICK)[2]
    assert (find_longest(run), find_longest("hf:x")) == (longest, None)


def test_the_longest_text_is_that_of_the_training(finished, data):
    from regard.tasks.text.tag import TaggedCorpus

    train = TaggedCorpus((str(data("tag")),), limit=80).part().train
    assert read_longest(finished("tag")) == max(len(words) for words, _ in train)


def test_what_is_unknown_is_told_by_all(command, finished):
    for name, called in (("summarize", "summarize"), ("rewrite", "summarize"), ("pretrain", "fill"), ("tag", "embed")):
        blank = "___ " if called == "fill" else ""
        _, _, err = command(called, finished(name), f"{blank}you", f"{blank}you ψψ", *QUICK)
        assert err == "Parts of sentence 2 are unknown to this run.\n", name


COMMANDS = {"translate": "translates", "tag": "tags words", "classify": "labels texts",
            "summarize": "shortens sentences", "pretrain": "fills in words"}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_of_another_task(complaint, finished, name):
    run = finished(name)
    does, use = find_task(name).does, find_task(name).use
    assert does == COMMANDS[name]
    for other in ("translate", "tag", "classify", "summarize", "fill"):
        if other != use:
            assert complaint(other, run, "a ___", *QUICK) == f"{run} {does}: use regard {use}."


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tag", ["tag", "x", "--format", "xml"], "--format must be one of line, words, conllu, got 'xml'"),
        ("tag", ["tag", "x", "--format", "conllu", "--json"], "give --json or --format, not both"),
        ("tag", ["tag", "x", "--input", "a.txt"], "give sentences or --input, not both"),
        ("classify", ["classify", "--input", "a.txt"], "a.txt does not exist"),
        ("classify", ["classify", "x", "--output", "."], "--output must be a file, . is a folder"),
        ("classify", ["classify", "x", "--device", "gpu"], "device must be auto, cpu or cuda, got 'gpu'."),
        ("summarize", ["summarize", "x", "--ratio", "2"], "ratio, the share of words to keep, must lie in (0, 1]"),
        ("rewrite", ["summarize", "x", "--ratio", "0.5"], "ratio is for a run that keeps or drops words"),
        ("pretrain", ["fill", "x"], "the text has no blank to fill ('x')"),
    ],
)
def test_wrong_options(complaint, finished, name, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called, *rest = options
    assert message in complaint(called, finished(name), *rest)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "letters.json"])
def test_a_broken_run(complaint, finished, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished("tag"), "broken")
    (tmp_path / "broken" / file).write_bytes(b"<html>404</html>")
    assert f"broken/{file}" in complaint("tag", "broken", "x", "--output", "out.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]
    assert "nowhere" in complaint("tag", "nowhere", "x")


def test_answers_of_any_task_are_json_whatever_they_are():
    from regard.cli.ask.of_task import _write_json

    assert list(_write_json(["é", {"a": 1}, [2]])) == ['"é"', '{"a": 1}', "[2]"]
