"""Translation metrics: BLEU and chrF by sacreBLEU, with the signatures that make them comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from regard.core import RegardError
from regard.data.scripts import HAN, OTHERS, is_unspaced
from regard.extras import install

# those of sacreBLEU's that need nothing to be fetched or installed
Cut = Literal["13a", "intl", "zh", "char", "none"]


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF2, from 0 to 100; `exact` is how many of `count` sentences match their reference exactly."""

    bleu: float
    chrf: float
    exact: int
    bleu_signature: str
    chrf_signature: str
    count: int


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: Cut = "13a"
) -> Scores:
    """BLEU, chrF2 and exact matches of translations against references.

    >>> found = score(["the cat sat on the mat", "hello"], ["the cat sat on the mat", "hello world"])
    >>> found.exact, round(found.bleu, 1), found.bleu_signature[:18]
    (1, 86.7, 'nrefs:1|case:mixed')

    `tokenize` is how BLEU cuts words: "zh" for Chinese, "none" for text whose words stand between spaces already.
    With `lowercase` case does not count in any of the three.
    """
    if len(hypotheses) != len(references):
        raise RegardError(
            f"hypotheses and references must be as many, got {len(hypotheses)} and {len(references)}: one for each."
        )
    if not hypotheses:
        raise RegardError("hypotheses must hold at least one sentence to be scored, got none.")
    check_cut(tokenize)
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise RegardError(f"scores need the package sacrebleu: {install('train')}.") from None
    # force: no warning of text that is tokenised; whoever says "none" knows
    metrics = BLEU(lowercase=lowercase, tokenize=tokenize, force=True), CHRF(lowercase=lowercase)
    bleu, chrf = (metric.corpus_score(list(hypotheses), [list(references)]).score for metric in metrics)
    signatures = [str(metric.get_signature()) for metric in metrics]
    same = [
        said.lower() == meant.lower() if lowercase else said == meant
        for said, meant in zip(hypotheses, references, strict=True)
    ]
    return Scores(float(bleu), float(chrf), sum(same), signatures[0], signatures[1], len(same))


def check_cut(name: str) -> Cut:
    """Check that `name` is a tokenizer of sacreBLEU that `score` takes."""
    for cut in get_args(Cut):
        if cut == name:
            return cut  # type: ignore[no-any-return]
    raise RegardError(f"tokenize must be one of {', '.join(get_args(Cut))}, got {name!r}.")


def choose_cut(references: Sequence[str], joiner: str | None) -> Cut:
    """The sacreBLEU tokenizer for such references: "none" where split already, by characters without spaces, else 13a.

    >>> choose_cut(["I love you."], None), choose_cut(["我爱你。"], None), choose_cut(["I lo@@ ve you ."], "@@ ")
    ('13a', 'zh', 'none')
    """
    if joiner:
        return "none"
    if not is_unspaced(references):
        return "13a"
    sample = "".join(references[:1000])
    return "zh" if len(HAN.findall(sample)) > 4 * len(OTHERS.findall(sample)) else "char"
