"""A trained translator: translation by beam search, greedy decoding or sampling, with its alignment."""

from __future__ import annotations

import itertools
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data import BOS, EOS, PAD, UNK, Tokenizer, pad
from regard.models.decode import Decoded, Decoder, State, decode_greedily, sample, search_beam
from regard.models.layout import read_config
from regard.models.pretrained import load_pretrained
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.training.device import find_device

SOURCE_FILE, TARGET_FILE = "tokenizer.json", "target_tokenizer.json"
# sources whose lengths fall into one step of this width share their max_len, and only these meet in a batch
WIDTH = 16
# a batch has at most so many places for source tokens, however few sentences these are
PLACES = 2**15


@dataclass(frozen=True)
class Translation:
    """One sentence and its translation.

    Both lists of tokens end in <eos>; `target_tokens` does not where max_len cut it short. `score` is the
    log-probability of these, a beam's divided by its length penalty. `unknown` counts the tokens of the source that
    its tokenizer does not know. `weights`, where looked for, are (target_tokens, source_tokens): row i is where the
    model looked when it said token i. `source_ids` and `target_ids` are the tokens by number.
    """

    source: str
    text: str
    score: float
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    unknown: int = 0
    weights: Tensor | None = field(default=None, repr=False, compare=False)
    source_ids: tuple[int, ...] = field(default=(), repr=False, compare=False)
    target_ids: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @property
    def num_tokens(self) -> int:
        """How many tokens of the source were read, <eos> not counted."""
        return max(0, len(self.source_ids) - 1)


class Translator:
    """A trained translator: an encoder-decoder and the tokenizers of both sides.

    >>> from regard.data import train_tokenizer
    >>> from regard.models.seq2seq import Config
    >>> chinese = train_tokenizer(["介绍一下西安"], kind="characters")
    >>> english = train_tokenizer(["introduce xi'an"], kind="words")
    >>> config = Config(chinese.vocab_size, english.vocab_size, embed_size=8, num_hiddens=8)
    >>> translator = Translator(Seq2Seq.from_config(config), chinese, english)
    >>> (found,) = translator.translate(["介绍西安"], max_len=3, looks=True)
    >>> found.source_tokens, found.weights.shape == (len(found.target_tokens), 5)
    (('介', '绍', '西', '安', '<eos>'), True)

    `joiner` is what marks a cut within a word, as "@@ " does in text that comes with BPE marks: it is removed from
    what is said.
    """

    def __init__(
        self, model: Seq2Seq | Transformer, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None,
        joiner: str | None = None,
    ) -> None:  # fmt: skip
        self.model, self.joiner = model, joiner
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer or source_tokenizer
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        for side, tokenizer, size in zip(("source", "target"), tokenizers, _count_tokens(model), strict=True):
            if tokenizer.vocab_size != size:
                raise RegardError(
                    f"the {side} tokenizer has {tokenizer.vocab_size} tokens and the model {size}: they are not of one"
                    " run, restore the one that is."
                )

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Translator:
        """Load the translator of a run; "auto" is a GPU where there is one."""
        place, root = find_device(device), pathlib.Path(folder)
        model: Any = load_pretrained(root, place, kinds=(Seq2Seq, Transformer))
        joiner = read_config(root).get("training", {}).get("joiner")
        if not isinstance(joiner, str | None):
            raise RegardError(f"{root / 'config.json'}: joiner must be text or null, is {joiner!r}: mend it.")
        source = Tokenizer.load(root / SOURCE_FILE)
        target = Tokenizer.load(root / TARGET_FILE) if (root / TARGET_FILE).exists() else source
        return cls(model.eval(), source, target, joiner)

    def save(self, folder: str | os.PathLike[str], training: Mapping[str, Any] | None = None) -> None:
        """Write a folder that `load` reads; `training` is kept in its config.json."""
        root, noted = pathlib.Path(folder), dict(training or {})
        if self.joiner is not None:
            noted["joiner"] = self.joiner
        self.source_tokenizer.save(root / SOURCE_FILE)
        if self.target_tokenizer is not self.source_tokenizer:
            self.target_tokenizer.save(root / TARGET_FILE)
        else:
            # left from another run, it would be read as this one's
            (root / TARGET_FILE).unlink(missing_ok=True)
        self.model.save_pretrained(root, training=noted)

    @torch.no_grad()
    def translate(
        self, texts: Iterable[str], *, beam: int = 5, alpha: float = 0.6, max_len: int | None = None,
        batch_size: int = 64, temperature: float | None = None, top_k: int | None = None, seed: int | None = None,
        looks: bool = False, layer: int | None = None, on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Translation]:  # fmt: skip
        """Translate sentences: a translation of each, in their order.

        A beam of one is greedy. With `temperature` words are drawn instead, from the `top_k` most likely where given:
        the same texts, `batch_size` and `seed` draw the same. `max_len` is the most tokens to say, <eos> counted; by
        default twice those of the source, rounded up to a multiple of 16, and 20 more. A sentence becomes the same
        beside any others, up to rounding. One of nothing but spaces becomes "", and the model is not asked; line
        breaks within one are spaces.

        `looks` fills `weights`. Of a Transformer these are the cross attention of one decoder layer, averaged over
        heads: of `layer`, counted from 0, or else of the last but one (https://arxiv.org/abs/1909.02074 found it the
        best aligned). `on_progress` is told how many sentences are done, and of how many.
        """
        choose = self._choose(beam, alpha, temperature, top_k, seed)
        for name, value in (("max_len", max_len), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise RegardError(f"translate {name} must be at least 1, got {value}.")
        at = self._find_layer(layer)
        given = list(_check_texts(texts))
        sources = self.source_tokenizer.encode_all(" ".join(text.splitlines()).strip() for text in given)
        limit = self._check_lengths(sources)
        done = [Translation(text, "", 0.0, ("<eos>",), ("<eos>",)) for text in given]
        was_training, finished = self.model.training, sum(not source for source in sources)
        self.model.eval()
        try:
            for rows in _batch(sources, batch_size):
                steps = max_len or 2 * _round_up(len(sources[rows[0]]) + 1) + 20
                told = self._say([[*sources[i], EOS] for i in rows], choose, min(steps, limit or steps), looks, at)
                for i, (ids, score, weights) in zip(rows, told, strict=True):
                    if not math.isfinite(score):
                        raise RegardError(
                            f"sentence {i + 1}: the model answers {score}: its weights are broken, train again."
                        )
                    done[i] = self._describe(given[i], sources[i], ids, score, weights)
                finished += len(rows)
                if on_progress is not None:
                    on_progress(finished, len(given))
        finally:
            self.model.train(was_training)
        return done

    def join(self, text: str) -> str:
        """`text` without the subword marks of `joiner`: split words are whole again.

        A mark at the very end goes too.
        """
        return text if not self.joiner else text.replace(self.joiner, "").removesuffix(self.joiner.rstrip())

    def _choose(
        self, beam: int, alpha: float, temperature: float | None, top_k: int | None, seed: int | None
    ) -> Callable[..., Decoded]:
        """The decoding function that is asked for: greedy, sampling or beam search."""
        if beam < 1:
            raise RegardError(f"translate beam must be at least 1, got {beam}.")
        if temperature is not None:
            noise = torch.Generator(self._device)
            noise.seed() if seed is None else noise.manual_seed(seed)
            return partial(sample, temperature=temperature, top_k=top_k, generator=noise)
        for name, value in (("top_k", top_k), ("seed", seed)):
            if value is not None:
                raise RegardError(f"translate {name}={value} is for sampling: give temperature too.")
        return decode_greedily if beam == 1 else partial(search_beam, beam=beam, alpha=alpha)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _find_layer(self, layer: int | None) -> int:
        """The decoder layer whose attention weights are read."""
        if isinstance(self.model, Seq2Seq):
            if layer is not None:
                raise RegardError(f"translate layer={layer}: a Seq2Seq looks at its source in one place, leave it out.")
            return 0
        count = len(self.model.decoder)
        if layer is None:
            return max(count - 2, 0)
        if not 0 <= layer < count:
            raise RegardError(f"translate layer must be from 0 to {count - 1}, the last of the decoder, got {layer}.")
        return layer

    def _check_lengths(self, sources: Sequence[Sequence[int]]) -> int | None:
        """The model's maximum length, if it has one; a longer sentence is refused."""
        if not isinstance(self.model, Transformer) or self.model.config.position != "learned":
            return None
        most = self.model.config.max_len
        for number, source in enumerate(sources, 1):
            if len(source) >= most:
                raise RegardError(
                    f"sentence {number} has {len(source) + 1} tokens with <eos>, and the model learned {most}"
                    " positions: split the sentence."
                )
        return most

    def _say(
        self, rows: list[list[int]], choose: Callable[..., Decoded], max_len: int, looks: bool, layer: int
    ) -> list[tuple[list[int], float, Tensor | None]]:
        """Decode a batch of sources: token ids, score and attention weights of each."""
        source, lens = (part.to(self._device) for part in pad(rows))
        decoder, state = self._read(source, lens)
        found = choose(decoder, state, bos=BOS, eos=EOS, pad=PAD, max_len=max_len)
        ids = found.tolist()
        weights: list[Tensor | None] = [None] * len(rows)
        # what broken weights say may be nothing at all
        if looks and all(ids):
            inputs = pad([[BOS, *said[:-1]] for said in ids])[0].to(self._device)
            seen = self._look(source, lens, inputs, layer).float().cpu()
            weights = [seen[i, : len(ids[i]), : len(row)].clone() for i, row in enumerate(rows)]
        return list(zip(ids, found.scores.tolist(), weights, strict=True))

    def _read(self, source: Tensor, lens: Tensor) -> tuple[Decoder, State]:
        """Encode the sources: the decoder, and its initial state."""
        if isinstance(self.model, Seq2Seq):
            return self.model.decoder, self.model.encode(source, lens)
        return self.model.decode, self.model.init_state(self.model.encode(source, lens), lens)

    def _look(self, source: Tensor, lens: Tensor, inputs: Tensor, layer: int) -> Tensor:
        """Cross-attention weights (batch, targets, sources), by one forward pass over the output (teacher forcing)."""
        self.model(source, lens, inputs)
        if isinstance(self.model, Seq2Seq):
            weights = self.model.attention_weights
        else:
            weights = self.model.decoder[layer].attention2.attention_weights.mean(1)  # type: ignore[union-attr,operator]
        assert isinstance(weights, Tensor)
        return weights

    def _describe(
        self, text: str, source: list[int], ids: list[int], score: float, weights: Tensor | None
    ) -> Translation:
        said = self.join(self.target_tokenizer.decode(ids))
        tokens = tuple(self.source_tokenizer.list_tokens([*source, EOS]))
        spoken = tuple(self.target_tokenizer.list_tokens(ids))
        return Translation(text, said, score, tokens, spoken, source.count(UNK), weights, (*source, EOS), tuple(ids))


def _count_tokens(model: Seq2Seq | Transformer) -> tuple[int, int]:
    """The vocabulary sizes of source and target."""
    if isinstance(model, Seq2Seq):
        return model.encoder.embedding.num_embeddings, model.decoder.embedding.num_embeddings
    return model.config.vocab_size, model.config.target_vocab_size or model.config.vocab_size


def _check_texts(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise RegardError("texts must be a sequence of sentences, got one str: put it in a list.")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise RegardError(f"sentence {number} must be str, is a {type(text).__name__}.")
        if any("\ud800" <= mark <= "\udfff" for mark in text):
            raise RegardError(f"sentence {number} is not unicode (half a surrogate pair): read it as UTF-8.")
        yield text


def _batch(sources: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Batches of sources of similar length, the longest first: memory runs out at once or not at all."""
    order = sorted((i for i, source in enumerate(sources) if source), key=lambda i: -len(sources[i]))
    for _, group in itertools.groupby(order, key=lambda i: _round_up(len(sources[i]) + 1)):
        rows = list(group)
        while rows:
            size = max(1, min(batch_size, PLACES // (len(sources[rows[0]]) + 1)))
            yield rows[:size]
            rows = rows[size:]


def _round_up(length: int) -> int:
    return -(-length // WIDTH) * WIDTH
