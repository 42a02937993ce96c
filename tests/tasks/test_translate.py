"""Translation as a task: losses by their formula, models and tokenizers by their job, runs from end to end."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import pytest
import torch

from regard import RegardError
from regard.data import Tokenizer
from regard.data.phrasebook import draw_pairs
from regard.tasks.reading.pairs import PairCorpus
from regard.tasks.text import translate, translate_job
from regard.tasks.text.translate import TranslateTask, build_model, train_tokenizers
from regard.tasks.text.translate_job import TranslateJob
from regard.tasks.text.translator import Translator
from regard.tasks.training.machine import Machine
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.run import train
from regard.tasks.training.state import load_state

for package in ("lightning", "tokenizers", "safetensors", "sacrebleu"):
    pytest.importorskip(package)

CPU = Machine(accelerator="cpu")
TINY = {"num_hiddens": 8, "embed_size": 6, "num_layers": 1, "dropout": 0.0}
PAIRS = draw_pairs(160)


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return str(file)


@pytest.fixture
def make(data):
    def call(model="bahdanau", *, recipe=None, corpus=None, **changes):
        corpus = PairCorpus((data,), limit=70, **(corpus or {}))
        sizes = TINY if model == "bahdanau" else {"num_hiddens": 8, "num_heads": 2, "ffn_num_hiddens": 8}
        plain = {"schedule": "constant"} if model == "bahdanau" else {}
        recipe = {"max_steps": 6, "validate_every": 3, "average": 0.0, **plain, **(recipe or {})}
        settings = {"corpus": corpus, "changes": sizes, "batch_size": 16, **changes}
        return TranslateJob.default(model, recipe=recipe, **settings)

    return call


def prepare(job: TranslateJob) -> TranslateTask:
    parts = job.corpus.part()
    source, target = train_tokenizers(job, parts.train)
    torch.manual_seed(0)
    return TranslateTask(job, Translator(build_model(job, source, target), source, target), parts)


def test_what_suits_a_model():
    assert TranslateJob.default("transformer").recipe.warmup == 1000
    assert TranslateJob.default("transformer").label_smoothing == 0.1
    job = TranslateJob.default("bahdanau")
    assert (job.recipe.schedule, job.recipe.average, job.label_smoothing) == ("cosine", 0.995, 0.1)
    assert TranslateJob.default("transformer", recipe={"lr": 0.5}, label_smoothing=0.3).label_smoothing == 0.3
    assert TranslateJob.default("transformer", recipe={"lr": 0.5}).recipe.lr == 0.5
    json.dumps(dataclasses.asdict(TranslateJob()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("model", translate_job.TranslateJob.models)
def test_the_loss_by_its_formula(make, model, smoothing):
    task = prepare(make(model, label_smoothing=smoothing))
    task.model.eval()
    batch = next(task.batches(0, 1).walk())
    assert task.count(batch) == int((batch.outputs != 0).sum())
    with torch.no_grad():
        found = task.measure(task.model, batch)
        scores = task.model(batch.source, batch.source_lengths, batch.inputs).log_softmax(-1)
    expected = 0.0
    for row, outputs in zip(scores, batch.outputs.tolist(), strict=True):
        for place, token in zip(row, outputs, strict=True):
            if token != 0:
                expected -= (1 - smoothing) * float(place[token]) + smoothing * float(place.mean())
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_the_validation_is_a_mean_over_all_tokens_without_smoothing(make):
    task = prepare(make(label_smoothing=0.2, batch_size=7))
    task.model.eval()
    total = count = 0.0
    with torch.no_grad():
        found = task.validate(task.model, CPU.launch())
        for pair in task.valid:
            (batch,) = task._batch([pair], 0, 1).walk()
            total, count = total + float(task._compare(task.model, batch, 0.0)), count + task.count(batch)
    assert found == {"loss": pytest.approx(total / count, rel=1e-5)}


@pytest.mark.parametrize("metric", ["bleu", "exact"])
def test_translations_may_decide(make, metric, monkeypatch):
    task = prepare(make(metric=metric))
    fabric = CPU.launch()
    with torch.no_grad():
        found = task.validate(task.model.eval(), fabric)
    assert (found[metric], task.more_is_better) == (pytest.approx(0.0, abs=1.0), True)

    # one that is always right
    class Said:
        def __init__(self, text):
            self.text = text

    answers = dict(task.asked)
    monkeypatch.setattr(Translator, "translate", lambda self, texts, **options: [Said(answers[x]) for x in texts])
    with torch.no_grad():
        assert task.validate(task.model, fabric)[metric] == pytest.approx(100.0)
    # one that is nearly right, in a script that has no spaces
    task.asked = [(source, "我们昨天在西安吃了面条") for source, _ in task.asked]
    answers = dict.fromkeys(answers, "我们今天在西安吃了面条")
    with torch.no_grad():
        assert (task.validate(task.model, fabric)[metric] > 50) == (metric == "bleu")
    monkeypatch.setattr(translate, "holds_parts", lambda fabric: True)
    with pytest.raises(RegardError) as error, torch.no_grad():
        task.validate(task.model, fabric)
    assert str(error.value) == f"metric must be 'loss' where the weights are sharded, got {metric!r}."


def test_tokens_by_what_the_texts_are(make):
    job = make()
    chinese, english = [source for source, _ in PAIRS], [target for _, target in PAIRS]
    assert translate._choose_kind("auto", job, chinese) == "characters"
    assert translate._choose_kind("auto", job, english) == "bpe"
    assert translate._choose_kind("auto", TranslateJob(), english) == "words"
    assert translate._choose_kind("spaces", job, chinese) == "spaces"
    # a part of the phrasebook is still of it
    assert translate._choose_kind("auto", TranslateJob(corpus=PairCorpus(limit=50)), english) == "words"


def test_one_tokenizer_for_both(make):
    apart = train_tokenizers(make("transformer"), PAIRS)
    assert apart[0] is not apart[1]
    shared = train_tokenizers(make("transformer", source_tokens="bpe", vocab_size=300), PAIRS)
    assert shared[0] is shared[1]
    model = build_model(make("transformer"), *shared)
    assert model.config.target_vocab_size is None
    asked = train_tokenizers(make(source_tokens="words", target_tokens="words", is_shared=True), PAIRS)
    assert asked[0] is asked[1]
    with pytest.raises(RegardError) as error:
        train_tokenizers(make(is_shared=True), PAIRS)
    assert str(error.value) == "a shared tokenizer needs one kind for both sides, got 'characters' and 'bpe'."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "gpt"}, "model must be one of bahdanau, transformer, got 'gpt'."),
        ({"metric": "ter"}, "metric must be one of loss, bleu, exact, got 'ter'."),
        ({"label_smoothing": 1.0}, "label_smoothing must lie in [0, 1), got 1.0."),
        ({"batch_size": 0}, "batch_size must be from 1 to 2**31, got 0."),
        ({"max_tokens": 10**20}, "max_tokens must be from 1 to 2**31, got 100000000000000000000."),
    ],
)
def test_jobs_that_make_no_sense(settings, message):
    with pytest.raises(RegardError) as error:
        TranslateJob(**settings)
    assert str(error.value) == message


def test_settings_that_make_no_model(make, monkeypatch):
    tokenizers = train_tokenizers(make(), PAIRS)
    for model, changes, message in (
        ("bahdanau", {"hiddens": 3}, "bahdanau has no setting 'hiddens' to change; it has num_hiddens, X and others."),
        ("transformer", {"pad_id": 3}, "transformer has no setting 'pad_id' to change; it has X and others."),
        ("bahdanau", {"num_layers": 10**20}, "num_layers must be at most 1000, got 100000000000000000000."),
        (
            "bahdanau",
            {"num_hiddens": 2**20, "embed_size": 2**20},
            "bahdanau cannot be made of these settings (X): make it smaller.",
        ),
    ):
        start, _, end = message.partition("X")
        with pytest.raises(RegardError) as error:
            build_model(make(model, changes=changes), *tokenizers)
        assert str(error.value).startswith(start)
        assert end in str(error.value)
        assert len(str(error.value)) <= 200


@pytest.mark.parametrize("model", translate_job.TranslateJob.models)
def test_from_end_to_end(make, tmp_path, model, capsys):
    standing = train(make(model), str(tmp_path / "run"), CPU)
    assert (standing.step, standing.ended) == (6, "steps")
    files = {".lock", "config.json", "curves.png", "metrics.jsonl", "model.safetensors", "resume.json",
             "resume.safetensors", "tokenizer.json", "target_tokenizer.json"}  # fmt: skip
    assert set(os.listdir(tmp_path / "run")) == files
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 6]
    assert rows[1]["valid_loss"] < rows[0]["valid_loss"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("70 pairs for training, 13 for validation, 13 for the test; 9 and 8 tokens on average, ")
    assert lines[1] == "Batches of 16, 5 steps per epoch, ended by max_steps: 6 steps; validation every 3 steps."
    assert len(lines) == 4
    # what was kept is what was learned
    state = load_state(tmp_path / "run" / "resume.safetensors")["model"]
    weights = Translator.load(tmp_path / "run", "cpu").model.state_dict()
    for name, x in weights.items():
        assert torch.equal(x, state[name]), name


@pytest.fixture
def _double():
    # Fabric makes what a model answers of this type, whatever the precision
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_double")
def test_against_a_plain_loop(make, tmp_path):
    job = make("transformer", recipe={"lr": 0.01, "schedule": "constant", "warmup": 0, "clip": 0.5, "max_steps": 8},
               changes={"num_hiddens": 8, "num_heads": 2, "ffn_num_hiddens": 8, "dropout": 0.0})  # fmt: skip
    train(job, str(tmp_path / "run"), dataclasses.replace(CPU, precision="64-true"), is_shown=False)
    task = prepare(job)
    model = task.model.double()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, (0.9, 0.98), weight_decay=1e-4)
    batches = [*task.batches(0, 1).walk(0), *task.batches(0, 1).walk(1)]
    for batch in batches[:8]:
        logits = model(batch.source, batch.source_lengths, batch.inputs).transpose(1, 2)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, batch.outputs, ignore_index=0, label_smoothing=0.1).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    state = load_state(tmp_path / "run" / "resume.safetensors")["model"]
    for name, x in model.state_dict().items():
        torch.testing.assert_close(state[name], x, rtol=1e-6, atol=1e-9)


def test_it_goes_on_where_data_and_folder_are_moved(make, tmp_path):
    train(make(recipe={"max_steps": 9}), str(tmp_path / "whole"), CPU, is_shown=False)
    train(make(recipe={"max_steps": 5}), str(tmp_path / "run"), CPU, is_shown=False)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    job = make(recipe={"max_steps": 9})
    shutil.move(tmp_path / "pairs.tsv", tmp_path / "renamed.tsv")
    moved = dataclasses.replace(job.corpus, data=(str(tmp_path / "renamed.tsv"),))
    standing = train(dataclasses.replace(job, corpus=moved), str(tmp_path / "moved"), CPU, is_shown=False)
    assert standing.step == 9
    states = [load_state(tmp_path / name / "resume.safetensors")["model"] for name in ("whole", "moved")]
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())
    # other sentences are another run
    (tmp_path / "renamed.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in PAIRS), encoding="utf-8")
    with pytest.raises(RegardError, match="was begun with other examples than it is given now"):
        train(dataclasses.replace(job, corpus=moved), str(tmp_path / "moved"), CPU, is_shown=False)


def test_another_precision_is_another_run(make, tmp_path):
    train(make(), str(tmp_path / "run"), CPU, is_shown=False)
    double = dataclasses.replace(CPU, precision="64-true")
    with pytest.raises(RegardError, match=r'was begun with precision="32-true", now it is "64-true": name a new'):
        train(make(), str(tmp_path / "run"), double, is_shown=False)


def test_long_pairs_are_left_out_and_said(make, tmp_path, capsys):
    train(make(max_length=8), str(tmp_path / "run"), CPU)
    said = capsys.readouterr().err.splitlines()[1]
    assert said.endswith(" of 70 pairs are too long for max_length or max_tokens: left out.")
    assert 0 < int(said.split()[0]) < 70


@pytest.mark.parametrize("change", [{"max_length": 1}, {"max_tokens": 2}, {"changes": {"hiddens": 1}}])
def test_what_cannot_work_leaves_nothing(make, tmp_path, change):
    with pytest.raises(RegardError):
        train(make(**change), str(tmp_path / "runs" / "x"), CPU, is_shown=False)
    assert not (tmp_path / "runs").exists()


def test_a_damaged_tokenizer(make, tmp_path):
    train(make(), str(tmp_path / "run"), CPU, is_shown=False)
    for name in ("target_tokenizer.json", "tokenizer.json"):
        file = tmp_path / "run" / name
        before = file.read_bytes()
        file.write_bytes(before[:40])
        with pytest.raises(RegardError, match=rf"{name} is not a tokenizer.*: restore it, or train again\.$"):
            train(make(), str(tmp_path / "run"), CPU, is_shown=False)
        file.write_bytes(before)
    assert Tokenizer.load(tmp_path / "run" / "tokenizer.json").vocab_size > 4
    (tmp_path / "run" / "target_tokenizer.json").unlink()
    with pytest.raises(RegardError) as error:
        train(make(), str(tmp_path / "run"), CPU, is_shown=False)
    assert str(error.value) == (
        f"{tmp_path / 'run' / 'target_tokenizer.json'} is not there, which this run began with: restore it, or name a"
        " new folder."
    )


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_model_that_is_lost_or_damaged(make, tmp_path, name):
    train(make(), str(tmp_path / "run"), CPU, is_shown=False)
    file = tmp_path / "run" / name
    whole = file.read_bytes()
    fix = "restore it, or begin in a new folder, for the best weights are nowhere else."
    for raw in (None, b"", whole[:-40]):
        file.unlink() if raw is None else file.write_bytes(raw)
        with pytest.raises(RegardError) as error:
            train(make(), str(tmp_path / "run"), CPU, is_shown=False)
        line = str(error.value)
        assert line.startswith("…" if len(str(file)) > 100 else str(file))
        assert line.endswith(f"/{name} {'is not there' if raw is None else 'is damaged'}: {fix}")
    file.write_bytes(whole)
    assert train(make(), str(tmp_path / "run"), CPU, is_shown=False).ended == "steps"


def test_a_shared_tokenizer_stays_shared(make, tmp_path):
    job = make(source_tokens="words", target_tokens="words", is_shared=True)
    train(job, str(tmp_path / "run"), CPU, is_shown=False)
    shutil.copy(tmp_path / "run" / "tokenizer.json", tmp_path / "run" / "target_tokenizer.json")
    source, target = translate.load_tokenizers(translate.RunFolder(tmp_path / "run"))
    assert source is target


def test_logs_for_tensorboard(make, tmp_path):
    pytest.importorskip("tensorboard")
    train(make(), str(tmp_path / "run"), CPU, is_shown=False, logs=True)
    assert any(name.startswith("events.") for name in os.listdir(tmp_path / "run" / "logs"))
    # and once more, in a folder that has them
    assert train(make(recipe={"max_steps": 7}), str(tmp_path / "run"), CPU, is_shown=False, logs=True)


def test_the_settings_are_kept_with_the_model(make, tmp_path):
    train(make(joiner="@@ "), str(tmp_path / "run"), CPU, is_shown=False)
    training = json.loads((tmp_path / "run" / "config.json").read_text())["training"]
    assert training["joiner"] == "@@ "
    # what was left open fits 6 steps
    assert Recipe.from_dict(training["recipe"]) == dataclasses.replace(make().recipe, epochs=2, warmup=0)
    assert PairCorpus.from_dict(training["corpus"]) == make().corpus
