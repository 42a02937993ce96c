"""`regard evaluate`: scores of a run, as `regard.tasks.metrics.translation` has them."""

import gzip
import json
import zipfile
from dataclasses import asdict
from itertools import islice

import pytest

from regard.tasks.reading.pairs import PairCorpus, open_pairs
from regard.tasks.text.translator import Translator
from regard.tasks.text.translator_scores import evaluate
from tests.cli.small import PAIRS

PAIRS = PAIRS[:5]
QUICK = ("--beam", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def expected(run_folder):
    return evaluate(Translator.load(run_folder, "cpu"), PAIRS, beam=1)


@pytest.fixture
def tsv(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return file


def test_what_is_printed(command, run_folder, tsv, expected):
    scores, _ = expected
    status, out, err = command("evaluate", run_folder, "--data", tsv, *QUICK)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["BLEU", f"{scores.bleu:.2f}", scores.bleu_signature]
    assert lines[1].split() == ["chrF2", f"{scores.chrf:.2f}", scores.chrf_signature]
    assert lines[2].split() == ["exact", "0.00", "0", "of", "5"]
    assert lines[3].startswith("5 sentences in ")


def read(command, *arguments) -> dict:
    status, out, err = command("evaluate", *arguments, *QUICK, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_every_way_to_name_pairs(command, run_folder, tsv, expected, tmp_path):
    turned, jsonl, packed, archive = (tmp_path / name for name in ("b.tsv", "c.jsonl", "d.tsv.gz", "e.zip"))
    turned.write_text("".join(f"{n}\t{target}\t{source}\n" for n, (source, target) in enumerate(PAIRS)))
    jsonl.write_text("".join(json.dumps({"zh": source, "en": target}) + "\n" for source, target in PAIRS))
    packed.write_bytes(gzip.compress(tsv.read_bytes()))
    with zipfile.ZipFile(archive, "w") as into:
        into.write(tsv, "one.tsv")
        into.write(turned, "two.tsv")
    for n, name in enumerate(("x.zh", "x.en")):
        (tmp_path / name).write_text("".join(f"{pair[n]}\n" for pair in PAIRS))
    ways = [
        ["--data", tsv],
        ["--data", turned, "--columns", "3,2"],
        ["--data", turned, "--columns", "2, 3", "--swap"],
        ["--data", jsonl, "--keys", "zh,en"],
        ["--data", packed],
        ["--data", archive, "--member", "one.tsv"],
        ["--data", tmp_path / "x.zh", "--data", tmp_path / "x.en"],
    ]
    for way in ways:
        row = read(command, run_folder, *way)
        assert row["seconds"] > 0
        assert row["sentences_per_second"] > 0
        for name in ("bleu", "chrf", "exact", "bleu_signature", "chrf_signature", "count"):
            assert row[name] == pytest.approx(getattr(expected[0], name)), way


def test_the_phrasebook(command, run_folder):
    found, _ = evaluate(Translator.load(run_folder, "cpu"), list(islice(open_pairs(["phrasebook"]), 4)), beam=1)
    row = read(command, run_folder, "--data", "phrasebook", "--limit", "4")
    assert row["count"] == 4
    assert row["chrf"] == pytest.approx(found.chrf)


def test_output_case_and_words(command, run_folder, tmp_path, expected):
    _, said = expected
    file, data = tmp_path / "out.txt", tmp_path / "a.tsv"
    data.write_text("".join(f"{x.source}\t{x.text.upper() or '-'}\n" for x in said))
    row = read(command, run_folder, "--data", data, "--lowercase", "--tokenize", "none", "--output", file)
    assert file.read_text().splitlines() == [x.text for x in said]
    assert row["exact"] == sum(bool(x.text) for x in said)
    assert "case:lc" in row["bleu_signature"]
    assert "tok:none" in row["bleu_signature"]
    assert read(command, run_folder, "--data", data)["exact"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "does not say what it was trained on: name pairs by --data."),
        (["--data", "a.tsv", "--columns", "1"], "--columns must be two with a comma between, got '1'"),
        (["--data", "a.tsv", "--columns", "0,1"], "--columns must be two numbers counted from 1, as 1,2, got '0,1'"),
        (["--data", "a.tsv", "--columns", "-1,1"], "--columns must be two numbers counted from 1"),
        (["--data", "a.tsv", "--keys", "a,"], "--keys must be two with a comma between, got 'a,'"),
        (["--data", "a.tsv", "--columns", "1,3"], "a.tsv, line 1 must have at least 3 columns"),
        (["--data", "a.tsv", "--limit", "0"], "'--limit'"),
        (["--data", "a.tsv", "--tokenize", "flores200"], "tokenize must be one of 13a, intl, zh, char, none"),
        (["--data", "a.tsv", "--output", "."], "--output must be a file, . is a folder"),
        (["--data", "a.tsv", "--member", "b"], "member='b' names a file in a .zip"),
        (["--data", "nowhere.tsv"], "nowhere.tsv does not exist"),
        (["--data", "."], ". is a folder"),
        (["--data", "empty.tsv"], "empty.tsv has no sentence pairs"),
        (["--data", "latin.tsv"], "latin.tsv, line 1 is not UTF-8"),
        (["--data", "ragged.tsv"], "ragged.tsv, line 2 must have at least 2 columns"),
        (["--data", "nul.tsv"], "nul.tsv, line 1 has a NUL byte"),
        (["--data", "bad.jsonl"], "bad.jsonl, line 2 is not JSON"),
        (["--data", "missing.jsonl"], "missing.jsonl, line 1 has no key 'target'"),
        (["--data", "cut.tsv.gz"], "cut.tsv.gz is damaged"),
        (["--data", "long.tsv"], "long.tsv, line 1 is longer than"),
        (["--data", "a.zip"], "a.zip is not a whole zip file"),
        (["--data", "a.csv"], "a.csv must end in .tsv"),
        (["--data", "a.tsv", "--data", "ragged.tsv"], "must have as many lines"),
        (["--data", "a.tsv", "--data", "a.tsv", "--data", "a.tsv"], "data must be one file of pairs or two files"),
    ],
)
def test_complaints(complaint, run_folder, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "a.tsv": "西安\txi'an\n".encode(),
        "empty.tsv": b"",
        "latin.tsv": b"\xfcber\tx\n",
        "ragged.tsv": b"a\tb\nc\n",
        "nul.tsv": b"a\0\tb\n",
        "bad.jsonl": b'{"source": "a", "target": "b"}\n{"source": \n',
        "missing.jsonl": b'{"source": "a"}\n',
        "cut.tsv.gz": gzip.compress(b"a\tb\n" * 99)[:-12],
        "long.tsv": b"x" * 1_000_001,
        "a.zip": b"PK",
        "a.csv": b"a,b\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    given = options if "--output" in options else [*options, "--output", "out.txt"]
    assert message in complaint("evaluate", run_folder, *given)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_a_run_that_is_not_there(complaint, tsv, tmp_path):
    assert "nowhere" in complaint("evaluate", tmp_path / "nowhere", "--data", tsv)


def save_with(translator, folder, corpus):
    translator.save(folder, training={"corpus": corpus})
    return folder


def test_a_run_is_asked_what_it_held_out(command, run_folder, tsv, tmp_path):
    translator = Translator.load(run_folder, "cpu")
    corpus = asdict(PairCorpus(data=(str(tsv),), held_out=0.4))
    kept = save_with(translator, tmp_path / "kept", corpus)
    test = PairCorpus.from_dict(corpus).part().test
    assert 0 < len(test) < 5
    assert read(command, kept)["count"] == len(test)
    none = save_with(translator, tmp_path / "none", asdict(PairCorpus(data=(str(tsv),), valid=(str(tsv),))))
    status, _, err = command("evaluate", none, *QUICK)
    assert (status, err) == (2, f"{none} held no pairs out of {tsv}: name others by --data.\n")
    bare = save_with(translator, tmp_path / "bare", None)
    status, _, err = command("evaluate", bare, *QUICK)
    assert (status, err) == (2, f"{bare} does not say what it was trained on: name pairs by --data.\n")


@pytest.mark.parametrize(
    "entry",
    [{"data": [5]}, {"columns": "x"}, {"keys": [1, 2]}, {"columns": [1]}, {"held_out": True}, {"held_out": 0.7},
     {"data": []}, {"limit": 0}, {"path": "a"}],
    ids=str,
)  # fmt: skip
def test_a_damaged_corpus(complaint, run_folder, tmp_path, entry):
    folder = save_with(Translator.load(run_folder, "cpu"), tmp_path / "run", {**asdict(PairCorpus()), **entry})
    ((name, value),) = entry.items()
    assert complaint("evaluate", folder, *QUICK) == (
        f"{folder / 'config.json'} is damaged (a corpus cannot have {name}={value!r}): restore it, or name pairs by"
        " --data."
    )


@pytest.mark.parametrize(
    ("target", "joiner", "cut"), [("a dog.", None, "13a"), ("我爱你。", None, "zh"), ("a do@@ g .", "@@ ", "none")]
)
def test_bleu_cuts_words_as_the_text_wants(command, run_folder, tmp_path, target, joiner, cut):
    translator = Translator.load(run_folder, "cpu")
    translator.joiner = joiner
    translator.save(tmp_path / "run")
    (tmp_path / "a.tsv").write_text(f"西安\t{target}\n")
    for way, tok in (((), cut), (("--tokenize", "auto"), cut), (("--tokenize", "intl"), "intl")):
        signature = read(command, tmp_path / "run", "--data", tmp_path / "a.tsv", *way)["bleu_signature"]
        assert f"|tok:{tok}|" in signature
