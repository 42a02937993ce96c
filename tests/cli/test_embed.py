"""`regard embed`: what goes in, what comes out, and what is said of what is wrong."""

import gzip
import json
import os
import pathlib

import numpy
import pytest
import torch

from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models.bert import Bert
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.embedder import Embedder

safetensors = pytest.importorskip("safetensors.torch")

TEXTS = ["a b c", "c d", "d", ""]
CPU = ("--device", "cpu")
SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_layers": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    """A run, to be read only."""
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(3)
    lexicon = Lexicon.train(["a b c", "c d"], "words")
    config = Config(lexicon.vocab_size, position="learned", max_len=5, **SIZES)
    Encoder(config).save_pretrained(folder)
    lexicon.save(folder)
    return folder


@pytest.fixture(scope="module")
def expected(run) -> torch.Tensor:
    return Embedder.load(run, "cpu").embed(TEXTS)


def read(out: str) -> torch.Tensor:
    return torch.tensor([json.loads(line) for line in out.splitlines()])


def test_texts_a_file_and_stdin_are_the_same(command, run, expected, tmp_path):
    raw = "\n".join(TEXTS[:3]).encode()
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(raw)
    packed.write_bytes(gzip.compress(raw))
    lines = command("embed", run, *TEXTS[:3], *CPU)
    assert lines[0] == 0
    assert lines[2] == ""
    torch.testing.assert_close(read(lines[1]), expected[:3], atol=1e-6, rtol=0)
    for arguments, stdin in (((), raw), (("--input", plain), b""), (("--input", packed), b"")):
        assert command("embed", run, *arguments, *CPU, stdin=stdin) == lines
    status, out, err = command("embed", run, *CPU, stdin=b"d\n", is_typed=True)
    assert (status, err) == (0, "Sentences, one per line; Ctrl-D ends.\n")
    # rounding is another in other company
    torch.testing.assert_close(read(out), expected[2:3], atol=1e-6, rtol=0)
    assert command("embed", run, *CPU, stdin=b"") == (0, "", "")


def test_files_hold_the_same(command, run, expected, tmp_path):
    for suffix in (".npy", ".safetensors", ".jsonl"):
        path = tmp_path / "made" / f"vectors{suffix}"
        said = f"4 {'lines' if suffix == '.jsonl' else 'vectors of 8'} in {path}\n"
        assert command("embed", run, *TEXTS, *CPU, "--output", path, "--batch-size", "2") == (0, "", said)
    found = [
        torch.from_numpy(numpy.load(tmp_path / "made" / "vectors.npy", allow_pickle=False)),
        safetensors.load_file(tmp_path / "made" / "vectors.safetensors")["vectors"],
        read((tmp_path / "made" / "vectors.jsonl").read_text()),
    ]
    for vectors in found:
        torch.testing.assert_close(vectors, expected, atol=1e-6, rtol=0)
    assert sorted(os.listdir(tmp_path / "made")) == ["vectors.jsonl", "vectors.npy", "vectors.safetensors"]
    assert command("embed", run, *CPU, "--output", tmp_path / "none.npy", stdin=b"")[0] == 0
    assert numpy.load(tmp_path / "none.npy").shape == (0, 8)


def test_json(command, run, expected):
    _, out, _ = command("embed", run, *TEXTS, *CPU, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    torch.testing.assert_close(torch.tensor([row["vector"] for row in rows]), expected, atol=1e-6, rtol=0)


def test_the_nearest_are_found(command, run, expected, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:3]))
    rows = torch.nn.functional.normalize(expected, dim=-1)
    best = (rows[:3] @ rows[1]).sort(descending=True)
    arguments = ("embed", run, TEXTS[1], "--input", tmp_path / "a.txt", "--nearest", "2", *CPU)
    status, out, _ = command(*arguments)
    lines = [f"{best.values[i]:.4f}\t{TEXTS[best.indices[i]]}\t{TEXTS[1]}" for i in range(2)]
    assert (status, out.splitlines()) == (0, lines)
    assert lines[0].startswith("1.0000\tc d\t")
    found = json.loads(command(*arguments, "--json")[1])
    assert [one["text"] for one in found["nearest"]] == [TEXTS[i] for i in best.indices[:2]]
    # more than there are, and none
    assert command(*arguments[:-4], "--nearest", "9", *CPU)[1].count("\n") == 3
    (tmp_path / "a.txt").write_text("")
    assert command(*arguments) == (0, "", "")


def test_what_is_not_read_is_said(command, run):
    status, out, err = command("embed", run, "d", "a b c d a b c d", *CPU)
    assert (status, out.count("\n")) == (0, 2)
    assert err == "The end of sentence 2 is not read: this model reads 5 tokens of a text.\n"


def test_a_folder_of_hugging_face(command, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1}
    transformers.BertModel(transformers.BertConfig(vocab_size=8, **sizes)).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "b", "c"]))
    _, out, err = command("embed", f"hf:{tmp_path}", "a b", "c", *CPU)
    model, tokenizer = Bert.from_pretrained(tmp_path), WordPiece.load(tmp_path)
    with torch.no_grad():
        means = [model(torch.tensor([tokenizer.frame(tokenizer.encode(text))]))[0].mean(0) for text in ("a b", "c")]
    torch.testing.assert_close(read(out), torch.stack(means), atol=1e-6, rtol=0)
    assert err == "" or "Writing" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "--input", "x.txt"), "give sentences or --input, not both"),
        (("a", "--nearest", "2"), "--nearest is among the sentences of a file, add --input"),
        (("a", "--output", "x.pt"), "--output must end in .npy, .safetensors, .jsonl, got x.pt"),
        (("a", "--input", "x", "--nearest", "2", "--output", "x.npy"), "--nearest gives lines, let --output end in"),
        (("--input", "none.txt"), "none.txt"),
        (("a", "--device", "tpu"), "device must be auto, cpu or cuda"),
    ],
)
def test_what_does_not_go_together_is_one_line(complaint, run, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in complaint("embed", run, *arguments)
    assert os.listdir(tmp_path) == []


def test_what_is_no_model_is_one_line(complaint, run_folder, tmp_path):
    assert "is of a Seq2Seq" in complaint("embed", run_folder, "a", *CPU)
    assert "is not a folder on this machine" in complaint("embed", f"hf:{tmp_path}/none", "a", *CPU)
    assert "is not a folder on this machine" in complaint("embed", f"{tmp_path}/none", "a", *CPU)
