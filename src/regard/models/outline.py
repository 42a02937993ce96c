"""Models without memory for their weights, and the memory for them."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core import RegardError

DRAWS = (Tensor.normal_, Tensor.uniform_)

Model = TypeVar("Model", bound=nn.Module)


class _Undrawn(TorchFunctionMode):
    """Skip the initialisation of weights that a file has: on the meta device it alone would load torch's compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or func in DRAWS:
            # by which of the two, torch has not always agreed
            return args[0] if args else kwargs["tensor"]
        if func in (torch.randn, torch.rand):
            return torch.empty(*args, **{name: x for name, x in kwargs.items() if name != "generator"})
        return func(*args, **kwargs)


def outline(kind: type[Model], config: Any, dtype: str) -> Model:
    """The model on the meta device, without memory for its weights: names and shapes can be asked at no cost."""
    with torch.device("meta"), _Undrawn():
        model: Model = kind.from_config(config).to(getattr(torch, dtype))  # type: ignore[attr-defined]
    if lost := _find_unsaved(model):
        raise RegardError(f"{kind.__name__} {lost} is in no file: make it a parameter, or a buffer that is saved.")
    return model


def allocate(model: nn.Module, device: str | torch.device) -> None:
    """Give an outline memory for its weights; one weight under two names stays one."""
    names: dict[Tensor, list[str]] = {}
    for name, x in model.named_parameters(remove_duplicate=False):
        names.setdefault(x, []).append(name)
    # as to_empty does, which asks torch's symbolic shapes of every weight, half a second to load
    model._apply(lambda x: torch.empty(x.shape, dtype=x.dtype, device=device))
    for first, *others in names.values():
        for name in others:
            owner, _, own = name.rpartition(".")
            setattr(model.get_submodule(owner), own, model.get_parameter(first))


def _find_unsaved(model: nn.Module) -> str | None:
    """The name of a tensor that no file would have, and that nothing makes anew on another device."""
    for path, module in model.named_modules():
        held = [name for name, x in vars(module).items() if isinstance(x, Tensor)]
        # a module that changes how it is moved knows its own constants
        if type(module)._apply is nn.Module._apply:
            made = module._non_persistent_buffers_set
            held += [name for name, x in module._buffers.items() if name in made and x is not None]
        if held:
            return f"{path}.{held[0]}".lstrip(".")
    return None
