"""Lazy, batched training: when it trains, what it counts, and that nobody can tell the difference."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob
from async_hfl.core.weights import frozen
from async_hfl.learning.null import NullLearner
from async_hfl.simulation.training_pool import TrainingPool

LEARNER = NullLearner(8, 4, gradient=True)


def job(number: int) -> TrainingJob:
    return TrainingJob(JobId(0, 1, number), number % 8, frozen(np.full(4, number, np.float32)), 1000 + number)


def filled(count: int, *, batching: bool) -> TrainingPool:
    pool = TrainingPool(LEARNER, batching=batching)
    for number in range(count):
        pool.expect(job(number))
    return pool


def test_nothing_is_trained_before_a_result_is_due() -> None:
    pool = filled(5, batching=True)
    assert (pool.counts.calls, pool.counts.trained) == (0, 0)
    pool.result(job(3).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used, pool.counts.largest) == (1, 5, 1, 5)
    for number in (0, 1, 2, 4):
        pool.result(job(number).job)
    assert (pool.counts.calls, pool.counts.used, pool.counts.wasted) == (1, 5, 0)


def test_one_by_one() -> None:
    pool = filled(5, batching=False)
    for number in (3, 0):
        pool.result(job(number).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.largest, pool.counts.wasted) == (2, 2, 1, 0)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_a_result_is_the_same_however_it_was_trained(order: list[int]) -> None:
    pools = [filled(5, batching=True), filled(5, batching=False)]
    for number in order:
        batched, single = (pool.result(job(number).job) for pool in pools)
        assert batched.weights.tobytes() == single.weights.tobytes()
        assert batched.loss == single.loss
        assert batched.gradient is not None
        assert single.gradient is not None
        assert batched.gradient.tobytes() == single.gradient.tobytes()


def test_a_job_that_is_forgotten() -> None:
    pool = filled(3, batching=True)
    pool.forget(job(0).job)
    assert job(0).job not in pool
    assert job(1).job in pool
    pool.result(job(1).job)
    assert pool.counts.trained == 2
    pool.forget(job(2).job)
    assert job(2).job not in pool
    assert pool.counts.wasted == 1


def test_a_result_that_nobody_announced() -> None:
    pool = filled(1, batching=True)
    with pytest.raises(InvariantViolation, match=r"g0\.1\.7"):
        pool.result(job(7).job)
    pool.result(job(0).job)
    with pytest.raises(InvariantViolation):
        pool.result(job(0).job)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_snapshot_goes_on_with_the_same_results_and_counts(batching: bool, chunk: int) -> None:
    pool = filled(6, batching=batching)
    pool.result(job(1).job)
    restored = TrainingPool(LEARNER, batching=batching)
    restored.restore(list(pool.snapshot(chunk)))
    assert restored.counts == pool.counts
    for number in (5, 0, 2):
        assert restored.result(job(number).job).weights.tolist() == pool.result(job(number).job).weights.tolist()
    assert restored.counts == pool.counts
    assert job(1).job not in restored


def test_a_slow_device_does_not_keep_the_models_of_all_others() -> None:
    """Results of one call share its memory; once few of them wait, those are copied out."""
    learner = NullLearner(8, 5000, gradient=True)
    pool = TrainingPool(learner, batching=True)
    start = frozen(np.zeros(5000, np.float32))
    jobs = [TrainingJob(JobId(0, 1, number), number, start, number) for number in range(8)]
    for one in jobs:
        pool.expect(one)
    expected = learner.train_many(jobs)
    taken = [pool.result(one.job) for one in jobs[:5]]
    assert all(result.weights.base is not None for result in taken), "the learner gives views; else this tests nothing"
    pool.forget(jobs[5].job)
    slow = [pool.result(one.job) for one in jobs[6:]]
    for result, right in zip(slow, expected[6:], strict=True):
        assert result.weights.base is None
        assert result.gradient is not None
        assert result.gradient.base is None
        assert not result.weights.flags.writeable
        assert (result.weights == right.weights).all()
        assert (result.gradient == right.gradient).all()
