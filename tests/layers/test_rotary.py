"""Rotations by position: the paper's formula, Llama's layout, and the law that makes them useful."""

import copy
import math

import pytest
import torch

from regard import attend
from regard.core import RegardError
from regard.layers.rotary import Rotary
from regard.mask import Causal
from tests.tolerances import assert_close

LAYOUTS = [True, False]


def turn(x: torch.Tensor, base: float, offset: int) -> torch.Tensor:
    """The paper's block-diagonal matrix of 2×2 rotations, written out for each position."""
    width = x.shape[-1] // 2 * 2
    out = x.clone()
    for i in range(x.shape[-2]):
        matrix = torch.eye(x.shape[-1], dtype=torch.float64)
        for j in range(0, width, 2):
            angle = (i + offset) * base ** (-j / width)
            matrix[j, j] = matrix[j + 1, j + 1] = math.cos(angle)
            matrix[j, j + 1], matrix[j + 1, j] = -math.sin(angle), math.sin(angle)
        out[..., i, :] = x[..., i, :] @ matrix.T
    return out


def llama(x: torch.Tensor, base: float, offset: int) -> torch.Tensor:
    """`apply_rotary_pos_emb` of transformers' Llama, in float64."""
    inverse = 1.0 / (base ** (torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1]))
    frequencies = torch.outer(torch.arange(offset, offset + x.shape[-2], dtype=torch.float64), inverse)
    both = torch.cat((frequencies, frequencies), dim=-1)
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * both.cos() + rotated * both.sin()


@pytest.mark.parametrize("width", [2, 6, 7])
@pytest.mark.parametrize(("base", "offset"), [(10000.0, 0), (500.0, 3)])
def test_interleaved_is_the_papers_matrix(width, base, offset):
    x = torch.randn(2, 3, 5, width, dtype=torch.float64)
    assert_close(Rotary(width, base)(x, offset), turn(x, base, offset))


@pytest.mark.parametrize(("base", "offset"), [(10000.0, 0), (500.0, 3)])
def test_halves_are_llamas(base, offset):
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    assert_close(Rotary(8, base, interleaved=False)(x, offset), llama(x, base, offset))


def test_the_layouts_are_one_up_to_a_shuffle_of_columns():
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    assert_close(Rotary(8, interleaved=False)(x[..., order]), Rotary(8)(x)[..., order])


@pytest.mark.parametrize("interleaved", LAYOUTS)
@pytest.mark.parametrize("width", [6, 7])
def test_scores_feel_the_distance_alone(interleaved, width):
    # the same query and key everywhere: what is left is a matrix of i − j
    rotary = Rotary(width, interleaved=interleaved)
    query, key = (torch.randn(1, 1, 1, width, dtype=torch.float64).expand(1, 1, 9, width) for _ in range(2))
    scores = (rotary(query) @ rotary(key).mT)[0, 0]
    for distance in range(-8, 9):
        same = scores.diagonal(distance)
        assert_close(same, same[:1].expand_as(same))
    # which they do feel, from both sides
    assert (scores[0, 1:] - scores[0, :-1]).abs().min() > 1e-4
    assert (scores - scores.T).abs().max() > 1e-2
    # and moving both moves nothing
    assert_close((rotary(query, 1000) @ rotary(key, 1000).mT)[0, 0], scores)


@pytest.mark.parametrize("interleaved", LAYOUTS)
def test_norms_are_kept(interleaved):
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    assert_close(Rotary(7, interleaved=interleaved)(x, 99).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("interleaved", LAYOUTS)
def test_decoding_with_a_cache_of_turned_keys_is_the_whole(interleaved):
    rotary = Rotary(6, interleaved=interleaved, max_len=2)
    query, key, value = torch.randn(3, 2, 4, 9, 6, dtype=torch.float64)
    whole = attend(rotary(query), rotary(key), value, mask=Causal())
    cache = torch.empty(2, 4, 0, 6, dtype=torch.float64)
    for i in range(9):
        cache = torch.cat((cache, rotary(key[:, :, i : i + 1], offset=i)), 2)
        step = attend(rotary(query[:, :, i : i + 1], offset=i), cache, value[:, :, : i + 1], mask=Causal())
        assert_close(step, whole[:, :, i : i + 1])


@pytest.mark.parametrize("interleaved", LAYOUTS)
def test_one_offset_for_each_sequence(interleaved):
    rotary = Rotary(6, interleaved=interleaved)
    for x in (torch.randn(2, 4, 3, 6), torch.randn(2, 3, 6), torch.randn(2, 2, 2, 3, 6)):
        out = rotary(x, torch.tensor([5, 0]))
        assert torch.equal(out[0], rotary(x[:1], 5)[0])
        assert torch.equal(out[1], rotary(x[1:])[0])
        assert torch.equal(rotary(x, torch.tensor(5)), rotary(x, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("interleaved", LAYOUTS)
def test_each_dtype_is_rounded_once_and_far_positions_are_exact(dtype, interleaved):
    x = torch.randn(2, 3, 5, 7, dtype=dtype)
    exact = Rotary(7, interleaved=interleaved)(x.double(), 10**6)
    out = Rotary(7, interleaved=interleaved).to(dtype)(x, 10**6)
    assert out.dtype == dtype
    # half an ulp, and what float32 loses on the way
    allowed = torch.finfo(dtype).eps / 2 * exact.abs() + 1e-6
    assert ((out.double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("interleaved", LAYOUTS)
def test_gradients(interleaved):
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    rotary = Rotary(7, interleaved=interleaved)
    assert torch.autograd.gradcheck(lambda x: rotary(x, 3), x)


def test_it_has_no_state_and_copies():
    rotary, x = Rotary(6, 77.0, interleaved=False, max_len=3), torch.randn(2, 3, 5, 6)
    out = rotary(x)
    assert rotary.state_dict() == {}
    assert list(rotary.parameters()) == []
    assert torch.equal(copy.deepcopy(rotary)(x), out)
    assert repr(rotary) == "Rotary(head_width=6, base=77.0, interleaved=False)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Rotary(1), "Rotary head_width must be at least 2, a pair of columns to rotate, got 1."),
        (lambda: Rotary(4, base=0), "Rotary base must be positive, got 0."),
        (lambda: Rotary(4, max_len=0), "Rotary max_len must be at least 1, got 0."),
        (
            lambda: Rotary(4)(torch.zeros(1, 2, 3, 5)),
            "Rotary x must be (batch, heads, positions, head_width=4), got shape (1, 2, 3, 5).",
        ),
        (
            lambda: Rotary(4)(torch.zeros(4)),
            "Rotary x must be (batch, heads, positions, head_width=4), got shape (4,).",
        ),
        (lambda: Rotary(4)(torch.zeros(1, 3, 4).long()), "Rotary x must be floating point, got int64."),
        (lambda: Rotary(4)("x"), "Rotary x must be a tensor, got str."),
        (lambda: Rotary(4)(torch.zeros(2, 3, 4), -2), "Rotary offset must be at least 0, got -2."),
        (
            lambda: Rotary(4)(torch.zeros(3, 4), torch.tensor([1, 2])),
            "Rotary offset must be a number, got shape (2,).",
        ),
    ],
)
def test_wrong_inputs_are_named(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message
