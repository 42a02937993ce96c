"""The attention weights of an encoder run: a tagger, classifier, summarizer or masked language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from regard.core import RegardError
from regard.data.compression import DROP, KEEP
from regard.models.encoder import Encoder
from regard.tasks.looks.of_translator import look_at_translation
from regard.tasks.looks.sight import POOLING, Sight, place_pooled
from regard.tasks.looks.token_labels import UNKNOWN, check_text, label_names
from regard.tasks.reading.predict import find_logits
from regard.tasks.reading.vocabulary import Encoded, Lexicon
from regard.tasks.text.classifier import Classifier
from regard.tasks.text.filler import BLANK, STAND_IN, Filler
from regard.tasks.text.summarizer import Summarizer
from regard.tasks.text.tagger import Tagger
from regard.tasks.text.translator import Translator
from regard.views.page import Labels, label_tokens
from regard.watching import Seen, watch

# between a word and what is said of it
MARK = "/"


@torch.no_grad()
def look_at_tags(tagger: Tagger, text: str, *, layers: Any = None, top: int = 16) -> Sight:
    """The attention weights of a tagger on a text, with the tags it predicts.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train([["the", "cat", "sat"]], "spaces")
    >>> config = Config.preset("tiny", lexicon.vocab_size, head="tags", labels=("DET", "NOUN"))
    >>> sight = look_at_tags(Tagger(Encoder(config).eval(), lexicon), "the cat")
    >>> sight.tokens["text"].labels, sight.seen["layers.0.attention"].map.shape
    (('the', ' cat'), torch.Size([1, 4, 2, 2]))
    """
    model = tagger.model
    with _watch(model, text, layers, top) as seen:
        (found,) = tagger.tag([text])
    said = " ".join(f"{word}{MARK}{tag}" for word, tag in zip(found.words, found.tags, strict=True))
    return _show_tags(seen, tagger.lexicon, text, found.words, found.tags, said)


@torch.no_grad()
def look_at_summary(
    summarizer: Summarizer, text: str, *, target: str | None = None, beam: int | None = None, layers: Any = None,
    top: int = 16,
) -> Sight:  # fmt: skip
    """The attention weights of a summarizer on a text: one that keeps and drops words, or one that rewrites."""
    model, lexicon = summarizer.model, summarizer.lexicon
    if isinstance(model, Translator):
        return look_at_translation(model, text, target=target, beam=5 if beam is None else beam, layers=layers, top=top)
    for name, given in (("target", target), ("beam", beam)):
        if given is not None:
            raise RegardError(f"look {name} is not for a run that keeps and drops words: leave it out.")
    assert lexicon is not None
    with _watch(model, text, layers, top) as seen:
        (short,) = summarizer.summarize([text])
    tags = tuple(KEEP if is_kept else DROP for is_kept in short.kept or ())
    return _show_tags(seen, lexicon, text, short.words, tags, short.text)


def _show_tags(seen: Seen, lexicon: Lexicon, text: str, words: Sequence[str], tags: Sequence[str], said: str) -> Sight:
    (one,) = lexicon.encode_words([words])
    tokens, starts = label_words(lexicon, text, words, one), one.starts or []
    notes = (UNKNOWN,) if lexicon.unk_id in [one.ids[place] for place in starts] else ()
    sides = {"text": tokens, "tags": _mark(tokens, dict(zip(starts, tags, strict=True)))}
    return Sight(seen, sides, dict.fromkeys(seen, ("tags", "text")), text, said, notes)


@torch.no_grad()
def look_at_class(classifier: Classifier, text: str, *, layers: Any = None, top: int = 16) -> Sight:
    """The attention weights of a classifier on a text: those of its attention pooling and of its layers.

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["good film", "bad film"], "words")
    >>> config = Config.preset("tiny", lexicon.vocab_size, head="classes", labels=("bad", "good"), kind="gru")
    >>> sight = look_at_class(Classifier(Encoder(config).eval(), lexicon), "good film")
    >>> sight.sides, sight.seen["pooling"].map.shape
    ({'pooling': ('label', 'text')}, torch.Size([1, 1, 2]))
    """
    model, lexicon = classifier.model, classifier.lexicon
    with _watch(model, text, layers, top) as seen:
        (found,) = classifier.classify([text])
    (one,) = lexicon.encode_texts([text], classifier.max_length)
    sides, tokens = place_pooled(seen, "text"), {"text": label_text(lexicon, text, one)}
    if POOLING in seen:
        tokens["label"] = label_names([found.label])
    notes = _note(one, bool(found.unknown))
    if model.pooling is None:
        notes += (f"This run pools by {model.config.pooling}: what is shown are the weights of its layers.",)
    return Sight(seen, tokens, sides, text, f"{found.label} {found.score:.2f}", notes)


@torch.no_grad()
def look_at_words(filler: Filler, text: str, *, layers: Any = None, top: int = 16) -> Sight:
    """The attention weights of a masked language model on a text, and its predictions for "___".

    >>> from regard.models.encoder import Config
    >>> lexicon = Lexicon.train(["a good film", "a bad film"], "words")
    >>> model = Encoder(Config.preset("tiny", lexicon.vocab_size, head="words")).eval()
    >>> sight = look_at_words(Filler(model, lexicon), "a ___ film")
    >>> sight.tokens["text"].labels, sight.rows
    (('a', ' ___', ' film'), (1,))
    """
    model, lexicon = filler.model, filler.lexicon
    if model.words is None or not BLANK.search(text):
        (one,) = lexicon.encode_texts([text], filler.max_length)
        with _watch(model, text, layers, top) as seen:
            find_logits(model, [one])
        tokens, notes = {"text": label_text(lexicon, text, one)}, _note(one, lexicon.unk_id in one.ids)
        return Sight(seen, tokens, dict.fromkeys(seen, ("text", "text")), text, None, notes)
    with _watch(model, text, layers, top) as seen:
        found = filler.fill(text, top=1)
    spans, blanks = _find_blanks(lexicon, text)
    (one,) = lexicon.encode_texts([BLANK.sub(STAND_IN, text)])
    shown = _frame(lexicon, text, spans, one)
    marks = {place: guess.word for place, (guess, *_) in zip(blanks, found.guesses, strict=True)}
    is_unknown = any(number == lexicon.unk_id for k, number in enumerate(one.ids) if k not in marks)
    sides = {"text": shown, "words": _mark(shown, marks)}
    pairs = dict.fromkeys(seen, ("words", "text"))
    return Sight(seen, sides, pairs, text, found.text, _note(one, is_unknown), rows=tuple(marks))


def _find_blanks(lexicon: Lexicon, text: str) -> tuple[list[tuple[int, int]], list[int]]:
    """The character spans of the tokens of a text with blanks, and the token of each blank."""
    # by what the text is cut with, each blank is one letter long
    wide = [found.end() - found.start() for found in BLANK.finditer(text)]
    starts = [found.start() - sum(wide[:k]) + k for k, found in enumerate(BLANK.finditer(text))]
    cuts = lexicon.tokenizer.list_spans(BLANK.sub(STAND_IN, text))
    before, _ = _count_frame(lexicon)
    owners = [next(k for k, (start, stop) in enumerate(cuts, before) if start <= x < stop) for x in starts]

    def restore(place: int) -> int:
        return place + sum(more - 1 for x, more in zip(starts, wide, strict=True) if x < place)

    return [(restore(start), restore(stop)) for start, stop in cuts], owners


def label_words(lexicon: Lexicon, text: str, words: Sequence[str], encoded: Encoded) -> Labels:
    """Labels of the tokens of words that follow each other in a text."""
    offsets: list[tuple[int, int]] = []
    at, inner = 0, lexicon.tokenizer
    for word in words:
        at = text.index(word, at)
        # a word is one token where the tokenizer knows only whole ones, or has none for it
        spans = [] if inner.keeps_words else inner.list_spans(word)
        offsets += [(at + start, at + stop) for start, stop in spans or [(0, len(word))]]
        at += len(word)
    return _frame(lexicon, text, offsets, encoded)


def label_text(lexicon: Lexicon, text: str, encoded: Encoded) -> Labels:
    """Labels of the tokens of a text, as far as it was read."""
    spans = lexicon.tokenizer.list_spans(text)
    if encoded.num_left_out:
        spans = spans[: -encoded.num_left_out]
        text = text[: max((stop for _, stop in spans), default=0)]
    return _frame(lexicon, text, spans, encoded)


def _frame(lexicon: Lexicon, text: str, spans: list[tuple[int, int]], encoded: Encoded) -> Labels:
    """Labels of a text and of the special tokens around it."""
    before, after = _count_frame(lexicon)
    # where nothing of a text is read, what stands for it is
    spans = spans or [(0, len(text))] * (len(encoded.ids) - before - after)
    names = lexicon.tokenizer.list_tokens(lexicon.frame([lexicon.unk_id]))
    special = [*names[:before], *[None] * len(spans), *names[before + 1 :]]
    return label_tokens(text, [*[(0, 0)] * before, *spans, *[(0, 0)] * after], special)


def _count_frame(lexicon: Lexicon) -> tuple[int, int]:
    """How many special tokens stand before and after every text."""
    framed = lexicon.frame([-1])
    return framed.index(-1), len(framed) - framed.index(-1) - 1


def _mark(labels: Labels, marks: Mapping[int, str]) -> Labels:
    """Labels with the predicted tag or word behind them, as word/TAG."""
    told = [f"{x.strip()}{MARK}{marks[k]}" if k in marks else x for k, x in enumerate(labels.labels)]
    return Labels(tuple(told), labels.special, labels.marks, False)


def _note(one: Encoded, is_unknown: bool) -> tuple[str, ...]:
    notes: tuple[str, ...] = (UNKNOWN,) if is_unknown else ()
    if one.num_left_out:
        count, read = len(one.ids) + one.num_left_out, len(one.ids)
        notes += (f"The text has {count:,} tokens and the run reads {read:,}: the rest is cut off.",)
    return notes


def _watch(model: Encoder, text: str, layers: Any, top: int) -> Any:
    check_text(text, "text")
    _check(model)
    return watch(model, layers=layers, top=top, keep=True)


def _check(model: Encoder) -> None:
    """Check that a model has attention weights to look at."""
    config = model.config
    is_pooled = config.head == "classes"
    if config.kind == "attention" or (is_pooled and model.pooling is not None):
        return
    if is_pooled:
        raise RegardError(
            f"look: this run is a {config.kind} that pools by {config.pooling}, there are no weights to look at: train"
            " one with --pooling soft."
        )
    raise RegardError(
        f"look: this run is a {config.kind} without attention, there are no weights to look at: train one with --model"
        " attention."
    )
