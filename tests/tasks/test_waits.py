"""What would make a GPU wait: a look at a number. Tensors on meta have none, so that whoever looks fails there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from regard.data import Batches
from regard.mask import integer
from regard.models import seq2seq, transformer
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.text.translate import TranslateTask
from regard.tasks.training.average import MovingAverage
from regard.tasks.training.machine import Machine
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.task import Learner

PAIRS = [([5, 6, 7], [8, 9]), ([5], [4, 4, 6])]
# what a step uses of Fabric
FABRIC = SimpleNamespace(
    device=torch.device("meta"), world_size=1, strategy=None, backward=lambda loss: loss.backward(),
    to_device=lambda batch: batch.to("meta"),
    clip_gradients=lambda model, optimizer, **options: torch.nn.utils.clip_grad_norm_(model.parameters(), **options),
)  # fmt: skip


def build(device):
    with torch.device(device):
        return Transformer(transformer.Config.preset("tiny", vocab_size=11, num_hiddens=8, ffn_num_hiddens=8))


@pytest.fixture
def task():
    # of a task, what learns: its job and data are nothing to a step
    made = TranslateTask.__new__(TranslateTask)
    made.job = SimpleNamespace(label_smoothing=0.1)
    return made


def test_a_training_step_looks_at_no_number(task):
    model, recipe = build("meta"), Recipe()
    learner = Learner(model, FABRIC, recipe, task.make_optimizers(recipe, model))
    average = MovingAverage(model, 0.9)
    for step, batch in enumerate(Batches(PAIRS, batch_size=1).walk()):
        learner.set_rate(recipe.rate(step, 2))
        learner.begin(torch.tensor(3.0))
        task.step(learner, [batch])
        average.update()
    assert average.steps == 2
    # else the test would see nothing
    for look in (lambda: float(learner.loss), learner.loss.tolist, lambda: bool(learner.loss > 0), learner.loss.cpu):
        with pytest.raises((RuntimeError, NotImplementedError)):
            look()


@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
def test_lengths_whose_range_is_known_are_not_looked_at(name, monkeypatch):
    model = build("cpu") if name == "transformer" else Seq2Seq.from_config(seq2seq.Config(11, 11, 8, 8, 1))
    (batch,) = Batches(PAIRS, batch_size=2).walk()
    expected = model.eval()(batch.source, batch.source_lengths, batch.inputs)
    read = integer._find_range

    def find(values):
        # ids are looked at on the CPU alone
        assert values.ndim == 2, "lengths are looked at"
        return read(values)

    monkeypatch.setattr(integer, "_find_range", find)
    with pytest.raises(AssertionError, match="lengths are looked at"):
        model(batch.source, batch.source_lengths, batch.inputs)
    integer.remember_range(batch.source_lengths, 2, 4, is_seen=True)
    assert torch.equal(model(batch.source, batch.source_lengths, batch.inputs), expected)


def test_a_narrow_run_counts_the_tokens_of_its_validation_exactly(task, monkeypatch):
    pytest.importorskip("lightning")
    fabric = Machine(accelerator="cpu", precision="bf16-true").launch()
    # 257 tokens with <eos>, which bfloat16 has no number for, and a loss of 771 for these
    task.metric, task.valid = "loss", [([5], [6] * 256)]
    task.job = SimpleNamespace(batch_size=1, max_tokens=None)
    monkeypatch.setattr(task, "_compare", lambda model, batch, smoothing: torch.tensor(771.0, dtype=torch.float32))
    with fabric.autocast():
        assert task.validate(None, fabric) == {"loss": 3.0}


def test_a_gpu_is_sent_its_lengths_with_their_range(monkeypatch):
    """Without a GPU the way there is acted: pinned memory and the copy are the tensor itself."""
    sent, real = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: part.clone())

    def move(part, device, non_blocking=False):
        sent.append((device, non_blocking))
        return real(part, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", move)
    (batch,) = Batches(PAIRS, batch_size=2).walk()
    there = batch.to("cuda")
    assert sent == [("cuda", True)]
    for one, other in zip(there, batch, strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() % 16 == 0
    # who writes to a part of it changes no other
    there.outputs[0] = 0
    assert there.source._version == 0
    assert integer.recall_range(there.source_lengths) == (2, 4)
    assert integer.recall_range(there.target_lengths) is integer.recall_range(batch.source_lengths) is None
