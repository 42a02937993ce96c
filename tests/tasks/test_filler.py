"""Words for blanks by a BERT: rows to spare, holes and what is unknown are no words."""

from __future__ import annotations

import pytest
import torch

from regard import RegardError
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.models.encoder import Config, Encoder
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.filler import Filler, score_filler
from tests.tasks.reading import LOUD

pytest.importorskip("tokenizers")

WORDS = ("the", "cat", "##s")


@pytest.fixture(scope="module")
def filler():
    # there is no piece 5
    vocab = {token: number + (number > 4) for number, token in enumerate([*SPECIAL, *WORDS])}
    lexicon = Lexicon(WordPiece.from_vocab(vocab))
    torch.manual_seed(0)
    config = Config(lexicon.vocab_size + 8, head="words", dropout=0.9, embed_dropout=0.9, **LOUD)
    model = Encoder(config).eval()
    with torch.no_grad():
        # what is no word is what it would say
        model.words.bias[[1, 5, *range(9, 17)]] = 50
    return Filler(model, lexicon)


def test_what_is_no_word_is_no_guess(filler):
    found = filler.fill("the ___", top=99)
    assert {guess.word for guess in found.guesses[0]} == set(WORDS)
    assert sum(guess.score for guess in found.guesses[0]) == pytest.approx(1)


def test_a_model_in_training_guesses_the_same(filler):
    expected = filler.fill("the ___ cats", 3)
    filler.model.train()
    try:
        assert filler.fill("the ___ cats", 3) == expected
        assert filler.model.training
    finally:
        filler.model.eval()


def test_no_more_is_read_than_there_are_positions(filler):
    config = Config(filler.lexicon.vocab_size, head="words", position="learned", max_len=4, **LOUD)
    assert Filler(Encoder(config), filler.lexicon, 99).max_length == 4


def test_a_model_without_a_head_has_no_scores(filler, tmp_path):
    Encoder(Config(filler.lexicon.vocab_size, head="none", **LOUD)).save_pretrained(tmp_path)
    with pytest.raises(RegardError) as error:
        score_filler(tmp_path, [("the cats",)])
    assert str(error.value) == f"{tmp_path} has no head that answers: name a run that was trained for a task."
