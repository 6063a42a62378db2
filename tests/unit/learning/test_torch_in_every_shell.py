"""A job of a PyTorch task gives the same result to the bit in a simulation and in a deployed device, on one kind of
processor or GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

from async_hfl.assembly.build.task import recipe
from async_hfl.assembly.deployments.deployed_nodes import settings_text
from async_hfl.assembly.deployments.local_learning import Files, Local, Part, check_device, local_learner
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.user_code.user_task import load_torch_task
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.deployment.training.child_process import Spent, TrainingChild
from async_hfl.learning.engine.trainer import TorchDevice
from async_hfl.learning.pytorch.learner import TorchLearner

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'async-hfl[torch]'")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

TASK = f"{Path(__file__).parents[3] / 'examples' / 'own_torch.py'}:task"
DEVICES = 4
HANG_GUARD_S = 300


class Results:
    """What a training child answers."""

    def __init__(self) -> None:
        self.results: Queue[TrainingResult] = Queue()

    def trained(self, device: int, job: JobId, result: TrainingResult, spent: Spent) -> None:
        self.results.put(result)

    def broke(self, device: int, job: JobId, why: str) -> None:
        raise AssertionError(why)

    def evaluated(self, *found: object) -> None:
        raise AssertionError(found)

    def gone(self) -> None:
        raise AssertionError("the training process has ended")


def bits(result: TrainingResult) -> tuple[bytes, bytes, float, float, int, int]:
    assert result.gradient is not None
    arrays = np.asarray(result.weights).tobytes(), np.asarray(result.gradient).tobytes()
    return (*arrays, result.loss, result.squared_loss, result.samples, result.steps)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_a_job_is_the_same_to_the_bit(device: TorchDevice) -> None:
    overrides = [f"task.devices={DEVICES}", f"engine.torch_device={device}"]
    composed = compose(task=TASK, method="async-hfl", overrides=overrides)
    settings, seed = composed.settings, composed.choice.seed
    how = recipe(settings, gradient=True)
    source = partial(load_torch_task, TASK, DEVICES, seed)
    simulated = TorchLearner(source, TASK, DEVICES, seed, how, processes=2, device=device)
    try:
        start = simulated.initial_weights(seed)
        jobs = [TrainingJob(JobId(0, 0, number), number % DEVICES, start, 77 + number) for number in range(6)]
        expected = [bits(result) for result in simulated.train_many(jobs)]
    finally:
        simulated.close()
    heard = Results()
    places = (2, 1)
    local = Local(tuple(Part(place, DEVICES) for place in places), TASK)
    child = TrainingChild(partial(local_learner, settings_text(settings), seed, "", local), heard)
    ready = child.start()
    deployed = [number for number, job in enumerate(jobs) if job.device in places]
    try:
        assert list(ready.samples) == [int(simulated.samples[place]) for place in places]
        for number in deployed:
            child.train(replace(jobs[number], device=places.index(jobs[number].device)))
        answers = [heard.results.get(timeout=HANG_GUARD_S) for _ in deployed]
    finally:
        child.close()
    assert [bits(answer) for answer in answers] == [expected[number] for number in deployed]


def test_a_device_trains_on_its_own_file(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    inputs, targets = random.standard_normal((30, 16)).astype(np.float32), np.arange(30) % 4
    np.savez(tmp_path / "own.npz", inputs=inputs, targets=targets)
    found = check_device(TASK, Local((Files(tmp_path / "own.npz"),), TASK))
    assert found["samples"] == [30]
