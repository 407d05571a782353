"""What is timed: sizes as they are written, operations as they are counted."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from mha_numpy import costs
from mha_parity.bench.task_arrays import draw_task
from mha_parity.bench.tasks import GPT3, LARGE, SETS, Size, Task, parse_sizes, tasks


def test_sizes_are_read_as_they_are_printed() -> None:
    """Numbers, names of sets and repetitions: each size once, in the order of its first mention."""
    found = parse_sizes("8,128,512,8; small ;8,128,512,8;gpt3")

    assert (LARGE[0], *SETS["small"], *GPT3) == found
    assert "8,128,512,8" == str(found[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should name a size"),
        (";", "should name a size"),
        ("1,2,3", "got the size '1,2,3'"),
        ("1,2,x,3", "N,L,E,H, or one of small"),
        ("1,0,4,2", "got the size '1,0,4,2'"),
        ("1,5,7,2", "E = 7 should be a multiple of H = 2"),
        ("huge", "got the size 'huge'"),
    ],
)
def test_other_words_are_no_sizes(text: str, said: str) -> None:
    """What is neither four numbers with H dividing E nor a set's name is refused in a sentence."""
    with pytest.raises(argparse.ArgumentTypeError, match="got") as caught:
        parse_sizes(text)

    assert said in str(caught.value)


def test_every_combination_is_a_task_of_its_own_name() -> None:
    """Two sizes, with and without each of causal, padded and backward: 16 names."""
    both = (False, True)
    work = tasks(SETS["small"], both, both, both)

    assert 16 == len({task.name for task in work})
    assert "1,5,6,3" == work[0].name
    assert "2,16,64,4 causal padded backward" == work[-1].name


@pytest.mark.parametrize("size", [Size(1, 5, 6, 3), Size(3, 7, 10, 2)])
def test_operations_are_those_of_the_products(size: Size) -> None:
    """Without masks they are the products' among the layer's costs; backward adds twice as many."""
    counted = costs.flops(size.length, size.embed_dim, size.num_heads, batch_size=size.batch)
    products = counted.total - counted.softmax

    assert products == Task(size=size).flops
    assert 3 * products == Task(size=size, backward=True).flops


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_hidden_cells_need_no_operations(causal: bool, padded: bool) -> None:
    """The operations are those of the pairs that the masks of the drawn problem leave visible."""
    task = Task(size=Size(3, 7, 10, 2), causal=causal, padded=padded)
    visible = int((~draw_task(task).problem().hidden()).sum())
    projections = 2 * 3 * 7 * 4 * 10 * 10

    assert projections + 4 * 5 * visible == task.flops


def test_padding_leaves_every_sample_another_length() -> None:
    """The valid keys lie between half of them and all, and a mask says so."""
    task = Task(size=Size(3, 16, 10, 2), padded=True)
    mask = draw_task(task).key_padding_mask

    assert (14, 12, 10) == task.lengths
    assert mask is not None
    np.testing.assert_array_equal([14, 12, 10], (~mask).sum(axis=1))
