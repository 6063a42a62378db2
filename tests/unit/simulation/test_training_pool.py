"""Lazy, batched training: its moments, its counts, and results that do not depend on the batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, PrefetchPolicy, Results, TrainingJob, TrainingResult
from async_hfl.core.randomness import stream_seed, training_seed
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.simulation.training_pool import TrainingPool

SEED = 5
LEARNER = StubLearner(8, 4, gradient=True)


def job(number: int) -> TrainingJob:
    name = JobId(0, 1, number)
    seed = training_seed(stream_seed(SEED, "training"), name)
    return TrainingJob(name, number % 8, frozen(np.full(4, number, np.float32)), seed, number // 8)


def expect(pool: TrainingPool, job: TrainingJob) -> None:
    pool.expect(job.job, job.device, job.weights)


def filled(count: int, *, batching: bool) -> TrainingPool:
    pool = TrainingPool(LEARNER, SEED, batching=batching)
    for number in range(count):
        expect(pool, job(number))
    return pool


def test_nothing_is_trained_before_a_result_is_due() -> None:
    pool = filled(5, batching=True)
    assert (pool.counts.calls, pool.counts.trained) == (0, 0)
    pool.result(job(3).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used, pool.counts.largest) == (1, 5, 1, 5)
    for number in (0, 1, 2, 4):
        pool.result(job(number).job)
    assert (pool.counts.calls, pool.counts.used, pool.counts.wasted) == (1, 5, 0)


def test_training_one_by_one() -> None:
    pool = filled(5, batching=False)
    for number in (3, 0):
        pool.result(job(number).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.largest, pool.counts.wasted) == (2, 2, 1, 0)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_a_result_does_not_depend_on_how_jobs_are_batched(order: list[int]) -> None:
    pools = [filled(5, batching=True), filled(5, batching=False)]
    for number in order:
        batched, single = (pool.result(job(number).job) for pool in pools)
        assert batched.weights.tobytes() == single.weights.tobytes()
        assert batched.loss == single.loss
        assert batched.gradient is not None
        assert single.gradient is not None
        assert batched.gradient.tobytes() == single.gradient.tobytes()


def test_a_forgotten_job_is_not_trained() -> None:
    pool = filled(3, batching=True)
    pool.forget(job(0).job)
    assert job(0).job not in pool
    assert job(1).job in pool
    pool.result(job(1).job)
    assert pool.counts.trained == 2
    pool.forget(job(2).job)
    assert job(2).job not in pool
    assert pool.counts.wasted == 1


def test_the_result_of_a_job_that_was_not_announced_is_an_error() -> None:
    pool = filled(1, batching=True)
    with pytest.raises(InvariantViolation, match=r"g0\.1\.7"):
        pool.result(job(7).job)
    pool.result(job(0).job)
    with pytest.raises(InvariantViolation):
        pool.result(job(0).job)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_restored_pool_has_the_same_results_and_counts(batching: bool, chunk: int) -> None:
    pool = filled(6, batching=batching)
    pool.result(job(1).job)
    restored = TrainingPool(LEARNER, SEED, batching=batching)
    restored.restore(list(pool.snapshot(chunk, train=True)))
    assert restored.counts == pool.counts
    for number in (5, 0, 2):
        assert restored.result(job(number).job).weights.tolist() == pool.result(job(number).job).weights.tolist()
    assert restored.counts == pool.counts
    assert job(1).job not in restored


def test_results_of_slow_devices_are_copied_out_of_the_memory_of_their_call() -> None:
    """Results of one call share its memory; the last few are copied, so that the memory can be freed."""
    learner = StubLearner(8, 5000, gradient=True)
    pool = TrainingPool(learner, SEED, batching=True)
    start = frozen(np.zeros(5000, np.float32))
    jobs = [replace(job(number), weights=start) for number in range(8)]
    for one in jobs:
        expect(pool, one)
    expected = learner.train_many(jobs)
    taken = [pool.result(one.job) for one in jobs[:5]]
    assert all(result.weights.base is not None for result in taken), (
        "the learner must return views, else this tests nothing"
    )
    pool.forget(jobs[5].job)
    slow = [pool.result(one.job) for one in jobs[6:]]
    for result, right in zip(slow, expected[6:], strict=True):
        assert result.weights.base is None
        assert result.gradient is not None
        assert result.gradient.base is None
        assert not result.weights.flags.writeable
        assert (result.weights == right.weights).all()
        assert (result.gradient == right.gradient).all()


class BackgroundLearner(StubLearner):
    """Records when calls begin and when they are collected."""

    def __init__(self, prefetch: PrefetchPolicy | None) -> None:
        super().__init__(8, 4, gradient=True)
        self.prefetch = prefetch
        self.log: list[tuple[str, list[int]]] = []

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        numbers = [job.job.number for job in jobs]
        self.log.append(("begin", numbers))

        def results() -> list[TrainingResult]:
            self.log.append(("collect", numbers))
            return self.train_many(jobs)

        return results

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        self.log.append(("evaluate", []))

        def answer() -> Evaluation:
            self.log.append(("answer", []))
            return self.evaluate(weights)

        return answer


def prefetching(prefetch: PrefetchPolicy | None, count: int) -> tuple[BackgroundLearner, TrainingPool]:
    learner = BackgroundLearner(prefetch)
    pool = TrainingPool(learner, SEED, batching=True)
    for number in range(count):
        expect(pool, job(number))
    return learner, pool


def test_without_results_left_no_call_begins_early() -> None:
    learner, pool = prefetching(PrefetchPolicy(2, 0.0, 4), 5)
    assert learner.log == []
    pool.result(job(0).job)
    assert learner.log == [("begin", [0, 1, 2, 3, 4]), ("collect", [0, 1, 2, 3, 4])]


def test_a_call_begins_when_enough_jobs_wait_and_is_collected_when_one_is_due() -> None:
    learner, pool = prefetching(PrefetchPolicy(2, 0.0, 2), 4)
    pool.result(job(0).job)
    learner.log.clear()
    for number in range(4, 11):
        expect(pool, job(number))
    assert learner.log == [("begin", [4, 5]), ("begin", [6, 7])]  # two calls at most
    pool.forget(job(6).job)
    assert job(6).job not in pool
    assert job(7).job in pool
    pool.result(job(7).job)
    assert learner.log[2:] == [("collect", [6, 7]), ("begin", [8, 9, 10])]
    for number in (1, 9, 4, 5, 10):
        assert pool.result(job(number).job).weights.tolist() == LEARNER.train_many([job(number)])[0].weights.tolist()
    assert learner.log[4:] == [("collect", [8, 9, 10]), ("collect", [4, 5])]
    with pytest.raises(InvariantViolation):
        pool.result(job(6).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used) == (4, 11, 7)


def test_a_waiting_job_that_is_due_is_trained_with_all_others_that_wait() -> None:
    learner, pool = prefetching(PrefetchPolicy(3, 0.0, 4), 3)
    pool.result(job(0).job)
    learner.log.clear()
    for number in (3, 4, 5, 6, 7):
        expect(pool, job(number))
    pool.result(job(7).job)
    assert learner.log == [("begin", [3, 4, 5]), ("begin", [6, 7]), ("collect", [6, 7])]


def test_a_call_begins_when_enough_of_all_jobs_wait() -> None:
    learner, pool = prefetching(PrefetchPolicy(1, 0.5, 4), 4)
    pool.result(job(0).job)
    learner.log.clear()
    for number in (4, 5, 6):
        expect(pool, job(number))
    assert learner.log == [("begin", [4, 5, 6])]


def test_without_a_prefetch_policy_no_call_begins_early() -> None:
    learner, pool = prefetching(None, 3)
    pool.result(job(0).job)
    for number in range(3, 8):
        expect(pool, job(number))
    assert len(learner.log) == 2


def test_a_snapshot_collects_the_calls_in_progress() -> None:
    learner, pool = prefetching(PrefetchPolicy(2, 0.0, 2), 2)
    pool.result(job(0).job)
    for number in (2, 3, 4):
        expect(pool, job(number))
    parts = list(pool.snapshot(100, train=True))
    assert learner.log[-3:] == [("collect", [2, 3]), ("begin", [4]), ("collect", [4])]
    restored = TrainingPool(BackgroundLearner(PrefetchPolicy(2, 0.0, 2)), SEED, batching=True)
    restored.restore(parts)
    for number in (1, 2, 3, 4):
        assert restored.result(job(number).job).weights.tolist() == pool.result(job(number).job).weights.tolist()
    assert restored.counts == pool.counts


# Calls and evaluations in order ----------------------------------------------------------------------------------


def in_order(count: int) -> tuple[BackgroundLearner, TrainingPool]:
    """A pool that begins a call of two jobs, two calls at most. The results of jobs 1, 2 and 3 are left."""
    learner, pool = prefetching(PrefetchPolicy(2, 0.0, 2, in_order=True), 4)
    pool.result(job(0).job)
    learner.log.clear()
    for number in range(4, 4 + count):
        expect(pool, job(number))
    return learner, pool


def evaluated(pool: TrainingPool) -> None:
    model = LEARNER.initial_weights(1)
    assert pool.begin_evaluation(model)() == pool.learner.evaluate(model)


EVALUATED: list[tuple[str, list[int]]] = [("evaluate", []), ("answer", [])]


def test_the_answer_of_an_evaluation_collects_the_calls_before_it() -> None:
    learner, pool = in_order(6)
    evaluated(pool)
    assert learner.log == [
        ("begin", [4, 5]),
        ("begin", [6, 7]),
        *EVALUATED,
        ("collect", [4, 5]),
        ("collect", [6, 7]),
        ("begin", [8, 9]),
    ]
    learner.log.clear()
    for number in (6, 4, 1):
        assert pool.result(job(number).job).weights.tolist() == LEARNER.train_many([job(number)])[0].weights.tolist()
    assert learner.log == []
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used) == (4, 10, 4)


def test_the_answer_does_not_collect_calls_that_began_after_the_evaluation() -> None:
    learner, pool = in_order(2)
    answer = pool.begin_evaluation(LEARNER.initial_weights(1))
    for number in (6, 7):
        expect(pool, job(number))
    answer()
    assert learner.log == [("begin", [4, 5]), ("evaluate", []), ("begin", [6, 7]), ("answer", []), ("collect", [4, 5])]


def test_two_evaluations_in_progress_are_answered_in_either_order() -> None:
    learner, pool = in_order(2)
    first = pool.begin_evaluation(LEARNER.initial_weights(1))
    for number in (6, 7):
        expect(pool, job(number))
    second = pool.begin_evaluation(LEARNER.initial_weights(2))
    assert second() == LEARNER.evaluate(LEARNER.initial_weights(2))
    assert first() == LEARNER.evaluate(LEARNER.initial_weights(1))
    assert learner.log[4:] == [("answer", []), ("collect", [4, 5]), ("collect", [6, 7]), ("answer", [])]


def test_the_answer_does_not_bring_back_forgotten_jobs() -> None:
    _, pool = in_order(2)
    pool.forget(job(4).job)
    evaluated(pool)
    assert job(5).job in pool
    assert job(4).job not in pool
    with pytest.raises(InvariantViolation):
        pool.result(job(4).job)


def test_the_answer_does_not_collect_a_call_twice() -> None:
    learner, pool = in_order(3)
    answer = pool.begin_evaluation(LEARNER.initial_weights(1))
    pool.result(job(4).job)
    answer()
    assert learner.log == [("begin", [4, 5]), ("evaluate", []), ("collect", [4, 5]), ("answer", [])]


@pytest.mark.parametrize("prefetch", [PrefetchPolicy(2, 0.0, 2), None])
def test_a_learner_without_order_evaluates_at_once(prefetch: PrefetchPolicy | None) -> None:
    learner, pool = prefetching(prefetch, 2)
    pool.result(job(0).job)
    for number in (2, 3, 4):
        expect(pool, job(number))
    before = list(learner.log)
    assert (before[-1] == ("begin", [2, 3])) == (prefetch is not None)
    evaluated(pool)
    assert learner.log == before


def test_without_batching_a_model_is_evaluated_at_once() -> None:
    learner = BackgroundLearner(PrefetchPolicy(4, 0.0, 2, in_order=True))
    pool = TrainingPool(learner, SEED, batching=False)
    for number in range(3):
        expect(pool, job(number))
    pool.result(job(0).job)
    evaluated(pool)
    assert (learner.log, pool.counts.calls, pool.counts.trained) == ([], 1, 1)
