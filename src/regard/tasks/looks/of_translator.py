"""The attention weights of a translator while it decodes."""

from __future__ import annotations

from typing import Any

import torch

from regard.core import RegardError
from regard.data import BOS, EOS, UNK, Tokenizer
from regard.models.seq2seq import Seq2Seq
from regard.tasks.looks.sight import Sight, place_sides
from regard.tasks.looks.token_labels import UNKNOWN, Speaker, clean, end, label_said, shift
from regard.tasks.text.translator import Translation, Translator
from regard.views.page import Labels, label_tokens
from regard.watching import watch


@torch.no_grad()
def look_at_translation(
    translator: Translator, text: str | Translation, *, target: str | None = None, beam: int = 5, layers: Any = None,
    top: int = 16,
) -> Sight:  # fmt: skip
    """The attention weights of a translator on `text`, while it decodes `target` or else its own translation.

    A translation that it made before is said once more.

    >>> from regard.data import train_tokenizer
    >>> from regard.models.seq2seq import Config
    >>> chinese = train_tokenizer(["介绍一下西安"], kind="characters")
    >>> english = train_tokenizer(["introduce xi'an"], kind="words")
    >>> config = Config(chinese.vocab_size, english.vocab_size, embed_size=8, num_hiddens=8)
    >>> translator = Translator(Seq2Seq.from_config(config), chinese, english)
    >>> sight = look_at_translation(translator, "介绍西安", target="xi'an")
    >>> sight.tokens["target"].labels, {name: look.map.shape for name, look in sight.seen.items()}
    (("xi'an", '<eos>'), {'decoder': torch.Size([1, 2, 5])})
    """
    found = text if isinstance(text, Translation) else None
    source = clean(text.source if isinstance(text, Translation) else text)
    asked = translator.source_tokenizer.encode(source)
    if target is None:
        found = found or translator.translate([source], beam=beam)[0]
        said, ids = found.text, list(found.target_ids)
        labels = label_said(ids, Speaker(translator.target_tokenizer.decode, {EOS: "<eos>", BOS: "<bos>"}))
    else:
        said = clean(target, "target")
        ids, labels = [*translator.target_tokenizer.encode(said), EOS], _label(said, translator.target_tokenizer)
        most = translator._check_lengths([asked])
        if most is not None and len(ids) > most:
            raise RegardError(
                f"look target has {len(ids)} tokens with <eos>, and the model learned {most} positions: shorten it."
            )
    inputs = [BOS, *ids[:-1]]
    model = translator.model
    place = next(model.parameters()).device
    source_ids = torch.tensor([[*asked, EOS]], device=place)
    lens = torch.tensor([source_ids.shape[1]], device=place)
    was_training = model.training
    model.eval()
    try:
        with watch(model, layers=layers, top=top, keep=True) as seen:
            model(source_ids, lens, torch.tensor([inputs], device=place))
    finally:
        model.train(was_training)
    if isinstance(model, Seq2Seq):
        # one call a step, and one look at all of them
        seen = seen.join()
    tokens = {"source": _label(source, translator.source_tokenizer), "target": labels, "inputs": shift(labels, "<bos>")}
    notes = (UNKNOWN,) if UNK in asked else ()
    return Sight(seen, tokens, place_sides(seen), source, said, notes)


def _label(text: str, tokenizer: Tokenizer) -> Labels:
    return end(label_tokens(text, tokenizer.list_spans(text)))
