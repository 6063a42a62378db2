"""Client code by its methods alone, in the simulator: nothing of Flower or PyTorch needs to be installed."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl import api
from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.flower import flower
from async_hfl.adapters.learner import ClientLearner
from async_hfl.assembly.deployments.local_learning import Local, Part, check_device, client_learner, local_learner
from async_hfl.assembly.user_code.user_task import load_client_task
from async_hfl.core.errors import SettingsError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target

HERE = Path(__file__).parent
TASK = f"{HERE / 'numpy_task.py'}:task"
DEVICES = 4


@pytest.fixture
def made() -> Iterator[Callable[..., ClientLearner]]:
    learners = []

    def make(processes: int = 0, places: list[int] | None = None) -> ClientLearner:
        source = partial(load_client_task, TASK, DEVICES, 1)
        options: dict[str, Any] = {"places": places, "processes": processes}
        learners.append(ClientLearner(source, TASK, DEVICES, 1, gradient=True, **options))
        return learners[-1]

    yield make
    for learner in learners:
        learner.close()


def job(learner: ClientLearner, device: int, number: int = 0, *, start: Any = None) -> TrainingJob:
    weights = learner.initial_weights(1) if start is None else start
    return TrainingJob(JobId(0, 0, number), device, weights, 1000 + number, number)


def bits(result: TrainingResult) -> tuple[bytes, float]:
    return np.asarray(result.weights).tobytes(), result.loss


def test_what_clients_do_not_report_is_derived(
    made: Callable[..., ClientLearner], caplog: pytest.LogCaptureFixture
) -> None:
    learner = made()
    assert learner.layout.names == ("0", "1")  # the counter does not travel
    assert learner.gradient_size == learner.layout.size == 16 * 4 + 4
    assert learner.samples.tolist() == [1, 1, 1, 1]
    with caplog.at_level(logging.WARNING):
        [first] = learner.train_many([job(learner, 2)])
        [second] = learner.train_many([job(learner, 2, 1)])
    assert first.samples == 40
    assert learner.samples.tolist() == [1, 1, 40, 1]
    assert first.squared_loss == first.loss**2
    assert first.steps == 1
    assert first.gradient is not None
    np.testing.assert_array_equal(first.gradient, -np.asarray(first.weights))  # the model begins with zeros
    # Eight steps later the client's rate is lower: it was given its own newest counter.
    assert np.linalg.norm(second.weights) < np.linalg.norm(first.weights)
    [record] = caplog.records
    assert "squared loss = loss squared" in record.message
    assert "integer arrays = the newest of each device" in record.message


def test_the_loss_is_that_of_evaluate(made: Callable[..., ClientLearner]) -> None:
    learner = made()
    [result] = learner.train_many([job(learner, 1)])
    evaluations = learner.evaluate_by_device(result.weights)
    assert evaluations[1] is not None
    assert result.loss == evaluations[1].loss
    mean = np.mean([one.metric for one in evaluations if one is not None])
    assert learner.evaluate(result.weights).metric == pytest.approx(mean)


def drawing_task() -> ClientTask:
    """A model, a client and an evaluation that draw from the generators of the process."""

    class Client:
        def fit(self, parameters: Any, config: Any) -> Any:
            return [parameters[0] + np.random.rand() + random.random()], 1, {"loss": 1.0}  # noqa: NPY002

    def judge(server_round: int, parameters: Any, config: Any) -> Any:
        return 1.0, {"accuracy": (np.random.rand() + random.random()) / 2}  # noqa: NPY002

    return flower(lambda context: Client(), model=lambda: [np.random.rand(3)], evaluate=judge, target=0.9)  # noqa: NPY002


def test_the_generators_of_the_process_are_as_before() -> None:
    """A notebook draws the same numbers with and without a run between; what clients draw does not depend on it."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = random.random(), np.random.rand()  # noqa: NPY002
    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        learner = ClientLearner(drawing_task, "drawing", 1, 1, gradient=False, processes=0)
        weights = learner.initial_weights(1)
        [result] = learner.train_many([job(learner, 0)])
        found.append((*bits(result), learner.evaluate(weights).metric))
        if seed == 1:
            assert (random.random(), np.random.rand()) == expected  # noqa: NPY002
    assert found[0] == found[1]


def test_alone_together_and_in_processes_to_the_bit(made: Callable[..., ClientLearner]) -> None:
    alone, together = made(), made(processes=2)
    devices = [0, 3, 3, 1, 0, 2]  # two jobs of a device in one call, too
    jobs = [job(alone, device, number) for number, device in enumerate(devices)]
    one_by_one = [bits(alone.train_many([one])[0]) for one in jobs]
    assert [bits(result) for result in together.train_many(jobs)] == one_by_one


def test_a_deployed_device_trains_to_the_bit_as_in_the_simulator(made: Callable[..., ClientLearner]) -> None:
    simulated = made(processes=1)
    [expected] = simulated.train_many([job(simulated, 2)])
    deployed, ready = local_learner('{"task": {"name": "x.py:task", "devices": 4}}', 1, "", Local((Part(2, 4),), TASK))
    assert ready.samples == (40,)
    # That it was timed before has left nothing behind.
    assert bits(deployed.train(job(simulated, 0))) == bits(expected)


def test_a_device_with_the_client_code_alone_does_so_too(made: Callable[..., ClientLearner]) -> None:
    simulated = made(processes=1)
    [expected] = simulated.train_many([job(simulated, 2)])
    settings = '{"task": {"name": "x.py:task", "devices": 4}}'
    local = Local((Part(2, 4),), client=f"{HERE / 'numpy_code.py'}:client_fn")
    target = Target("accuracy", 0.9, "at_least")
    deployed, _ = client_learner(settings, 1, simulated.told, target, local)
    start = simulated.initial_weights(1)
    assert bits(deployed.train(job(simulated, 0, start=start))) == bits(expected)
    with pytest.raises(SettingsError, match="the cloud's task has no clients"):
        client_learner(settings, 1, {}, target, local)


def test_check_trains_once_in_a_child() -> None:
    found = check_device(TASK, Local((Part(1, 4), Part(2, 4)), TASK))
    assert found["samples"] == [40, 40]


def test_a_run_learns_and_resumes_with_what_devices_keep(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "task": TASK,
        "seed": 1,
        "overrides": ["task.devices=6", "task.target=1", "cloud.epochs=16", "network.gateways=2"],
    }
    whole = api.run(**options, out=tmp_path / "whole")
    assert whole.summary["final_metric"] > 0.8
    calls = iter([False, True, *[False] * 30])
    api.run(**options, out=tmp_path / "paused", pause=lambda: next(calls))
    resumed = api.resume(tmp_path / "paused")
    assert resumed.summary["digest"] == whole.summary["digest"]
