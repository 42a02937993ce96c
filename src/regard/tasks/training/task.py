"""A task for the training loop: data, loss, optimizer step, validation, and what is saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.tasks.training.folder import RunFolder
from regard.tasks.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Walk(Protocol):
    """A data loader: batches, as many every epoch, from any of them on; `regard.data.Batches` is one."""

    def __len__(self) -> int: ...

    def walk(self, epoch: int = 0, start: int = 0) -> Iterator[Any]: ...


class Learner:
    """What a training step uses: the model, its optimizers and processes; gradients are clipped, losses summed here.

    `model` is the task's, as all processes share it: call it itself, not its parts. `count` is how many losses the
    batches of this step have in all processes, by which the sum of the losses is divided.
    """

    def __init__(self, model: Any, fabric: Fabric, recipe: Recipe, optimizers: Sequence[Any]) -> None:
        self.model, self.fabric, self.recipe, self.optimizers = model, fabric, recipe, optimizers
        self.count = torch.ones((), dtype=torch.float64)
        # listed once: to walk through a model takes longer than to look at its parts
        self._modules = list(model.modules())
        from lightning.fabric.strategies import SingleDeviceStrategy

        # nothing is shared with other processes or devices
        self._is_alone = isinstance(fabric.strategy, SingleDeviceStrategy)
        # kept where the losses are made: to read them makes a GPU wait
        self.loss, self.parts = self._zero(), dict[str, Tensor]()

    def _zero(self) -> Tensor:
        is_small = self.fabric.device.type == "mps"
        return torch.zeros((), dtype=torch.float32 if is_small else torch.float64, device=self.fabric.device)

    @property
    def rate(self) -> float:
        """The learning rate of the first optimizer."""
        return float(self.optimizers[0].param_groups[0]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of every parameter group: this, times its "lr_scale" where it has one."""
        for optimizer in self.optimizers:
            for options in optimizer.param_groups:
                options["lr"] = rate * options.get("lr_scale", 1.0)

    def begin(self, count: Tensor) -> None:
        """Begin a step that averages over so many losses."""
        self.count = count
        # what is in training mode is not told again, part by part
        if not all(module.training for module in self._modules):
            self.model.train()

    def sync(self, is_last: bool) -> AbstractContextManager[Any]:
        """Let processes exchange gradients once, behind the last of several batches (gradient accumulation)."""
        is_split = self.fabric.world_size > 1 and not is_last
        return self.fabric.no_backward_sync(self.model) if is_split else nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Backpropagate a sum of losses, as part of the mean over those of all processes."""
        # a GPU's gradients are started sooner by this thread than by autograd's own, which has caches of its own
        with torch.autograd.set_multithreading_enabled(not self._is_alone):
            # processes average their gradients
            self.fabric.backward(loss * (self.fabric.world_size / self.count))

    def note(self, loss: Tensor, name: str | None = None) -> None:
        """Add a sum of losses to the report, and by its name beside that where there are several."""
        self.loss += loss.detach()
        if name is not None:
            self.parts.setdefault(name, self._zero()).add_(loss.detach())

    def update(self, optimizer: Any) -> None:
        """Clip the gradients of an optimizer's parameters and take its step."""
        if self.recipe.clip is not None:
            self.fabric.clip_gradients(self.model, optimizer, max_norm=self.recipe.clip, error_if_nonfinite=False)
        optimizer.step()

    def forget(self) -> None:
        """Set the reported losses to zero."""
        self.loss.zero_()
        self.parts.clear()

    def recall(self, loss: float, parts: Mapping[str, float]) -> None:
        """Restore the reported losses of a resumed run."""
        self.loss.fill_(loss)
        self.parts = {name: self._zero().fill_(value) for name, value in parts.items()}


class Task:
    """A task for the training loop: all that `fit` knows of what is learned.

    A task has `model`, and `metric`: the entry of `validate` that says which model is best. `unit` is what `count`
    counts, for the speed that is shown; `baselines` are what is reached without learning, by the name of a metric.
    """

    model: Any
    metric: str
    more_is_better: bool = False
    unit: str = "examples"
    baselines: Mapping[str, float] = {}

    def batches(self, rank: int, world_size: int) -> Walk:
        """The training batches of this process."""
        raise NotImplementedError

    def count(self, batch: Any) -> int:
        """How many losses a batch has: tokens, sentences or pixels."""
        raise NotImplementedError

    def measure(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss: the sum of the losses of a batch, which lies on the model's device."""
        raise NotImplementedError

    def make_optimizers(self, recipe: Recipe, model: nn.Module, *, is_fused: bool = False) -> Sequence[Optimizer]:
        """The optimizers, each of some parameters: here one AdamW of all."""
        return [make_adamw(model.parameters(), recipe, is_fused=is_fused)]

    def step(self, learner: Learner, batches: Sequence[Any]) -> None:
        """One training step on some batches: here the gradient of the mean loss, and a step of every optimizer."""
        for optimizer in learner.optimizers:
            optimizer.zero_grad()
        for number, batch in enumerate(batches, 1):
            with learner.sync(number == len(batches)):
                loss = self.measure(learner.model, learner.fabric.to_device(batch))
                learner.backward(loss)
            learner.note(loss)
        for optimizer in learner.optimizers:
            learner.update(optimizer)

    def validate(self, model: nn.Module, fabric: Fabric) -> dict[str, float]:
        """The validation metrics, the same in all processes; the model is in evaluation mode, without gradients."""
        raise NotImplementedError

    def save(self, folder: RunFolder, weights: dict[str, Tensor]) -> None:
        """Save all that is needed to use the model."""
        raise NotImplementedError

    def check(self, folder: RunFolder) -> None:
        """Check that what `save` wrote can still be read."""
        raise NotImplementedError


def make_adamw(parameters: Any, recipe: Recipe, *, is_fused: bool = False) -> Optimizer:
    """An AdamW optimizer of the recipe; `parameters` may be groups of them, with options of their own."""
    betas = recipe.beta1, recipe.beta2
    return torch.optim.AdamW(parameters, recipe.lr, betas, weight_decay=recipe.weight_decay, fused=is_fused)
