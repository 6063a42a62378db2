"""The basis of lazy, batched training: a job's result is the same to the bit whatever it is trained with."""

from __future__ import annotations

import numpy as np
import pytest
from learning_cases import RECIPE, fingerprint, fingerprints_elsewhere, make_job, mixed_jobs, uneven_task

from async_hfl.core.learner import TrainingJob
from async_hfl.core.weights import frozen
from async_hfl.learning.tasks.task_learner import TaskLearner


@pytest.fixture(scope="module")
def learner() -> TaskLearner:
    return TaskLearner(uneven_task(), RECIPE)


@pytest.fixture(scope="module")
def jobs(learner: TaskLearner) -> list[TrainingJob]:
    return mixed_jobs(learner, 16)


@pytest.fixture(scope="module")
def alone(learner: TaskLearner, jobs: list[TrainingJob]) -> list[str]:
    return [fingerprint(learner.train_many([job])[0]) for job in jobs]


def test_jobs_differ(learner: TaskLearner, jobs: list[TrainingJob], alone: list[str]) -> None:
    """Otherwise the tests below would prove little. With one sample there is one order for every seed."""
    single = [index for index, job in enumerate(jobs) if learner.samples[job.device] == 1]
    assert single == [1, 11]
    assert alone[1] == alone[11]
    assert len(set(alone)) == len(alone) - 1


@pytest.mark.parametrize("count", range(1, 17))
def test_jobs_together_equal_jobs_alone(
    learner: TaskLearner, jobs: list[TrainingJob], alone: list[str], count: int
) -> None:
    assert [fingerprint(result) for result in learner.train_many(jobs[:count])] == alone[:count]
    assert [fingerprint(result) for result in learner.train_many(jobs[-count:])] == alone[-count:]


def test_order_does_not_matter(learner: TaskLearner, jobs: list[TrainingJob], alone: list[str]) -> None:
    random = np.random.default_rng(3)
    for _ in range(10):
        order = random.permutation(len(jobs))
        results = learner.train_many([jobs[index] for index in order])
        assert [fingerprint(result) for result in results] == [alone[index] for index in order]


def test_more_jobs_than_places(learner: TaskLearner, jobs: list[TrainingJob], alone: list[str]) -> None:
    """Several groups per core, and more groups than are queued at once."""
    results = learner.train_many(jobs * 25)
    assert [fingerprint(result) for result in results] == alone * 25


def test_calls_collected_in_another_order(learner: TaskLearner, jobs: list[TrainingJob], alone: list[str]) -> None:
    first, second, many = learner.begin(jobs[:5]), learner.begin(jobs[5:]), learner.begin(jobs * 25)
    assert [fingerprint(result) for result in second()] == alone[5:]
    assert [fingerprint(result) for result in many()] == alone * 25
    assert [fingerprint(result) for result in first()] == alone[:5]


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_number_of_host_devices_does_not_matter(alone: list[str], devices: int) -> None:
    assert fingerprints_elsewhere({"ASYNC_HFL_HOST_DEVICES": str(devices)}) == (devices, alone)


def test_programs_compiled_again_equal_those_from_the_cache(
    alone: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = {"ASYNC_HFL_CACHE": str(tmp_path_factory.mktemp("cache")), "ASYNC_HFL_HOST_DEVICES": "2"}
    first = fingerprints_elsewhere(cache)
    second = fingerprints_elsewhere(cache)
    assert first == second == (2, alone)


def test_a_diverged_job_affects_no_other(learner: TaskLearner, jobs: list[TrainingJob], alone: list[str]) -> None:
    broken = frozen(np.full(learner.layout.size, np.inf, dtype=np.float32))
    results = learner.train_many([*jobs[:3], make_job(99, 2, broken, 4), *jobs[3:]])
    assert not np.isfinite(results[3].weights).any()
    assert [fingerprint(result) for result in results[:3] + results[4:]] == alone


def test_no_jobs(learner: TaskLearner) -> None:
    assert learner.train_many([]) == []
