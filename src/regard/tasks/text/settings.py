"""The settings of a job's model that may be changed: what each is, what it may be, and what it is now."""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any, NamedTuple

from regard.data.wordpiece import WordPiece
from regard.models import seq2seq_config, transformer_config
from regard.models.config import list_values
from regard.models.encoder_config import TRUNK, UNK, Config
from regard.tasks.reading import encoder_job
from regard.tasks.reading.encoder_job import EncoderJob, asks_pooler, check_changes
from regard.tasks.text import translate_job
from regard.tasks.text.pretrain_job import NEXT, PretrainJob
from regard.tasks.text.translate_job import Job


class Setting(NamedTuple):
    """A setting: what it may be, without a space, what it is, and what that means."""

    name: str
    values: str
    value: Any
    help: str


def list_settings(job: Job | EncoderJob) -> list[Setting]:
    """All that `changes` of a job may name, with its value under the job's model, preset and changes.

    >>> list_settings(Job.default("bahdanau"))[0]
    Setting(name='embed_size', values='>=1', value=64, help='width of the embeddings')

    What the data decide, or another option of the job, is not there.
    """
    config, fixed = _configure_encoder(job) if isinstance(job, EncoderJob) else _configure(job)
    return [_describe(x, config) for x in fields(config) if x.name not in fixed]


def check_settings(job: Job | EncoderJob) -> None:
    """Complain of a preset or a change that the model of a job has not; one that begins from another is seen there."""
    if not (isinstance(job, EncoderJob) and job.start):
        list_settings(job)


def _describe(field: Field[Any], config: Any) -> Setting:
    return Setting(field.name, list_values(field), getattr(config, field.name), field.metadata["help"])


def _configure(job: Job) -> tuple[Any, set[str]]:
    kind: Any = seq2seq_config.Config if job.model == "bahdanau" else transformer_config.Config
    changes = check_changes(job.model, kind, job.changes, translate_job.FIXED)
    # sizes of vocabularies are for the data to say
    sizes = (UNK, UNK) if kind is seq2seq_config.Config else (UNK,)
    return kind.preset(job.preset, *sizes, **changes), set(translate_job.FIXED)


def _configure_encoder(job: EncoderJob) -> tuple[Config, set[str]]:
    changes = check_changes(job.model, Config, job.changes)
    has_next = isinstance(job, PretrainJob) and job.has_next
    fixed = {*encoder_job.FIXED, "has_next", *(NEXT if has_next else ())}
    if not asks_pooler(job.head, has_next):
        fixed.add("has_pooler")
    given: dict[str, Any] = {"head": job.head, "labels": ("a", "b"), **changes}
    if job.start is None:
        # <mask> stands behind <unk>
        return Config.preset(job.preset, UNK + 2, kind=job.model, **given), fixed
    # brings torch
    from regard.tasks.reading.warm_start import open_start

    trunk, lexicon = open_start(job.start)
    if isinstance(lexicon.tokenizer, WordPiece):
        fixed |= {"word_dropout", "token_dropout"}
    return replace(trunk.config, **given), {*fixed, *TRUNK}
