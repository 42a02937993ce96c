"""The data of recall and order, read again by who knows only what the puzzle says."""

import pytest
import torch

from regard import RegardError
from regard.compare.measure.puzzles import make_order, make_recall


def read_recall(tokens, noise):
    """The marked value and its distance from the question, from a list of tokens."""
    assert tokens[-1] == 2 * noise
    [place] = [at for at, token in enumerate(tokens[:-1]) if token >= noise]
    return tokens[place] - noise, len(tokens) - 1 - place


def read_order(tokens, noise):
    assert tokens[-1] == noise + 3
    text = "".join("abc"[token - noise] if token >= noise else "." for token in tokens[:-1])
    answer = ["abc", "cba"].index(text.strip("."))
    return answer, len(text) - text.rindex("abc" if answer == 0 else "cba") - 2


PUZZLES = [(make_recall(5), read_recall, 5), (make_order(4), read_order, 4)]
PUZZLES = [pytest.param(*puzzle, id=puzzle[0].name) for puzzle in PUZZLES]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_it_says_what_the_answer_is_and_where(puzzle, read, noise):
    farthest = puzzle.find_farthest(11)
    distances = torch.arange(1, farthest + 1).repeat(puzzle.num_answers)
    answers = torch.arange(puzzle.num_answers).repeat_interleave(farthest)
    tokens = puzzle.write(11, distances, answers, seeded())
    told = [read(row, noise) for row in tokens.tolist()]
    assert told == list(zip(answers.tolist(), distances.tolist(), strict=True))
    assert {token for row in tokens.tolist() for token in row} == set(range(puzzle.num_tokens))


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_near_and_far_are_drawn_alike(puzzle, read, noise):
    length = 40
    tokens, answers = puzzle.draw(4000, length, seeded())
    told = [read(row, noise) for row in tokens.tolist()]
    assert [answer for answer, _ in told] == answers.tolist()
    distances = torch.tensor([distance for _, distance in told], dtype=torch.float64)
    farthest = puzzle.find_farthest(length)
    assert (distances.min(), distances.max()) == (1, farthest)
    # in the logarithm they are uniform: of 1 to 5 there are as many as log 6 is of log(farthest + 1)
    share = torch.tensor(6.0).log() / torch.tensor(farthest + 1.0).log()
    assert abs((distances <= 5).double().mean() - share) < 0.03
    assert (answers.bincount() > 0.9 * 4000 / puzzle.num_answers).all()


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_each_context_is_asked_with_every_answer(puzzle, read, noise):
    tokens, answers = puzzle.ask(6, 12, 7, seeded())
    assert [read(row, noise) for row in tokens.tolist()] == [(answer, 7) for answer in answers.tolist()]
    assert answers.bincount().tolist() == [6] * puzzle.num_answers
    hidden = tokens.masked_fill((tokens >= noise) & (tokens < puzzle.num_tokens - 1), -1)
    assert hidden.unflatten(0, (puzzle.num_answers, 6)).unique(dim=0).shape[0] == 1
    assert hidden.unique(dim=0).shape[0] == 6


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_the_same_generator_draws_the_same(puzzle, read, noise):
    one, same, other = (puzzle.draw(8, 12, seeded(seed))[0] for seed in (0, 0, 1))
    assert one.equal(same)
    assert not one.equal(other)


def test_what_has_no_room_is_named():
    with pytest.raises(RegardError) as error:
        make_order(4).find_farthest(3)
    assert str(error.value) == "order needs a length of more than 3, got 3."
    with pytest.raises(RegardError) as error:
        make_recall(4).ask(1, 5, 5, seeded())
    assert str(error.value) == "recall distances must be from 1 to 4, for a length of 5."
    with pytest.raises(RegardError):
        make_recall(4).ask(1, 5, 0, seeded())
