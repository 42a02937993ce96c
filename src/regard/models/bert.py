"""BERT, loaded from a Hugging Face folder: https://arxiv.org/abs/1810.04805."""

from __future__ import annotations

import pathlib
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import RegardError
from regard.mask.integer import remember_range
from regard.models.bert_folder import (
    RESTORE,
    check_doubles,
    check_entries,
    list_weights,
    make_bert_config,
    name_tensors,
    read_entries,
    read_shapes,
    read_weights,
)
from regard.models.encoder import Config, Encoder
from regard.models.files import import_safetensors, name_fault, tell
from regard.models.layout import CONFIG, Folder
from regard.models.parts import describe
from regard.models.pretrained import misfit_tensors

__all__ = ["Bert", "Config", "find_padding"]


class Bert(Encoder):
    """The encoder of BERT, loaded from folders as Hugging Face has them.

    >>> model = Bert(Config(vocab_size=9, num_hiddens=8, ffn_num_hiddens=16, num_heads=2, num_layers=1)).eval()
    >>> model(torch.tensor([[2, 5, 3, 0]]), torch.tensor([[1, 1, 1, 0]])).shape
    torch.Size([1, 4, 8])

    Called as in transformers, it gives the last hidden states, whatever its head is; `read_out`, `predict_words` and
    `predict_next` go on from these. All else is an `Encoder`: `save_pretrained` writes a folder of regard's own, which
    both classes read.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Int[Tensor, "batch positions"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch positions"] | None = None,
    ) -> Float[Tensor, "batch positions num_hiddens"]:
        """The hidden states; `attention_mask` is 1 or True at tokens and 0 or False at padding, wherever that is."""
        lens, mask = find_padding(input_ids, attention_mask)
        return self.encode(input_ids, lens, types=token_type_ids, mask=mask)

    @classmethod
    def from_pretrained(cls, folder: Folder, device: str | torch.device = "cpu") -> Self:
        """Load the model from a local Hugging Face folder, or from one that `save_pretrained` wrote.

        It reads `BertModel` and the models for pre-training, masked words, token classification and sequence
        classification; what it has of a pooler and heads is as the weights have it. Each tensor is used, or is known
        to be the same as another, or is refused by name. Weights of half precision become float32.
        """
        place = pathlib.Path(folder)
        entries = read_entries(place)
        if entries.get("model_type") == cls.model_type:
            return super().from_pretrained(folder, device)
        # a missing package is no fault of the folder's
        import_safetensors()
        check_entries(place / CONFIG, entries)
        files = list_weights(place)
        shapes = read_shapes(files)
        config = make_bert_config(place / CONFIG, entries, shapes)
        names = name_tensors(place, config, shapes)
        with torch.device("meta"):
            model = cls.from_config(config).to(torch.float32)
        found = {ours: ("F32", shapes[theirs]) for ours, theirs in names.items()}
        # a row for each position, for all of a batch
        found["position.P"] = ("F32", [1, *found["position.P"][1]])
        if why := misfit_tensors(model, found):
            raise name_fault(place, "has weights that do not fit its config.json", RESTORE, why)
        tensors = read_weights(files)
        if {name: list(x.shape) for name, x in tensors.items()} != shapes:
            raise name_fault(place, "changed while it was read", "load it again")
        check_doubles(place, tensors)
        dtype = torch.float64 if any(x.dtype == torch.float64 for x in tensors.values()) else torch.float32
        state = {ours: tensors[theirs].to(dtype) for ours, theirs in names.items()}
        state["position.P"] = state["position.P"][None]
        for ours, x in state.items():
            if not x.isfinite().all():
                raise name_fault(place, f"has a {names[ours]:.80} that is not finite", "take an earlier one")
        try:
            model = model.to(dtype).to_empty(device=device)
        except (RuntimeError, AssertionError) as error:
            raise RegardError(f"device {str(device)!r} cannot be used: {tell(error)[:100]}.") from None
        model.load_state_dict(state)
        return model.eval()


def find_padding(ids: Tensor, mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """An attention mask of 1 and 0 as lengths, where all padding is at the end, else as booleans; None without padding.

    >>> find_padding(torch.ones(2, 3), torch.tensor([[1, 1, 0], [1, 1, 1]]))
    (tensor([2, 3]), None)
    """
    if mask is None:
        return None, None
    if not isinstance(mask, Tensor) or mask.shape != ids.shape or mask.is_floating_point() or mask.is_complex():
        size = tuple(ids.shape)
        raise RegardError(f"Bert attention_mask must be of 0 and 1 and of shape {size}, got {describe(mask)}.")
    if not mask.numel():
        return None, None
    truths = mask.bool()
    lens, others = truths.sum(1), (truths != mask).sum()
    # a token behind padding
    gaps = (truths[:, 1:] & ~truths[:, :-1]).sum()
    # one look at all of it: each makes a GPU wait
    wrong, broken, least, most = torch.stack((others, gaps, *lens.aminmax())).tolist()
    if wrong:
        raise RegardError("Bert attention_mask must be of 0 and 1, other numbers are in it: add no biases here.")
    if broken:
        return None, truths
    if least == mask.shape[1]:
        return None, None
    if lens.device.type == "cuda":
        remember_range(lens, least, most, is_seen=True)
    return lens, None
