"""The plan for accelerators (here on the host) agrees with the sequential plan, except for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from learning_cases import RECIPE, fingerprint, mixed_jobs, uneven_task

from async_hfl.core.vectors import to_host
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.device_data import samples_to_device
from async_hfl.learning.engine.engine import Engine, EngineOptions
from async_hfl.learning.engine.memory_estimate import training_bytes
from async_hfl.learning.engine.plans.padding import padded_jobs, padded_steps
from async_hfl.learning.engine.trainer import Request
from async_hfl.learning.tasks.task_learner import TaskLearner

TOLERANCE = 1e-5
"""Tolerance relative to the displacement of the weights, in float32 over a few dozen steps."""


@pytest.fixture(scope="module")
def sequential() -> TaskLearner:
    return TaskLearner(uneven_task(), RECIPE)


@pytest.fixture(scope="module")
def parallel() -> TaskLearner:
    return TaskLearner(uneven_task(), RECIPE, EngineOptions(plan="vmap"))


def test_it_agrees_with_the_sequential_plan(sequential: TaskLearner, parallel: TaskLearner) -> None:
    jobs = mixed_jobs(sequential, 23)
    for job, one, other in zip(jobs, sequential.train_many(jobs), parallel.train_many(jobs), strict=True):
        moved = np.linalg.norm(one.weights - job.weights)
        assert np.linalg.norm(one.weights - other.weights) < TOLERANCE * moved
        assert one.gradient is not None
        assert other.gradient is not None
        assert np.linalg.norm(one.gradient - other.gradient) < TOLERANCE * max(1.0, np.linalg.norm(one.gradient))
        assert (one.samples, one.steps) == (other.samples, other.steps)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.squared_loss == pytest.approx(other.squared_loss, rel=1e-5)


def test_the_same_call_gives_the_same_bits(parallel: TaskLearner) -> None:
    jobs = mixed_jobs(parallel, 9)
    first, second = parallel.train_many(jobs), parallel.train_many(jobs)
    assert [fingerprint(result) for result in first] == [fingerprint(result) for result in second]


def test_a_small_memory_budget_splits_groups_and_changes_nothing_but_rounding(sequential: TaskLearner) -> None:
    task = uneven_task()
    one = training_bytes(
        task.model,
        task.objective,
        RECIPE.static,
        samples_to_device(task.train, jax.local_devices()[0]),
        task.train.window,
    )
    tight = TaskLearner(task, RECIPE, EngineOptions(plan="vmap", memory=3 * one.per_job))
    jobs = mixed_jobs(sequential, 11)
    for job, a, b in zip(jobs, sequential.train_many(jobs), tight.train_many(jobs), strict=True):
        assert np.linalg.norm(a.weights - b.weights) < TOLERANCE * np.linalg.norm(a.weights - job.weights)


def test_a_budget_below_one_job_still_trains_one_at_a_time(sequential: TaskLearner) -> None:
    learner = TaskLearner(uneven_task(), RECIPE, EngineOptions(plan="vmap", memory=1))
    jobs = mixed_jobs(sequential, 3)
    assert [result.samples for result in learner.train_many(jobs)] == [24, 1, 70]


def test_nothing_to_train(parallel: TaskLearner) -> None:
    assert parallel.train_many([]) == []


def test_memory_is_estimated_from_shapes() -> None:
    small, large = uneven_task(hidden=8), uneven_task(hidden=800)
    first, second = (
        training_bytes(
            task.model, task.objective, RECIPE.static, samples_to_device(task.train, jax.local_devices()[0]), 0
        )
        for task in (small, large)
    )
    assert first.weights == 4 * (64 * 8 + 8 + 8 * 10 + 10)
    # At least the activations of the hidden layer for a batch of 32 and the weights of the first layer twice.
    assert second.activations > 4 * (32 * 800 + 2 * 64 * 800)
    assert second.activations > 5 * first.activations


def test_steps_are_padded_by_at_most_a_quarter() -> None:
    for steps in range(1, 3000):
        assert steps <= padded_steps(steps) <= max(steps, 1.25 * steps)
    assert len({padded_steps(steps) for steps in range(1, 1025)}) <= 52


def test_jobs_are_padded_to_few_sizes() -> None:
    sizes = {padded_jobs(jobs, 1024) for jobs in range(1, 1025)}
    assert sizes == {1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}
    for jobs in range(17, 1025):
        assert jobs <= padded_jobs(jobs, 1024) < 2 * jobs
    assert {padded_jobs(jobs, 8, large=True) for jobs in range(1, 9)} == {1, 2, 4, 8}
    assert padded_jobs(7, 5) == 5
    assert padded_jobs(100, 110) == 110


@pytest.fixture(scope="module")
def large() -> Engine:
    """An engine with a model of 18 MB, of which 14 jobs fill a group."""
    task = uneven_task(sizes=(640,), hidden=60_000)
    return Engine(task.model, task.objective, task.train, RECIPE.static, EngineOptions(plan="vmap"))


def requests_of(samples: Sequence[int]) -> list[Request]:
    start = np.zeros(1, np.float32)  # nothing is trained here
    rows = np.arange(640, dtype=np.int32)
    return [Request(start, rows[:size], seed, RECIPE.coefficients, 640) for seed, size in enumerate(samples)]


def test_full_groups_come_first(large: Engine) -> None:
    """Two groups of 11 would both be padded to 14."""
    devices = len(jax.local_devices())
    groups = list(large.plan.groups(requests_of([32] * 22 * devices)))
    wanted = [(device, jobs) for jobs in (14, 8) for device in range(devices)]
    assert [(group.device, group.places) for group in groups] == wanted
    assert [len(group.members) for group in groups] == [jobs for _, jobs in wanted]
    assert sorted(member for group in groups for member in group.members) == list(range(22 * devices))
    assert {group.places for group in large.plan.expected(32, 22)} == {1, 2, 4, 8, 14}


def test_devices_get_equally_many_jobs(large: Engine) -> None:
    devices = len(jax.local_devices())
    requests = requests_of([640, 352] * 14 * devices)  # 20 and 11 steps
    samples = [0] * devices
    for group in large.plan.groups(requests):
        samples[group.device] += max(len(requests[member].rows) for member in group.members)
    assert samples == [640 + 352] * devices


def test_an_engine_serves_jobs_of_several_learners_as_if_alone() -> None:
    """The same task with another partition and other coefficients: one call gives the same bits as two engines."""
    task, other = uneven_task(), uneven_task(sizes=(40, 300))
    joint = uneven_task(sizes=(40, 300))
    engine = Engine(joint.model, joint.objective, joint.train, RECIPE.static)
    alone = TaskLearner(other, RECIPE)
    shared = TaskLearner(other, RECIPE, trainer=engine)
    jobs = mixed_jobs(alone, 5)
    assert [fingerprint(r) for r in alone.train_many(jobs)] == [fingerprint(r) for r in shared.train_many(jobs)]
    assert len(task.owned) != len(other.owned)


def test_half_precision_stays_close() -> None:
    """bfloat16 has 8 bits of mantissa: weights move in the same direction, and are still float32."""
    full = TaskLearner(uneven_task(), RECIPE, EngineOptions(plan="vmap"))
    half = TaskLearner(uneven_task(), RECIPE, EngineOptions(plan="vmap", precision="bf16"))
    jobs = mixed_jobs(full, 8)
    for job, one, other in zip(jobs, full.train_many(jobs), half.train_many(jobs), strict=True):
        moved = np.linalg.norm(one.weights - job.weights)
        assert 0 < np.linalg.norm(one.weights - other.weights) < 0.05 * moved
        assert other.weights.dtype == np.float32
        assert one.loss == pytest.approx(other.loss, rel=0.05)


def test_calls_need_no_program_that_was_not_compiled_before() -> None:
    learner = TaskLearner(uneven_task(sizes=(60,) * 8), RECIPE, EngineOptions(plan="vmap"))
    learner.compile()
    engine = learner._trainer
    assert isinstance(engine, Engine)
    ready = set(engine._programs)
    for number in (1, 3, 8):
        learner.train_many(mixed_jobs(learner, number))
    one_model = learner.initial_weights(1)
    learner.train_many([replace(job, weights=one_model) for job in mixed_jobs(learner, 8)])
    assert set(engine._programs) == ready


@pytest.mark.parametrize("options", [EngineOptions(plan="vmap"), EngineOptions(vectors="device")])
def test_jobs_of_different_lengths_share_programs(options: EngineOptions) -> None:
    """Nine lengths of 1 to 60 steps per epoch, up to twelve chunks: one program for each number of places."""
    lengths = (1, 2, 3, 5, 9, 17, 30, 33, 60)
    task = uneven_task(sizes=tuple(32 * length for length in lengths))
    learner, sequential = TaskLearner(task, RECIPE, options), TaskLearner(task, RECIPE)
    learner.compile()
    engine = learner._trainer
    assert isinstance(engine, Engine)
    ready = set(engine._programs)
    for number in (1, 9):
        jobs = mixed_jobs(learner, number)
        for job, one, other in zip(jobs, sequential.train_many(jobs), learner.train_many(jobs), strict=True):
            moved = np.linalg.norm(one.weights - job.weights)
            assert np.linalg.norm(one.weights - to_host(other.weights)) < TOLERANCE * moved
            assert one.gradient is not None
            assert other.gradient is not None
            assert np.linalg.norm(one.gradient - to_host(other.gradient)) < TOLERANCE * np.linalg.norm(one.gradient)
            assert (one.samples, one.steps) == (other.samples, other.steps)
            assert one.loss == pytest.approx(other.loss, rel=1e-5)
            assert one.squared_loss == pytest.approx(other.squared_loss, rel=1e-5)
    assert set(engine._programs) == ready
    assert len([key for key in ready if key[0] == "advance"]) == len({key[1] for key in ready}) <= 3


@pytest.mark.parametrize("options", [EngineOptions(plan="vmap"), EngineOptions(vectors="device")])
def test_learners_with_jobs_of_different_lengths_share_a_call(options: EngineOptions) -> None:
    """The longest jobs have 7 and 90 steps per epoch; weights, losses and gradients are the same as alone."""
    small, large = uneven_task(sizes=(40, 200, 3000)), uneven_task(sizes=(2880, 60, 300))
    engine = Engine(small.model, small.objective, small.train, RECIPE.static, options)
    learners = [TaskLearner(replace(large, train=small.train), RECIPE, options, trainer=engine)]
    learners.append(TaskLearner(replace(small, owned=small.owned[:2]), RECIPE, options, trainer=engine))
    requests = [request for learner in learners for request in learner.requests(mixed_jobs(learner, 4))]
    assert {request.max_samples for request in requests} == {2880, 200}
    alone = Engine(small.model, small.objective, small.train, RECIPE.static)
    for request, one, other in zip(requests, alone.begin(requests)(), engine.begin(requests)(), strict=True):
        moved = np.linalg.norm(one.weights - to_host(request.weights))
        assert np.linalg.norm(one.weights - to_host(other.weights)) < TOLERANCE * moved
        assert one.gradient is not None
        assert other.gradient is not None
        assert np.linalg.norm(one.gradient - to_host(other.gradient)) < TOLERANCE * np.linalg.norm(one.gradient)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
