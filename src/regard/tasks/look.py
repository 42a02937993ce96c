"""What a run, or a Hugging Face checkpoint on disk, attends to: a look at one text, with the labels of its tokens."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.core import RegardError
from regard.data import BOS, EOS
from regard.models.files import name_fault, tell
from regard.models.seq2seq import Seq2Seq
from regard.tasks.configs import ANY, CONFIG, RESTORE
from regard.tasks.hugging import PREFIX, TOKENIZER, Checkpoint, hush, open_checkpoint
from regard.tasks.telling import draw
from regard.tasks.translator import Translation, Translator
from regard.views.page import Labels, label_encoding, label_tokens, page
from regard.watching import Seen, watch

Pair = tuple[str, str]
# characters of a text in a title
SHORT = 120
# tokens before one that show how it is joined to them
WINDOW = 16


@dataclass(frozen=True, eq=False)
class Sight:
    """All attentions of one pass, and whose tokens they are of.

    `tokens` are the labels of each side, `sides` the two sides of each attention by name: whose queries, whose keys.
    Of a model that speaks, row i is of the step that produced token i: the queries of a decoder are "target", what was
    produced, the keys of its own attention are "inputs", what it had before it. `notes` are for the reader.
    """

    seen: Seen
    tokens: Mapping[str, Labels]
    sides: Mapping[str, Pair]
    text: str = ""
    said: str | None = None
    notes: tuple[str, ...] = ()
    # the picture as the model saw it, its patches as (rows, columns), and the tokens before these
    image: Any = field(default=None, repr=False)
    grid: tuple[int, int] | None = None
    skip: int = 0

    @property
    def title(self) -> str:
        """The text and what was said, each in one short line."""
        parts = [" ".join(part.split()) for part in (self.text, self.said) if part is not None]
        return " → ".join(part if len(part) <= SHORT else f"{part[: SHORT - 1]}…" for part in parts)

    def page(
        self, out: str | os.PathLike[str] | None, *, title: str | None = None, lang: str = "en", heads: int = 8,
        other: Sight | None = None,
    ) -> Any:  # fmt: skip
        """Write the page of `regard.views.page`; `other` is compared with this one."""
        sides = {**(other.sides if other else {}), **self.sides}
        # a file's name, or a terminal's bytes, may be no text
        shown = (self.title if title is None else title).encode(errors="replace").decode()
        return page(
            self.seen, self.tokens, out, title=shown, lang=lang, heads=heads,
            other=None if other is None else (other.seen, other.tokens), image=self.image, grid=self.grid,
            skip=self.skip, sides=sides,
        )  # fmt: skip

    def draw(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Draw the most telling head as a picture."""
        draw(self, path, title)


def look_at(
    run: str | os.PathLike[str], text: str | None = None, *, target: str | None = None,
    image: str | os.PathLike[str] | None = None, device: str | torch.device = "auto", beam: int = 5,
    layers: Any = None, top: int = 16,
) -> Sight:  # fmt: skip
    """What the run in a folder, or the checkpoint of "hf:FOLDER", attends to."""
    name = os.fspath(run)
    if name.startswith(PREFIX):
        checkpoint = open_checkpoint(os.path.expanduser(name.removeprefix(PREFIX)), device)
        if checkpoint.kind == "image":
            return look_at_picture(checkpoint, _need(image, "image"), layers=layers, top=top)
        if image is not None:
            raise RegardError("look image is for models that see: this checkpoint reads text, leave it out.")
        return look_at_text(checkpoint, _need(text, "text"), target=target, beam=beam, layers=layers, top=top)
    if image is not None:
        raise RegardError("look image is for checkpoints that see (hf:FOLDER): a run reads text, leave it out.")
    translator = Translator.load(name, device)
    return look_at_run(translator, _need(text, "text"), target=target, beam=beam, layers=layers, top=top)


@torch.no_grad()
def look_at_run(
    translator: Translator, text: str | Translation, *, target: str | None = None, beam: int = 5, layers: Any = None,
    top: int = 16,
) -> Sight:  # fmt: skip
    """What a translator attends to while it says `target`, or else its own translation of `text`.

    A translation that it made before is said once more.

    >>> from regard.data import train_tokenizer
    >>> from regard.models.seq2seq import Config
    >>> chinese = train_tokenizer(["介绍一下西安"], kind="characters")
    >>> english = train_tokenizer(["introduce xi'an"], kind="words")
    >>> config = Config(chinese.vocab_size, english.vocab_size, embed_size=8, num_hiddens=8)
    >>> sight = look_at_run(Translator(Seq2Seq.from_config(config), chinese, english), "介绍西安", target="xi'an")
    >>> sight.tokens["target"].labels, {name: look.map.shape for name, look in sight.seen.items()}
    (("xi'an", '<eos>'), {'decoder': torch.Size([1, 2, 5])})
    """
    found = text if isinstance(text, Translation) else None
    source = _clean(text.source if isinstance(text, Translation) else text)
    encoding = translator.source_tokenizer._inner.encode(source, add_special_tokens=False)
    if target is None:
        found = found or translator.translate([source], beam=beam)[0]
        said, ids = found.text, list(found.target_ids)
        labels = label_said(ids, _Speaker(translator.target_tokenizer.decode, {EOS: "<eos>", BOS: "<bos>"}))
    else:
        said = _clean(target, "target")
        spoken = translator.target_tokenizer._inner.encode(said, add_special_tokens=False)
        ids, labels = [*spoken.ids, EOS], _end(label_encoding(said, spoken))
        most = translator._check_lengths([encoding.ids])
        if most is not None and len(ids) > most:
            raise RegardError(
                f"look target has {len(ids)} tokens with <eos>, and the model learned {most} positions: shorten it."
            )
    inputs = [BOS, *ids[:-1]]
    model = translator.model
    place = next(model.parameters()).device
    source_ids = torch.tensor([[*encoding.ids, EOS]], device=place)
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
    tokens = {"source": _end(label_encoding(source, encoding)), "target": labels, "inputs": _shift(labels, "<bos>")}
    notes = ("Parts of the text are unknown to this run.",) if 3 in encoding.ids else ()
    return Sight(seen, tokens, _place(seen), source, said, notes)


@torch.no_grad()
def look_at_text(
    checkpoint: Checkpoint, text: str, *, target: str | None = None, beam: int = 1, layers: Any = None, top: int = 16
) -> Sight:
    """What a checkpoint attends to in a text; of an encoder and a decoder, while it says `target`, or else its own
    words."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    encoding, notes = _encode(checkpoint, text, "text")
    ids = torch.tensor([encoding.ids], device=model.device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if checkpoint.kind == "text":
        if target is not None:
            raise RegardError("look target is for models with a decoder beside an encoder: leave it out.")
        seen = _run(checkpoint, layers, top, **given)
        labels = {"text": label_encoding(text, encoding)}
        return Sight(seen, labels, dict.fromkeys(seen, ("text", "text")), text, None, notes)
    start = _find_start(checkpoint)
    if target is not None:
        spoken, more = _encode(checkpoint, target, "target")
        said, said_ids, produced = target, spoken.ids, label_encoding(target, spoken)
        notes += more
    elif not checkpoint.can_speak:
        said, said_ids, produced = None, [start], Labels(("?",), (True,), (False,), True)
        notes += ("The folder has no output layer: the decoder is looked at before its first word.",)
    else:
        # a decoder's own positions end somewhere too
        limit = min(2 * len(encoding.ids) + 20, (checkpoint.positions or 2**31) - 1)
        with hush(), _blame(checkpoint):
            found = model.generate(**given, do_sample=False, num_beams=beam, max_new_tokens=max(limit, 1))
        said_ids = found[0, 1:].tolist()
        speaker = _Speaker(lambda ids: tokenizer.decode(ids), _list_special(tokenizer))
        produced = label_said(said_ids, speaker)
        said = produced.text.strip()
    inputs = torch.tensor([[start, *said_ids[:-1]]], device=model.device)
    seen = _run(checkpoint, layers, top, **given, decoder_input_ids=inputs, use_cache=False)
    tokens = {"source": label_encoding(text, encoding), "target": produced,
              "inputs": _shift(produced, str(tokenizer.id_to_token(start)))}  # fmt: skip
    return Sight(seen, tokens, _place(seen), text, said, notes)


@torch.no_grad()
def look_at_picture(
    checkpoint: Checkpoint, image: str | os.PathLike[str], *, layers: Any = None, top: int = 16
) -> Sight:
    """What a vision model attends to in a picture, patch by patch."""
    from regard.tasks.pixels import fit_picture, list_patches, read_picture, read_rules

    model = checkpoint.model
    rules, notes = read_rules(checkpoint.folder)
    side = model.config.image_size if hasattr(model.config, "image_size") else 224
    size = (side, side) if isinstance(side, int) else tuple(side)
    picture, numbers = fit_picture(read_picture(image), rules, size)
    seen = _run(checkpoint, layers, top, pixel_values=numbers.to(model.device, model.dtype))
    grid, skip = list_patches(checkpoint.folder, model.config, picture, seen)
    rows, columns = grid
    names = ["[CLS]", *(f"[{k}]" for k in range(1, skip))][:skip]
    labels = [*names, *(f"{r + 1},{c + 1}" for r in range(rows) for c in range(columns))]
    special = (True,) * skip + (False,) * (rows * columns)
    tokens = {"patches": Labels(tuple(labels), special, (False,) * len(labels), False)}
    sides = dict.fromkeys(seen, ("patches", "patches"))
    name = pathlib.Path(image).name
    return Sight(seen, tokens, sides, name, None, notes, image=picture, grid=grid, skip=skip)


def _run(checkpoint: Checkpoint, layers: Any, top: int, **given: Any) -> Seen:
    with watch(checkpoint.model, layers=layers, top=top, keep=True) as seen, _blame(checkpoint):
        checkpoint.model(**given)
    return seen


@contextlib.contextmanager
def _blame(checkpoint: Checkpoint) -> Iterator[None]:
    """Say in one line what others' code has against others' files: a size that does not fit, an input that lacks."""
    try:
        yield
    except RegardError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RuntimeError) as error:
        raise name_fault(checkpoint.folder, "cannot be run", ANY, tell(error)) from None


@dataclass(frozen=True)
class _Speaker:
    decode: Callable[[list[int]], str]
    special: Mapping[int, str]


def label_said(ids: Sequence[int], speaker: _Speaker) -> Labels:
    """Labels of tokens that no text was cut into: what each adds to the text of those before it."""
    spans: list[tuple[int, int]] = []
    text, waiting = "", 0
    for k, number in enumerate(ids):
        piece = ""
        if number not in speaker.special:
            before = [x for x in ids[max(0, k - WINDOW) : k] if x not in speaker.special]
            old, new = (speaker.decode(x).rstrip("\ufffd") for x in (before, [*before, number]))
            piece = new.removeprefix(old) if new.startswith(old) else speaker.decode([number])
        waiting += 1
        spans.append((len(text), len(text)))
        if piece:
            # bytes that were no character yet belong to the one that is whole now
            spans[k - waiting + 1 :] = [(len(text), len(text) + len(piece))] * waiting
            text, waiting = text + piece, 0
        elif number in speaker.special:
            waiting = 0
    return label_tokens(text, spans, [speaker.special.get(number) for number in ids])


def _need(given: Any, name: str) -> Any:
    if given is None:
        raise RegardError(f"look needs {'a picture: give image' if name == 'image' else 'a text: give one'}.")
    return given


def _clean(text: str, name: str = "text") -> str:
    """As the translator reads it: line breaks are spaces."""
    return " ".join(_check_text(text, name).splitlines()).strip()


def _check_text(text: str, name: str) -> str:
    if not text.strip():
        raise RegardError(f"look {name} is empty: give some words.")
    if any("\ud800" <= mark <= "\udfff" for mark in text):
        raise RegardError(f"look {name} is not unicode (half a surrogate pair): read it as UTF-8.")
    return text


def _end(labels: Labels) -> Labels:
    return Labels((*labels.labels, "<eos>"), (*labels.special, True), (*labels.marks, False), labels.joined)


def _shift(labels: Labels, start: str) -> Labels:
    """What the decoder had before it, where `labels` is what it produced."""
    return Labels((start, *labels.labels[:-1]), (True, *labels.special[:-1]), (False, *labels.marks[:-1]), False)


def _place(seen: Seen) -> dict[str, Pair]:
    """Whose queries and keys the attentions of an encoder and a decoder are."""
    sides = {}
    for name in seen:
        if "decoder" not in name.partition("#")[0].split("."):
            sides[name] = ("source", "source")
        else:
            sides[name] = ("target", "source" if seen.kinds[name] == "cross" else "inputs")
    return sides


def _encode(checkpoint: Checkpoint, text: str, name: str) -> tuple[Any, tuple[str, ...]]:
    """The tokens of a text; where the model has no places for all, those it has, and a note that says so."""
    _check_text(text, name)
    encoding, most = checkpoint.tokenizer.encode(text), checkpoint.positions
    known = checkpoint.model.get_input_embeddings().num_embeddings
    if not encoding.ids or max(encoding.ids) >= known:
        cause = "cuts the text into no tokens" if not encoding.ids else f"has ids beyond the model's {known} tokens"
        raise name_fault(checkpoint.folder / TOKENIZER, cause, RESTORE)
    if most is None or len(encoding.ids) <= most:
        return encoding, ()
    count = len(encoding.ids)
    checkpoint.tokenizer.enable_truncation(most)
    encoding = checkpoint.tokenizer.encode(text)
    checkpoint.tokenizer.no_truncation()
    return encoding, (f"The {name} has {count:,} tokens and the model {most:,} positions: the rest is cut off.",)


def _find_start(checkpoint: Checkpoint) -> int:
    config, more = checkpoint.model.config, getattr(checkpoint.model, "generation_config", None)
    for holder in (more, config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            if isinstance(found := getattr(holder, name, None), int):
                return found
    raise name_fault(checkpoint.folder / CONFIG, "has no decoder_start_token_id", "add it")


def _list_special(tokenizer: Any) -> dict[int, str]:
    return {k: token.content for k, token in tokenizer.get_added_tokens_decoder().items() if token.special}
