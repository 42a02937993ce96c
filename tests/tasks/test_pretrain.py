"""Pre-training: pieces and pairs of texts by hand, losses by their formula, runs that others start from, blanks."""

from __future__ import annotations

import dataclasses
import json
import math
import random

import pytest
import torch

from regard import RegardError
from regard.data import BOS, EOS, PAD
from regard.data.rows import NO_LABEL
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models.bert import Bert
from regard.models.encoder import Config, Encoder
from regard.models.pretrained import load_pretrained
from regard.tasks.reading.documents import read_documents
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.reading.warm_start import open_start
from regard.tasks.text.classify import ClassifyJob
from regard.tasks.text.filler import Filler
from regard.tasks.text.pretrain import PretrainTask
from regard.tasks.text.pretrain_job import PretrainJob, TextCorpus
from regard.tasks.text.tagger import Tagger
from regard.tasks.training.folder import STATE
from regard.tasks.training.machine import Machine
from regard.tasks.training.run import train
from regard.tasks.training.state import load_state

for package in ("lightning", "tokenizers", "safetensors"):
    pytest.importorskip(package)

CPU = Machine(accelerator="cpu")
TINY = {"num_hiddens": 8, "ffn_num_hiddens": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "embed_dropout": 0.0}
chance = random.Random(5)
# texts that name their document, so that a pair tells where its parts come from
DOCUMENTS = [
    tuple(f"d{d} l{d}x{i} " + " ".join(chance.choices("abcdefgh", k=3)) for i in range(3 + d % 3)) for d in range(24)
]


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch):
    # they take longer than these runs
    monkeypatch.setattr("regard.views.draw_curves", lambda history, path: None)


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join("\n".join(lines) for lines in DOCUMENTS) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def make(data):
    def call(*, recipe=None, corpus=None, **changes):
        plain = {"warmup": 0, "schedule": "constant", "average": 0.0}
        recipe = {"max_steps": 4, "validate_every": 2, **plain, **(recipe or {})}
        corpus = TextCorpus((data,), held_out=0.2, **(corpus or {}))
        own = {**({} if changes.get("start") else TINY), **changes.pop("changes", {})}
        return PretrainJob.default(recipe=recipe, **{"corpus": corpus, "changes": own, "batch_size": 16, **changes})

    return call


def prepare(job):
    parts = job.part()
    lexicon = job.train_lexicon([text for texts in parts.train for text in texts])
    torch.manual_seed(0)
    return PretrainTask(job, job.build(lexicon), lexicon, parts.train, parts.valid)


def refuse(call, *args, **options):
    with pytest.raises(RegardError) as error:
        call(*args, **options)
    return str(error.value)


def test_the_corpus_is_of_texts_or_of_documents(data, tmp_path):
    assert list(TextCorpus().open((data,))) == [(line,) for lines in DOCUMENTS for line in lines]
    assert list(TextCorpus(is_whole=True).open((data, data))) == DOCUMENTS * 2
    (tmp_path / "a.csv").write_text("id,said\n1,one\n2,two\n", encoding="utf-8")
    assert list(TextCorpus(column="said").open((str(tmp_path / "a.csv"),))) == [("one",), ("two",)]
    corpus = TextCorpus((data,), column=1, is_whole=True)
    assert TextCorpus.from_dict(json.loads(json.dumps(dataclasses.asdict(corpus)))) == corpus
    assert [len(part) for part in TextCorpus().part()] == [8000, 500, 500]
    # documents stay together
    parts = TextCorpus((data,), held_out=0.2, is_whole=True).part()
    assert sorted(x for part in parts for x in part) == sorted(DOCUMENTS)


@pytest.mark.parametrize("is_framed", [False, True])
def test_long_texts_are_cut_and_none_of_them_is_lost(is_framed):
    texts = ["a bb c dd e ff g", "a", "zz zz", "bb c"]
    lexicon = Lexicon.train(texts[:2] + texts[3:], "words", has_letters=True, is_framed=is_framed)
    found = read_documents(lexicon, [(text,) for text in texts], 3)
    step = 3 - is_framed
    whole = lexicon.tokenizer.encode_all(texts)
    # "zz" is not known: there is nothing to guess
    pieces = [row[i : i + step] for row in (whole[0], whole[1], whole[3]) for i in range(0, len(row), step)]
    assert found.ids == [[BOS] * is_framed + piece for piece in pieces]
    assert (found.types, found.others) == (None, None)
    for ids, letters in zip(found.ids, found.letters, strict=True):
        words = lexicon.tokenizer.list_tokens(ids[is_framed:])
        assert letters == [[]] * is_framed + [[BOS, *lexicon.letters.encode(word), EOS] for word in words]


def test_half_of_the_pairs_are_of_one_document():
    lexicon = Lexicon.train([line for lines in DOCUMENTS for line in lines], "words", is_framed=True)
    texts = {tuple(lexicon.tokenizer.encode(line)): (d, i) for d, x in enumerate(DOCUMENTS) for i, line in enumerate(x)}
    found = read_documents(lexicon, DOCUMENTS, seed=3, has_next=True)
    assert len(found.ids) == sum(len(lines) - 1 for lines in DOCUMENTS)
    for ids, types, is_other in zip(found.ids, found.types, found.others, strict=True):
        middle = ids.index(EOS)
        (d, i), (e, j) = texts[tuple(ids[1:middle])], texts[tuple(ids[middle + 1 : -1])]
        assert (ids[0], ids[-1], types) == (BOS, EOS, [0] * (middle + 1) + [1] * (len(ids) - middle - 1))
        assert d != e if is_other else (d, i + 1) == (e, j)
    assert 0.3 < sum(found.others) / len(found.others) < 0.7
    assert found == read_documents(lexicon, DOCUMENTS, seed=3, has_next=True)
    assert found.others != read_documents(lexicon, DOCUMENTS, seed=4, has_next=True).others
    # in halves, with three around them
    assert max(map(len, read_documents(lexicon, DOCUMENTS, 8, has_next=True).ids)) <= 7


def test_pairs_of_word_pieces_are_framed_as_berts_are():
    vocab = {token: number for number, token in enumerate([*SPECIAL, "a", "b", "c"])}
    found = read_documents(Lexicon(WordPiece.from_vocab(vocab)), [("a", "b"), ("c c", "c")], has_next=True)
    assert found.ids[0][:3] == [vocab["[CLS]"], vocab["a"], vocab["[SEP]"]]
    assert found.types[0] == [0] * 3 + [1] * (len(found.ids[0]) - 3)
    assert found.ids[0][-1] == vocab["[SEP]"]


@pytest.mark.parametrize("has_next", [False, True])
def test_the_loss_by_its_formula(make, has_next):
    task = prepare(make(has_next=has_next, has_letters=True))
    model = Encoder(task.model.config).eval()
    model.load_state_dict(task.model.state_dict())
    task.model.eval()
    batch = max(task.batches(0, 1).walk(), key=task.count)
    with torch.no_grad():
        found = task.measure(task.model, batch)
        scores = model(batch.ids, batch.lengths, spelling=batch.spelling, types=batch.types).log_softmax(-1)
        pooled = model.encode(batch.ids, batch.lengths, spelling=batch.spelling, types=batch.types)[:, 0]
        follows = model.next_sentence(pooled).log_softmax(-1) if has_next else None
    expected = count = 0
    for row, labels in zip(scores, batch.labels.tolist(), strict=True):
        for place, label in zip(row, labels, strict=True):
            if label != NO_LABEL:
                expected, count = expected - float(place[label]), count + 1
    if follows is not None:
        others = [task.train.others[n] for n in batch.numbers.tolist()]
        expected -= count * sum(float(x[other]) for x, other in zip(follows, others, strict=True)) / len(others)
    assert task.count(batch) == count > 3
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_batch_that_hides_nothing_is_learned_from_all_the_same(make):
    task = prepare(make(has_next=True))
    batch = next(task.batches(0, 1).walk())
    batch = batch._replace(labels=torch.full_like(batch.labels, NO_LABEL))
    loss = task.measure(task.model, batch)
    loss.backward()
    assert (loss.item(), task.count(batch)) == (0, 1)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": None, "max_tokens": 40}], ids=str)
def test_a_validation_hides_the_same_whatever_its_batches(make, options):
    found = []
    for given in ({}, options):
        task = prepare(make(**given))
        with torch.no_grad():
            found.append(task.validate(task.model.eval(), CPU.launch()))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_validation_hides_the_same_and_training_other_words_each_epoch(make):
    task, other = prepare(make()), prepare(make(recipe={"seed": 1}))
    with torch.no_grad():
        fabric = CPU.launch()
        first, second = (task.validate(task.model.eval(), fabric) for _ in range(2))
    assert first == second
    assert first["perplexity"] == pytest.approx(math.exp(first["loss"]))
    masked = [next(x._batch(x.valid, 0, 1, shuffle=False).walk()).labels for x in (task, other)]
    assert torch.equal(*masked)
    # and so are its pairs of texts, for all seeds
    paired = [prepare(make(has_next=True, recipe={"seed": seed})) for seed in (0, 1)]
    assert paired[0].valid == paired[1].valid
    assert paired[0].train != paired[1].train
    rights = total = 0
    for batch in task._batch(task.valid, 0, 1, shuffle=False).walk():
        chosen = batch.labels != NO_LABEL
        with torch.no_grad():
            words, _ = task.model(batch.ids, batch.lengths, chosen=chosen, spelling=None, types=None)
        rights, total = rights + int((words.argmax(-1) == batch.labels[chosen]).sum()), total + int(chosen.sum())
    assert first["accuracy"] == pytest.approx(100 * rights / total)
    walks = [[b.labels for b in task.batches(0, 1).walk(epoch)] for epoch in (0, 0, 1)]
    assert all(map(torch.equal, walks[0], walks[1]))
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(walks[0], walks[2], strict=True))


@pytest.mark.parametrize("has_next", [False, True])
def test_a_run_ends_with_the_same_bits_when_it_was_stopped(make, tmp_path, has_next):
    job = make(has_next=has_next, has_letters=has_next, recipe={"max_steps": 2})
    train(job, str(tmp_path / "a"), CPU, is_shown=False)
    longer = dataclasses.replace(job, recipe=dataclasses.replace(job.recipe, max_steps=4))
    for name in ("a", "b"):
        standing = train(longer, str(tmp_path / name), CPU, is_shown=False)
    assert set(standing.history[-1]) >= {"valid_loss", "valid_perplexity", "valid_accuracy"}
    assert ("valid_next" in standing.history[-1]) == has_next
    states = [load_state(tmp_path / name / STATE)["model"] for name in ("a", "b")]
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())
    model = load_pretrained(tmp_path / "a")
    assert (type(model), model.config.head, model.config.has_next) == (Encoder, "words", has_next)
    settings = json.loads((tmp_path / "a" / "config.json").read_text(encoding="utf-8"))["training"]
    assert (settings["task"], settings["rate"]) == ("pretrain", 0.15)


def test_others_start_from_a_run(make, tmp_path):
    folder = str(tmp_path / "words")
    train(make(has_next=True), folder, CPU, is_shown=False)
    trunk, lexicon = open_start(folder)
    assert lexicon.is_framed
    classifier = ClassifyJob(start=folder).build(lexicon, ("bad", "good"), trunk)
    assert torch.equal(classifier.embedding.weight, trunk.embedding.weight)
    assert (classifier.config.head, classifier.config.has_next, classifier.next_sentence) == ("classes", False, None)
    # pre-training goes on with its guesses too
    more = PretrainJob(start=folder).build(lexicon, trunk=trunk)
    assert torch.equal(more.words.dense.weight, trunk.words.dense.weight)
    assert more.next_sentence is None
    job = make(start=folder, recipe={"max_steps": 1, "validate_every": 1, "lr": 1e-9})
    again = train(job, str(tmp_path / "more"), CPU, is_shown=False)
    assert again.step == 1
    assert torch.allclose(load_pretrained(tmp_path / "more").words.dense.weight, trunk.words.dense.weight, atol=1e-6)


def test_blanks_are_filled_with_the_best_words(tmp_path):
    lexicon = Lexicon.train(["the cat sat on the mat.", "a dog ran."], "words", has_letters=True)
    torch.manual_seed(1)
    model = PretrainJob(changes=TINY).build(lexicon).eval()
    filler = Filler(Encoder(model.config).eval(), lexicon)
    filler.model.load_state_dict(model.state_dict())
    found = filler.fill("the ___ sat on <mask>.", top=3)
    # by hand: the full stop stays a sign of its own, and what is hidden has no letters
    text = "the cat sat on the."
    ids, words = lexicon.tokenizer.encode(text), ["the", "cat", "sat", "on", "the", "."]
    spelled = [[] if n in (1, 4) else [BOS, *lexicon.letters.encode(word), EOS] for n, word in enumerate(words)]
    width = max(map(len, spelled))
    spelling = torch.tensor([[row + [PAD] * (width - len(row)) for row in spelled]])
    for place in (1, 4):
        ids[place] = lexicon.mask_id
    with torch.no_grad():
        logits = filler.model(torch.tensor([ids]), spelling=spelling)[0]
    for place, guesses in zip((1, 4), found.guesses, strict=True):
        chances = logits[place, 4 : lexicon.tokenizer.vocab_size].softmax(-1)
        best = chances.argsort(descending=True)[:3]
        assert [guess.word for guess in guesses] == lexicon.tokenizer.list_tokens((best + 4).tolist())
        assert [guess.score for guess in guesses] == pytest.approx(chances[best].tolist(), rel=1e-4)
    one, two = (guesses[0].word for guesses in found.guesses)
    assert found.text == f"the {one} sat on {two}."
    assert len(filler.fill("___", top=99).guesses[0]) == lexicon.tokenizer.vocab_size - 4
    assert refuse(filler.fill, "no blank") == (
        "the text has no blank to fill ('no blank'): put ___ where a word is to be predicted."
    )
    assert refuse(filler.fill, "a ___", 0) == "top must be at least 1, got 0."
    filler.max_length = 3
    assert refuse(filler.fill, "the cat sat ___") == "the text has 4 tokens, the model reads 3: shorten it."


def test_letters_of_texts_without_spaces_are_guessed(tmp_path):
    file = tmp_path / "zh.txt"
    file.write_text("".join(f"我{a}爱{b}\n" for a in "很也不都" for b in "吃喝看听写读"), encoding="utf-8")
    job = PretrainJob(corpus=TextCorpus((str(file),), held_out=0.3), changes=TINY, batch_size=8)
    job = dataclasses.replace(job, recipe=dataclasses.replace(job.recipe, max_steps=1))
    train(job, str(tmp_path / "run"), CPU, is_shown=False)
    found = Filler.load(tmp_path / "run", "cpu").fill("我很___吃")
    assert (len(found.guesses), len(found.text)) == (1, 4)


def test_what_cannot_be(make, data, tmp_path):
    assert refuse(PretrainJob, rate=1.5) == "rate, the fraction of the tokens to mask, must lie in (0, 1), got 1.5."
    assert refuse(PretrainJob, metric="f1") == "metric must be one of loss, accuracy, got 'f1'."
    assert refuse(PretrainJob, changes={"has_next": True}) == (
        "has_next=True cannot be where has_next is False: leave it out."
    )
    assert refuse(PretrainJob, has_next=True, changes={"pooling": "mean"}) == (
        "pooling='mean' cannot be where has_next is True: leave it out."
    )
    assert refuse(PretrainJob(has_next=True).part) == (
        "the phrasebook has no documents, and has_next needs some: name a file of texts."
    )
    lexicon = Lexicon.train(["a b"], "words")
    needs = (
        "has_next needs two documents or more, one of them of two texts, to learn from and to validate by, got 1: part"
        " them by blank lines."
    )
    assert refuse(read_documents, lexicon, [("a", "b")], has_next=True) == needs
    assert refuse(read_documents, lexicon, [("a",), ("b",)], has_next=True) == needs.replace("got 1", "got 2")
    assert refuse(read_documents, lexicon, [("a", "b")], 4, has_next=True) == (
        "max_length and max_tokens must be 5 or more to read anything, got 4."
    )
    (tmp_path / "valid.txt").write_text("zzz\n", encoding="utf-8")
    asked = make(corpus={"valid": (str(tmp_path / "valid.txt"),)})
    assert refuse(prepare, asked) == (
        "batches need a validation text for each of 1 processes, got 0 validation texts, 0 of them too long: give more,"
        " or raise max_length and max_tokens."
    )
    train(make(recipe={"max_steps": 1}), str(tmp_path / "run"), CPU, is_shown=False)
    assert refuse(Tagger.load, tmp_path / "run") == (
        f"{tmp_path / 'run'} is no run that gives tags, it is one of pretrain: name another."
    )


@pytest.mark.parametrize("has_next", [False, True])
def test_a_bert_reads_on(make, tmp_path, has_next):
    pieces = [*SPECIAL, *"abcdefghl", "##x", *(f"##{number}" for number in range(10))]
    vocab = {token: number for number, token in enumerate(pieces)}
    config = Config(
        len(vocab), head="words", position="learned", max_len=16, num_types=2, pooling="first", has_pooler=True,
        has_next=True, **TINY,
    )  # fmt: skip
    bert = Bert(config)
    for name, model in (("bert", bert), ("headless", Bert(dataclasses.replace(config, head="none", has_next=False)))):
        model.save_pretrained(tmp_path / name)
        WordPiece.from_vocab(vocab).save(tmp_path / name / "tokenizer.json")
    start = f"hf:{tmp_path / 'bert'}"
    job = make(start=start, has_next=has_next, recipe={"max_steps": 1, "validate_every": 1, "lr": 1e-9})
    train(job, str(tmp_path / "run"), CPU, is_shown=False)
    found = load_pretrained(tmp_path / "run")
    # what nothing asks is left behind
    assert (found.config.has_next, found.config.has_pooler) == (has_next, has_next)
    assert torch.allclose(found.words.bias, bert.words.bias, atol=1e-6)
    assert torch.allclose(found.embedding.weight, bert.embedding.weight, atol=1e-6)
    if has_next:
        assert torch.allclose(found.next_sentence.weight, bert.next_sentence.weight, atol=1e-6)
    said = [Filler.load(name, "cpu").fill("a [MASK] c", 2) for name in (start, tmp_path / "run")]
    assert [x.word for x in said[0].guesses[0]] == [x.word for x in said[1].guesses[0]]
    headless = f"hf:{tmp_path / 'headless'}"
    assert refuse(Filler.load, headless, "cpu") == (
        f"{headless} has no head that predicts masked words: name a BERT for pre-training or masked words."
    )
