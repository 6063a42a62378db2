"""Jobs divided into chunks: every step once, in order, with little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.learning.engine.plans.step_chunks import chunk_length, step_chunks


@pytest.mark.parametrize(
    ("steps", "most", "length"),
    [
        (1, 1, 1),
        (30, 30, 30),  # all jobs of MNIST: no padding
        (17, 32, 32),
        (16, 32, 16),  # not all of 32 for jobs half as long
        (1, 17, 16),
        (1, 9, 9),
        (33, 33, 11),
        (50, 50, 10),  # CIFAR-10: no padding either
        (5, 50, 10),
        (289, 289, 16),
        (1445, 1445, 16),
    ],
)
def test_by_hand(steps: int, most: int, length: int) -> None:
    assert chunk_length(steps, most) == length


@given(st.integers(1, 100_000), st.data())
def test_a_chunk_is_short_and_has_little_padding(most: int, data: st.DataObject) -> None:
    length = chunk_length(most, most)
    assert length == most if most <= 32 else 9 <= length <= 16
    assert 16 * (-most % length) <= most, "less than a sixteenth of the longest jobs is padding"
    steps = data.draw(st.integers(1, most))
    assert -steps % chunk_length(steps, most) < max(16, steps)


def test_two_jobs_in_chunks_of_two() -> None:
    def told(passes: range) -> list[tuple[list[list[int]], list[list[int]]]]:
        return [(turn.tolist(), step.tolist()) for turn, step in step_chunks(np.array([2, 1]), passes, 2)]

    first, second = ([[0, 0], [0, 1]], [[0, 1], [0, 0]]), ([[1, 1], [1, 1]], [[0, 1], [0, 0]])
    assert told(range(2)) == [first, second]
    assert told(range(1, 2)) == [second]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 16), st.data())
def test_every_step_once_and_in_order(steps: list[int], passes: int, length: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, passes - 1))
    end = data.draw(st.integers(begin + 1, passes))
    chunks = list(step_chunks(np.array(steps), range(begin, end), length))
    assert len(chunks) == -(-max(steps) * (end - begin) // length)
    turns, places = (np.concatenate(part, axis=1) for part in zip(*chunks, strict=True))
    for job, own in enumerate(steps):
        wanted = [(turn, step) for turn in range(begin, end) for step in range(own)]
        found = list(zip(turns[job].tolist(), places[job].tolist(), strict=True))
        assert found[: len(wanted)] == wanted
        assert set(found[len(wanted) :]) <= {wanted[-1]}
