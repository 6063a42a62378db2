"""Lazy, batched training: when it trains, what it counts, and that nobody can tell the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, PrefetchPolicy, Results, TrainingJob, TrainingResult
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.simulation.training_pool import TrainingPool

LEARNER = StubLearner(8, 4, gradient=True)


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
    learner = StubLearner(8, 5000, gradient=True)
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


class Early(StubLearner):
    """Says when a call begins and when it is collected."""

    def __init__(self, ahead: PrefetchPolicy | None) -> None:
        super().__init__(8, 4, gradient=True)
        self.prefetch = ahead
        self.story: list[tuple[str, list[int]]] = []

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        numbers = [job.job.number for job in jobs]
        self.story.append(("begin", numbers))

        def results() -> list[TrainingResult]:
            self.story.append(("collect", numbers))
            return self.train_many(jobs)

        return results

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        self.story.append(("evaluate", []))

        def answer() -> Evaluation:
            self.story.append(("answer", []))
            return self.evaluate(weights)

        return answer


def ahead_of(ahead: PrefetchPolicy | None, count: int) -> tuple[Early, TrainingPool]:
    learner = Early(ahead)
    pool = TrainingPool(learner, batching=True)
    for number in range(count):
        pool.expect(job(number))
    return learner, pool


def test_with_nothing_to_go_on_with_no_call_begins_before_it_is_due() -> None:
    learner, pool = ahead_of(PrefetchPolicy(2, 0.0, 4), 5)
    assert learner.story == []
    pool.result(job(0).job)
    assert learner.story == [("begin", [0, 1, 2, 3, 4]), ("collect", [0, 1, 2, 3, 4])]


def test_as_soon_as_enough_jobs_wait_they_begin_and_are_collected_when_one_is_due() -> None:
    learner, pool = ahead_of(PrefetchPolicy(2, 0.0, 2), 4)
    pool.result(job(0).job)
    learner.story.clear()
    for number in range(4, 11):
        pool.expect(job(number))
    assert learner.story == [("begin", [4, 5]), ("begin", [6, 7])]  # two calls at most
    pool.forget(job(6).job)
    assert job(6).job not in pool
    assert job(7).job in pool
    pool.result(job(7).job)
    assert learner.story[2:] == [("collect", [6, 7]), ("begin", [8, 9, 10])]
    for number in (1, 9, 4, 5, 10):
        assert pool.result(job(number).job).weights.tolist() == LEARNER.train_many([job(number)])[0].weights.tolist()
    assert learner.story[4:] == [("collect", [8, 9, 10]), ("collect", [4, 5])]
    with pytest.raises(InvariantViolation):
        pool.result(job(6).job)
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used) == (4, 11, 7)


def test_a_job_that_waits_and_is_due_takes_all_others_that_wait_along() -> None:
    learner, pool = ahead_of(PrefetchPolicy(3, 0.0, 4), 3)
    pool.result(job(0).job)
    learner.story.clear()
    for number in (3, 4, 5, 6, 7):
        pool.expect(job(number))
    pool.result(job(7).job)
    assert learner.story == [("begin", [3, 4, 5]), ("begin", [6, 7]), ("collect", [6, 7])]


def test_a_share_of_all_that_is_under_way() -> None:
    learner, pool = ahead_of(PrefetchPolicy(1, 0.5, 4), 4)
    pool.result(job(0).job)
    learner.story.clear()
    for number in (4, 5, 6):
        pool.expect(job(number))
    assert learner.story == [("begin", [4, 5, 6])]


def test_a_learner_that_gains_nothing_by_beginning_early() -> None:
    learner, pool = ahead_of(None, 3)
    pool.result(job(0).job)
    for number in range(3, 8):
        pool.expect(job(number))
    assert len(learner.story) == 2


def test_a_snapshot_waits_for_what_has_begun() -> None:
    learner, pool = ahead_of(PrefetchPolicy(2, 0.0, 2), 2)
    pool.result(job(0).job)
    for number in (2, 3, 4):
        pool.expect(job(number))
    parts = list(pool.snapshot(100))
    assert learner.story[-3:] == [("collect", [2, 3]), ("begin", [4]), ("collect", [4])]
    restored = TrainingPool(Early(PrefetchPolicy(2, 0.0, 2)), batching=True)
    restored.restore(parts)
    for number in (1, 2, 3, 4):
        assert restored.result(job(number).job).weights.tolist() == pool.result(job(number).job).weights.tolist()
    assert restored.counts == pool.counts


# Calls and evaluations in turn -----------------------------------------------------------------------------------


def in_turn(count: int) -> tuple[Early, TrainingPool]:
    """Two jobs begin a call, and there are two calls at most. Results of 1, 2 and 3 are left."""
    learner, pool = ahead_of(PrefetchPolicy(2, 0.0, 2, in_turn=True), 4)
    pool.result(job(0).job)
    learner.story.clear()
    for number in range(4, 4 + count):
        pool.expect(job(number))
    return learner, pool


def evaluated(pool: TrainingPool) -> None:
    model = LEARNER.initial_weights(1)
    assert pool.begin_evaluation(model)() == pool.learner.evaluate(model)


EVALUATED: list[tuple[str, list[int]]] = [("evaluate", []), ("answer", [])]


def test_when_an_evaluation_is_answered_the_calls_before_it_are_done() -> None:
    learner, pool = in_turn(6)
    evaluated(pool)
    assert learner.story == [
        ("begin", [4, 5]),
        ("begin", [6, 7]),
        *EVALUATED,
        ("collect", [4, 5]),
        ("collect", [6, 7]),
        ("begin", [8, 9]),
    ]
    learner.story.clear()
    for number in (6, 4, 1):
        assert pool.result(job(number).job).weights.tolist() == LEARNER.train_many([job(number)])[0].weights.tolist()
    assert learner.story == []
    assert (pool.counts.calls, pool.counts.trained, pool.counts.used) == (4, 10, 4)


def test_calls_that_begin_before_its_answer_are_not_done_with_it() -> None:
    learner, pool = in_turn(2)
    answer = pool.begin_evaluation(LEARNER.initial_weights(1))
    for number in (6, 7):
        pool.expect(job(number))
    answer()
    assert learner.story == [
        ("begin", [4, 5]),
        ("evaluate", []),
        ("begin", [6, 7]),
        ("answer", []),
        ("collect", [4, 5]),
    ]


def test_two_evaluations_under_way_are_answered_in_either_order() -> None:
    learner, pool = in_turn(2)
    first = pool.begin_evaluation(LEARNER.initial_weights(1))
    for number in (6, 7):
        pool.expect(job(number))
    second = pool.begin_evaluation(LEARNER.initial_weights(2))
    assert second() == LEARNER.evaluate(LEARNER.initial_weights(2))
    assert first() == LEARNER.evaluate(LEARNER.initial_weights(1))
    assert learner.story[4:] == [("answer", []), ("collect", [4, 5]), ("collect", [6, 7]), ("answer", [])]


def test_an_evaluation_remembers_nothing_that_was_forgotten() -> None:
    _, pool = in_turn(2)
    pool.forget(job(4).job)
    evaluated(pool)
    assert job(5).job in pool
    assert job(4).job not in pool
    with pytest.raises(InvariantViolation):
        pool.result(job(4).job)


def test_what_was_collected_before_an_evaluation_is_answered_is_not_collected_again() -> None:
    learner, pool = in_turn(3)
    answer = pool.begin_evaluation(LEARNER.initial_weights(1))
    pool.result(job(4).job)
    answer()
    assert learner.story == [("begin", [4, 5]), ("evaluate", []), ("collect", [4, 5]), ("answer", [])]


@pytest.mark.parametrize("ahead", [PrefetchPolicy(2, 0.0, 2), None])
def test_who_evaluates_while_calls_are_under_way_just_does_so(ahead: PrefetchPolicy | None) -> None:
    learner, pool = ahead_of(ahead, 2)
    pool.result(job(0).job)
    for number in (2, 3, 4):
        pool.expect(job(number))
    before = list(learner.story)
    assert (before[-1] == ("begin", [2, 3])) == (ahead is not None)
    assert not pool.evaluates_aside
    evaluated(pool)
    assert learner.story == before


def test_who_trains_one_by_one_just_evaluates() -> None:
    learner = Early(PrefetchPolicy(4, 0.0, 2, in_turn=True))
    pool = TrainingPool(learner, batching=False)
    for number in range(3):
        pool.expect(job(number))
    pool.result(job(0).job)
    evaluated(pool)
    assert not pool.evaluates_aside
    assert (learner.story, pool.counts.calls, pool.counts.trained) == ([], 1, 1)
