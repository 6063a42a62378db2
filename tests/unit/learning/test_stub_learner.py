from __future__ import annotations

import time

import numpy as np
import pytest

from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Learner, TrainingJob, TrainingResult
from async_hfl.learning.tasks.stub_learner import StubLearner


def jobs_of(learner: StubLearner, count: int) -> list[TrainingJob]:
    starts = [learner.initial_weights(seed) for seed in range(3)]
    return [
        TrainingJob(JobId(0, 0, number), number % 5, starts[number % 3], (number * 0x9E3779B97F4A7C15) % 2**64)
        for number in range(count)
    ]


def key(result: TrainingResult) -> tuple[object, ...]:
    gradient = None if result.gradient is None else result.gradient.tobytes()
    return (result.weights.tobytes(), gradient, result.samples, result.steps, result.loss, result.squared_loss)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("size", [1, 7, 300])
def test_grouping_does_not_matter(size: int, gradient: bool) -> None:
    learner: Learner = StubLearner(5, size, gradient)
    jobs = jobs_of(StubLearner(5, size), 700)
    together = [key(result) for result in learner.train_many(jobs)]
    assert together == [key(learner.train_many([job])[0]) for job in jobs]
    assert together[::-1] == [key(result) for result in learner.train_many(jobs[::-1])]
    assert len(set(together)) == 700


def test_statistics_are_no_part_of_a_gradient() -> None:
    whole, shorter = StubLearner(5, 4, gradient=True), StubLearner(5, 4, gradient=True, statistics=1)
    assert (whole.gradient_size, shorter.gradient_size) == (4, 3)
    jobs = jobs_of(whole, 3)
    for one, other in zip(whole.train_many(jobs), shorter.train_many(jobs), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.gradient[:3], other.gradient)


def test_results_depend_on_start_and_seed() -> None:
    learner = StubLearner(5, 4)
    start, other = learner.initial_weights(1), learner.initial_weights(2)
    same = [TrainingJob(JobId(0, 0, n), n, start, 9) for n in range(2)]
    assert len({key(result) for result in learner.train_many(same)}) == 1, "independent of the device and the id"
    assert key(learner.train_many([TrainingJob(JobId(0, 0, 0), 0, other, 9)])[0]) != key(learner.train_many(same)[0])


def test_weights_stay_bounded_and_read_only() -> None:
    learner = StubLearner(5, 16, gradient=True)
    weights = learner.initial_weights(1)
    for seed in range(500):
        [result] = learner.train_many([TrainingJob(JobId(0, 0, seed), 0, weights, seed)])
        weights = result.weights
        assert not weights.flags.writeable
        assert result.gradient is not None
        assert not result.gradient.flags.writeable
    assert np.abs(weights).max() <= 1
    assert weights.dtype == np.float32


def test_the_target_cannot_be_reached() -> None:
    learner = StubLearner(5, 16)
    for seed in range(20):
        evaluation = learner.evaluate(learner.initial_weights(seed))
        assert 0 <= evaluation.metric <= 1
        assert not learner.target.passes(evaluation.metric)


def test_start_weights_do_not_change() -> None:
    learner = StubLearner(5, 16)
    start = learner.initial_weights(1)
    before = start.copy()
    learner.train_many([TrainingJob(JobId(0, 0, 0), 0, start, 1)])
    assert (start == before).all()


def test_shapes() -> None:
    learner = StubLearner(7, 12)
    assert learner.layout.size == 12
    assert learner.model_bytes == 48
    assert list(learner.samples) == [1] * 7
    assert learner.train_many([]) == []


def test_it_is_fast_enough_to_measure_the_simulator() -> None:
    """A job takes less than 5 microseconds; the best of a few attempts, since cores are shared."""
    learner = StubLearner(5, 32)
    jobs = jobs_of(learner, 1000)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        learner.train_many(jobs)
        best = min(best, time.perf_counter() - began)
    assert best / len(jobs) < 5e-6
