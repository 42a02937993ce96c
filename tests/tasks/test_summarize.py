"""Sentence compression: labels and scores by hand, both kinds of run from end to end."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from regard import RegardError
from regard.data.grammar import split_short
from regard.data.words import cut_words, join_words
from regard.extras import install
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.labelling import list_labels
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.summarize import KeepTask
from regard.tasks.text.summarize_job import RewriteJob, ShortCorpus, SummarizeJob
from regard.tasks.text.summarizer import Summarizer, Summary, choose, find_ratio, keep_all, lead, score_summaries
from regard.tasks.training.machine import Machine
from regard.tasks.training.run import train

for package in ("lightning", "tokenizers", "safetensors", "torchmetrics"):
    pytest.importorskip(package)

CPU = Machine(accelerator="cpu")
PAIRS = split_short().train[:300]
TINY = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0}


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch):
    # they take longer than these runs
    monkeypatch.setattr("regard.views.draw_curves", lambda history, path: None)


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "short.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return str(file)


@pytest.fixture
def make(data):
    def call(kind=SummarizeJob, *, recipe=None, **changes):
        recipe = {"max_steps": 4, "validate_every": 2, "warmup": 0, "average": 0.0, **(recipe or {})}
        sizes = TINY if kind is SummarizeJob else {"num_hiddens": 8, "embed_size": 6, "num_layers": 1}
        options = {"corpus": ShortCorpus((data,), held_out=0.2), "changes": sizes, "batch_size": 16, **changes}
        return kind.default(recipe=recipe, **options)

    return call


def refuse(call, *args, **options):
    with pytest.raises(RegardError) as error:
        call(*args, **options)
    return str(error.value)


def test_the_corpus_is_of_pairs(data, tmp_path):
    corpus = ShortCorpus()
    assert tuple(corpus.part()) == tuple(split_short())
    assert list(corpus.open(("phrasebook",))) == split_short().test
    assert list(ShortCorpus((data,)).open((data,))) == PAIRS
    sides = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for side, texts in zip(sides, zip(*PAIRS, strict=True), strict=True):
        side.write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert list(corpus.open(tuple(map(str, sides)))) == PAIRS
    assert ShortCorpus.from_dict(json.loads(json.dumps(dataclasses.asdict(corpus)))) == corpus


def test_words_of_the_shorter_sentence_are_kept(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("The cat sat on the mat.\tcat on mat\nIt rained here.\tIt rained.\n", encoding="utf-8")
    valid = tmp_path / "b.jsonl"
    valid.write_text(json.dumps({"source": "A b", "target": "B"}) + "\n", encoding="utf-8")
    job = SummarizeJob(corpus=ShortCorpus((str(file),), (str(valid),)))
    train, asked, test = job.part()
    assert train == [
        (("The", "cat", "sat", "on", "the", "mat", "."), ("drop", "keep", "drop", "keep", "drop", "keep", "drop")),
        (("It", "rained", "here", "."), ("keep", "keep", "drop", "keep")),
    ]
    assert (asked, test) == ([(("A", "b"), ("drop", "keep"))], [])
    # the phrasebook has all three
    assert all(set(tags) <= {"keep", "drop"} for part in SummarizeJob().part() for _, tags in part[:9])


@pytest.mark.parametrize("is_framed", [False, True])
def test_scores_of_a_validation_by_hand(make, is_framed):
    job = make(changes={**TINY, "start_std": 2.0, **({"pooling": "first"} if is_framed else {})})
    parts = job.part()
    lexicon = job.train_lexicon([words for words, _ in parts.train])
    torch.manual_seed(3)
    model = job.build(lexicon, list_labels(job, parts.train)).eval()
    task = KeepTask(job, model, lexicon, parts.train, parts.valid)
    with torch.no_grad():
        found = task.validate(model, CPU.launch())
    # each sentence alone, by what is said to a user
    for wrong in (model, torch.nn.Identity()):
        said = f"Summarizer needs the lexicon by which its {type(wrong).__name__} reads, got none."
        assert refuse(Summarizer, wrong) == said
    summarizer = Summarizer(model, lexicon)
    texts = [" ".join(words) for words, _ in parts.valid]
    pairs = []
    for one, (words, tags) in zip(summarizer.summarize(texts), parts.valid, strict=True):
        assert one.words == words
        pairs += [(score >= 0.5, tag == "keep") for score, tag in zip(one.scores, tags, strict=True)]
    right, both = sum(a == b for a, b in pairs), sum(a and b for a, b in pairs)
    said, wanted = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    assert 0 < said < len(pairs)
    assert found["accuracy"] == pytest.approx(100 * right / len(pairs))
    assert found["f1"] == pytest.approx(100 * 2 * both / (said + wanted))
    assert found["kept"] == pytest.approx(100 * said / len(pairs))
    assert (task.metric, task.more_is_better) == ("f1", True)


def test_the_most_probable_words_in_their_order():
    assert choose([0.1, 0.7, 0.5, 0.49]) == (False, True, True, False)
    assert choose([0.3, 0.1, 0.2]) == (True, False, False)
    assert choose([0.3, 0.1, 0.2], 0.6) == (True, False, True)
    assert choose([0.3, 0.3, 0.3], 0.1) == (True, False, False)
    assert choose([0.9, 0.9], 1.0) == (True, True)
    assert choose([]) == choose([], 0.5) == ()


def test_a_run_that_keeps_words_is_used(make, tmp_path):
    job = make(recipe={"max_steps": 80, "validate_every": 80, "lr": 0.01}, changes={**TINY, "num_hiddens": 32})
    standing = train(job, str(tmp_path / "run"), CPU, is_shown=False)
    # words are enough to tell in nearly all telegrams
    assert standing.history[-1]["valid_f1"] > 95
    assert set(standing.history[-1]) >= {"valid_accuracy", "valid_kept"}
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert (config["training"]["task"], config["labels"]) == ("summarize", ["drop", "keep"])
    summarizer = Summarizer.load(tmp_path / "run", "cpu")
    told = []
    texts = ["Where is the bank?", "", "zzz", *(source for source, _ in PAIRS)]
    found = summarizer.summarize(texts, batch_size=7, on_progress=lambda *counts: told.append(counts))
    assert [x.source for x in found] == texts
    assert told[-1] == (len(texts), len(texts))
    assert (found[1].text, found[1].kept, found[2].text) == ("", (), "zzz")
    for one in found:
        assert one.words == tuple(word for word, _, _ in cut_words(one.source))
        assert one.text == join_words([word for word, kept in zip(one.words, one.kept, strict=True) if kept])
    asked, references = found[3:], [target for _, target in PAIRS]
    scores = [score_summaries(x, references) for x in (asked, keep_all([x.source for x in asked]))]
    assert scores[0].f1 > 95 > scores[1].f1
    half = summarizer.summarize(texts, ratio=0.5)
    assert [sum(x.kept) for x in half] == [max(1, int(len(x.words) / 2 + 0.5)) if x.words else 0 for x in half]
    assert refuse(summarizer.summarize, texts, ratio=0.0) == (
        "ratio, the share of words to keep, must lie in (0, 1], got 0.0."
    )
    assert refuse(summarizer.summarize, "one text") == (
        "texts must be a sequence of sentences, got one str: put it in a list."
    )


def test_a_run_that_writes_anew_is_used(make, tmp_path):
    pytest.importorskip("sacrebleu")
    job = make(RewriteJob, metric="exact")
    assert (job.task, job.is_shared, PairCorpus in type(job.corpus).__mro__) == ("summarize", True, True)
    train(job, str(tmp_path / "run"), CPU, is_shown=False)
    training = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["training"]
    assert (training["task"], training["has_target_tokenizer"]) == ("summarize", False)
    summarizer = Summarizer.load(tmp_path / "run", "cpu")
    found = summarizer.summarize(["introduce xi'an", ""])
    (said,) = summarizer.model.translate(["introduce xi'an"])
    assert found == [Summary("introduce xi'an", said.text, None, ("introduce", "xi'an")), Summary("", "")]
    assert refuse(summarizer.summarize, ["a"], ratio=0.5) == (
        "ratio is for a run that keeps or drops words, and this one writes anew: leave it out."
    )


def test_what_is_no_summarizer(tmp_path):
    lexicon = Lexicon.train([["a", "b"]], "spaces")
    model = Encoder(Config.preset("tiny", lexicon.vocab_size, head="tags", labels=("X", "Y"), **TINY))
    for task, message in (
        ("tag", "{} is no run of summarize, it is one of tag: name another."),
        ("summarize", "{} has no label 'keep' for a word: name another run, or train again."),
    ):
        model.save_pretrained(tmp_path, training={"task": task})
        lexicon.save(tmp_path)
        assert refuse(Summarizer.load, tmp_path) == message.format(tmp_path)


def test_scores_by_hand():
    sources = ["The cat sat on the mat.", "It rains a lot", ""]
    found = [
        Summary(sources[0], "The Cat on the mat"), Summary(sources[1], "it rains"), Summary(sources[2], ""),
    ]  # fmt: skip
    scores = score_summaries(found, ["cat on mat", "It rains", ""])
    # three of five, three of three; all; nothing for nothing
    assert scores.f1 == pytest.approx(100 * (2 * 3 / 8 + 1 + 1) / 3)
    assert scores.exact == pytest.approx(100 * 2 / 3)
    assert scores.ratio == pytest.approx(100 * 7 / 11)
    # a word counts as often as both have it
    assert score_summaries([Summary("a a b", "a a b")], ["a c"]).f1 == pytest.approx(100 * 2 / 5)
    assert [x.text for x in keep_all(sources)] == sources
    assert [x.text for x in lead(sources, 0.5)] == ["The cat sat on", "It rains", ""]
    assert lead(["It rains a lot"], 0.01)[0].kept == (True, False, False, False)
    assert find_ratio([("a b c d", "a"), ("a b", "a b")]) == 0.5
    assert refuse(find_ratio, []) == "pairs must hold at least one sentence to find their ratio, got none."
    assert refuse(score_summaries, found, ["a"]) == (
        "summaries and references must be as many, got 3 and 1: one for each."
    )
    assert refuse(score_summaries, [], []) == "summaries must hold at least one to be scored, got none."


def test_a_missing_package_is_named(make, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    task = object.__new__(KeepTask)
    assert refuse(task.open_scores, torch.device("cpu")) == (
        f"scores of words need the package torchmetrics: {install('train')}."
    )
