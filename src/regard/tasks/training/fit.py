"""The training loop, for every task: on any devices, with checkpoints, resumed to bit-identical results."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict as whole

from regard.core import RegardError
from regard.tasks.training.average import MovingAverage
from regard.tasks.training.folder import STATE, RunFolder
from regard.tasks.training.job import describe_move
from regard.tasks.training.machine import holds_parts
from regard.tasks.training.progress import Progress
from regard.tasks.training.recipe import Recipe
from regard.tasks.training.signals import SIGNALS, StopSignal, catch_signals
from regard.tasks.training.task import Learner, Task

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# all of a state in main memory, whether one device has it or each of many a part
WHOLE = whole.StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass
class Standing:
    """The state of training beside weights and optimizers: steps, losses, the best validation, history."""

    step: int = 0
    # batches taken in all: the epoch and the place in it follow
    taken: int = 0
    # losses since the last validation, and how many
    loss_sum: float = 0.0
    loss_count: int = 0
    # those that a task notes by name, where it has several
    loss_parts: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    # the validation's loss there, which decides between equals
    best_loss: float | None = None
    # validations since the best one
    worse: int = 0
    # why it ended: "steps", "patience", "SIGINT" or "SIGTERM"; nothing while it goes on
    ended: str = ""
    # a row a validation
    history: list[dict[str, Any]] = field(default_factory=list)
    # what is to be said at the end
    notes: list[str] = field(default_factory=list)


def fit(
    task: Task, folder: RunFolder, recipe: Recipe, fabric: Fabric, *, is_shown: bool = True,
    moved: Mapping[str, tuple[Any, Any]] | None = None,
) -> Standing:  # fmt: skip
    """Train the task's model by the recipe, or resume from its checkpoint; `folder` is locked and has its settings.

    `moved` says what of the recipe's end is not as it was when the run was left: was and is, by name. A schedule that
    falls towards the end falls to the new one from there on.

    Random numbers follow from the recipe's seed, the step and the process alone, so there is nothing of them to keep.
    SIGINT and SIGTERM end the run after the step under way, saved; the second ends it at once. Several processes need
    a folder that all of them see.
    """
    progress = Progress(is_shown=is_shown and fabric.is_global_zero, unit=task.unit, baselines=task.baselines)
    trainer = _Trainer(task, folder, recipe, fabric, progress)
    # the first process decides, before it changes what the others would find
    if trainer.sum_over_processes([folder.is_begun() and fabric.is_global_zero])[0]:
        trainer.resume(folder.load())
        now = trainer.standing
        if moved:
            # who asks for other steps asks for them whatever came before
            now.worse = now.worse if moved.keys() == {"patience"} else 0
            folder.move_end(now.step, moved)
            progress.say(describe_move(now.step, moved))
        elif not trainer.is_over():
            progress.say(f"Resuming from step {now.step:,} of {trainer.total:,}.")
    else:
        trainer.save()
    with catch_signals() as trainer.stop:
        return trainer.train()


class _Trainer:
    def __init__(self, task: Task, folder: RunFolder, recipe: Recipe, fabric: Fabric, progress: Progress) -> None:
        self.task, self.folder, self.recipe, self.fabric, self.progress = task, folder, recipe, fabric, progress
        self.standing, self.stop = Standing(), StopSignal()
        self.batches = task.batches(fabric.global_rank, fabric.world_size)
        self.per_epoch = math.ceil(len(self.batches) / recipe.accumulate)
        self.total = recipe.count_steps(self.per_epoch)
        is_sharded = holds_parts(fabric)
        if is_sharded and recipe.average:
            raise RegardError("average must be 0 where the weights are sharded (strategy='fsdp').")
        # parts are made before the optimiser sees them
        self.model = fabric.setup_module(task.model)
        made = task.make_optimizers(recipe, self.model, is_fused=fabric.device.type == "cuda" and not is_sharded)
        self.learner = Learner(self.model, fabric, recipe, [fabric.setup_optimizers(one) for one in made])
        self.average = MovingAverage(task.model, recipe.average) if recipe.average else None
        # how many of the losses that the learner sums are this process's
        self.count = 0

    def train(self) -> Standing:
        """The loop: training steps, validations, checkpoints and early stopping."""
        now = self.standing
        now.ended = self.is_over()
        if now.ended and now.loss_count:
            # told to end sooner than it was
            self._validate()
            self.save()
        before, began, counted, steps = now.seconds, time.monotonic(), 0, self._walk()
        with self.progress.show(self.total, now.step):
            while not now.ended:
                # before its batches are made, which may be by chance, too
                _seed(self.fabric.device, self.recipe.seed, now.step, self.fabric.global_rank)
                counted += self._learn(next(steps))
                now.seconds = before + time.monotonic() - began
                is_stopped = self._read_signal()
                if now.step % (self.recipe.validate_every or self.per_epoch) == 0 or self.is_over():
                    self._validate()
                    now.seconds = before + time.monotonic() - began
                now.ended = self.is_over() or is_stopped
                if not now.loss_count or now.ended or now.step % self.recipe.save_every == 0:
                    self.save()
                elif self.progress.is_due():
                    rate = counted * self.fabric.world_size / (time.monotonic() - began)
                    self.progress.advance(now.step, float(self.learner.loss) / self.count, rate)
        return now

    def _walk(self) -> Iterator[list[Any]]:
        """The batches of each step (gradient accumulation), epoch after epoch, from where the run stands."""
        epoch, start = divmod(self.standing.taken, len(self.batches))
        for number in itertools.count(epoch):
            batches = self.batches.walk(number, start if number == epoch else 0)
            while group := list(itertools.islice(batches, self.recipe.accumulate)):
                yield group

    def _learn(self, group: Sequence[Any]) -> int:
        """One training step; returns how many losses it averaged over."""
        now, learner = self.standing, self.learner
        learner.set_rate(self.recipe.rate(now.step, self.total))
        count = sum(self.task.count(batch) for batch in group)
        everyone = self.sum_over_processes([count])[0]
        learner.begin(everyone)
        self.task.step(learner, group)
        if self.average:
            self.average.update()
        self.count += count
        now.step, now.taken, now.loss_count = now.step + 1, now.taken + len(group), now.loss_count + int(everyone)
        return count

    def _validate(self) -> None:
        now, task = self.standing, self.task
        self._collect_losses()
        model = self.average.read() if self.average else self.model
        with torch.no_grad(), self.fabric.autocast():
            found = task.validate(model.eval(), self.fabric)
        # by the first process alone, so that all go on or end together
        values = self.sum_over_processes([x if self.fabric.is_global_zero else 0.0 for x in found.values()])
        found = dict(zip(found, values.tolist(), strict=True))
        row = {
            "step": now.step, "epoch": now.step / self.per_epoch, "lr": self.learner.rate,
            "loss": now.loss_sum / now.loss_count,
            **{f"loss_{name}": value / now.loss_count for name, value in now.loss_parts.items()},
            **{f"valid_{name}": value for name, value in found.items()}, "seconds": round(now.seconds, 3),
        }  # fmt: skip
        self.fabric.log_dict({name: value for name, value in row.items() if name != "step"}, step=now.step)
        self._check(value := found[task.metric], f"the validation's {task.metric}")
        is_best = now.best is None or (value > now.best if task.more_is_better else value < now.best)
        # of few examples many validations are equal: the surer one is kept
        is_surer = value == now.best and now.best_loss is not None and found.get("loss", math.inf) < now.best_loss
        now.worse += 1
        if is_best or is_surer:
            now.best, now.best_step, now.best_loss = value, now.step, found.get("loss")
            now.worse = 0 if is_best else now.worse
            weights = self._read_weights() if self.average is None else self.average.model.state_dict()
            if self.fabric.is_global_zero:
                task.save(self.folder, weights)
        now.history.append(row)
        now.loss_sum, now.loss_count, now.loss_parts = 0.0, 0, {}
        self.learner.forget()
        self.count = 0
        self.progress.report(row, is_best or is_surer)

    def is_over(self) -> str:
        """Why training ends here: "steps", or "patience" (early stopping); empty while it goes on."""
        if self.standing.step >= self.total:
            return "steps"
        return "patience" if self.standing.worse >= (self.recipe.patience or math.inf) else ""

    def _read_signal(self) -> str:
        """The signal that any of the processes was sent."""
        if self.fabric.world_size == 1 and not self.stop.number:
            return ""
        counts = self.sum_over_processes([self.stop.number == number for number in SIGNALS]).tolist()
        return max((number.name for number, count in zip(SIGNALS, counts, strict=True) if count), default="")

    def sum_over_processes(self, numbers: Sequence[float]) -> Tensor:
        """Each number, summed over all processes."""
        counts = torch.tensor(numbers, dtype=torch.float64)
        if self.fabric.world_size == 1:
            return counts
        summed: Tensor = self.fabric.all_reduce(counts.to(self.fabric.device), reduce_op="sum")
        return summed.cpu()

    def _collect_losses(self) -> None:
        """Sum the losses over all processes, for the report."""
        now, parts = self.standing, self.learner.parts
        now.loss_sum, *sums = self.sum_over_processes([float(x) for x in (self.learner.loss, *parts.values())]).tolist()
        now.loss_parts = dict(zip(parts, sums, strict=True))
        self._check(now.loss_sum, "the loss")

    def _check(self, value: float, name: str) -> None:
        """Raise an error for a loss, metric or weight that is not finite: none is ever saved."""
        if not math.isfinite(value):
            raise RegardError(
                f"{name} became {value} before step {self.standing.step}: lower lr, or raise warmup; begin in a new"
                " folder."
            )

    def _read_weights(self) -> dict[str, Tensor]:
        weights: Any = whole.get_model_state_dict(self.model._forward_module, options=WHOLE)
        return dict(weights)

    def _read_optimizers(self) -> Any:
        """The state of each optimizer, of a single one by itself; None before the first step."""
        # to ask for it before the first step would make one, which the optimizer counts
        found = [
            whole.get_optimizer_state_dict(self.model._forward_module, one.optimizer, options=WHOLE)
            if one.optimizer.state else None
            for one in self.learner.optimizers
        ]  # fmt: skip
        return found[0] if len(found) == 1 else found

    def save(self) -> None:
        """Write a checkpoint: the first process writes it, the others give their parts."""
        self._collect_losses()
        weights = self._read_weights()
        for name, x in weights.items():
            self._check(float(x.detach().abs().amax()) if x.numel() else 0.0, name)
        state = {
            "standing": asdict(self.standing),
            "model": weights,
            "optimizer": self._read_optimizers(),
            "average": None if self.average is None else self.average.wide.state_dict(),
        }
        if self.fabric.is_global_zero:
            self.folder.save(state, self.standing.history)
        self.fabric.barrier()

    def resume(self, state: dict[str, Any]) -> None:
        """Restore the checkpoint that `save` wrote."""
        try:
            self.standing = Standing(**state["standing"])
            whole.set_model_state_dict(self.model._forward_module, state["model"], options=WHOLE)
            saved = state["optimizer"] if isinstance(state["optimizer"], list) else [state["optimizer"]]
            for one, entries in zip(self.learner.optimizers, saved, strict=True):
                if entries is not None:
                    self._load_optimizer(one.optimizer, entries)
            if self.average:
                self.average.wide.load_state_dict(state["average"])
                self.average.steps = self.standing.step
        except (KeyError, TypeError, RuntimeError, AttributeError, ValueError) as error:
            raise RegardError(
                f"{self.folder.path / STATE} is of another run ({type(error).__name__}): restore it, or name a new"
                " folder."
            ) from None
        if self.standing.best_step:
            self.task.check(self.folder)
        # the sum of all processes goes on in one of them; the others have its names, for all sum by name
        share, now = int(self.fabric.is_global_zero), self.standing
        self.learner.recall(share * now.loss_sum, {name: share * x for name, x in now.loss_parts.items()})
        self.count = share * now.loss_count
        if self.fabric.is_global_zero:
            self.folder.restore_history(now.history)

    def _load_optimizer(self, optimizer: Any, entries: Any) -> None:
        """Restore the state of an optimizer, also where some of its parameters had no gradient yet."""
        if holds_parts(self.fabric):
            return whole.set_optimizer_state_dict(self.model._forward_module, optimizer, entries, options=WHOLE)
        names = {id(x): name for name, x in self.task.model.named_parameters()}
        mine = [[names.get(id(x)) for x in group["params"]] for group in optimizer.param_groups]
        if mine != [group["params"] for group in entries["param_groups"]]:
            raise ValueError("other parameters")
        optimizer.load_state_dict(entries)


def _seed(device: torch.device, *numbers: int) -> None:
    """Seed the random numbers of this step and process, on the CPU and its device."""
    digest = hashlib.sha256(" ".join(map(str, numbers)).encode()).digest()
    seed = int.from_bytes(digest[:8], "big") >> 1
    torch.default_generator.manual_seed(seed)
    # `torch.manual_seed` goes to every kind of device, and formats a traceback for each that is not in use
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
