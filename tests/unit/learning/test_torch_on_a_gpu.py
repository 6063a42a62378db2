"""PyTorch on a GPU: what a job changes differs from a processor's by rounding only, and repeats to the bit.

Without the test suite's other requirements: `python -m pytest --noconftest FILE`, or run this file. `--junitxml OUT`
writes how far apart they were.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_tasks

from async_hfl import api
from async_hfl.core.errors import TaskError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.learning.engine.recipe import Adam, Optimiser, Recipe, Sgd
from async_hfl.learning.engine.runtime import usable_cores
from async_hfl.learning.engine.trainer import TorchDevice
from async_hfl.learning.own.task import TorchTask
from async_hfl.learning.pytorch import gpu
from async_hfl.learning.pytorch.learner import TorchLearner

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'async-hfl[torch]'")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

HERE = Path(__file__).parent
RECIPE = Recipe(3, 8, 0.05, momentum=0.9, weight_decay=0.02, proximal_weight=0.3, gradient=True)
LIMIT = 1e-4
"""Distance of two updates, relative to the length of one: the tolerance that docs/own-task.md states."""
# With the usual epsilon of 1e-8, Adam makes whole steps of gradients that are nothing but rounding errors.
OPTIMISERS = [(Sgd(), 0.05), (Adam(epsilon=1e-3), 0.005), (Adam(epsilon=1e-3, decoupled=True), 0.005)]
Make = Callable[..., TorchLearner]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    learners = []

    def make(
        source: Callable[[], TorchTask],
        device: TorchDevice,
        *,
        devices: int = len(torch_tasks.SIZES),
        processes: int | None = 1,
        **changed: Any,
    ) -> TorchLearner:
        how = replace(RECIPE, **changed)
        learners.append(TorchLearner(source, "my.py:task", devices, 1, how, processes=processes, device=device))
        return learners[-1]

    yield make
    for learner in learners:
        learner.close()


def jobs_of(learner: TorchLearner, count: int) -> list[TrainingJob]:
    start, devices = learner.initial_weights(1), len(learner.samples)
    return [TrainingJob(JobId(0, 0, number), number % devices, start, 77 + number) for number in range(count)]


def bits(result: TrainingResult) -> tuple[bytes, bytes, float, float]:
    assert result.gradient is not None
    arrays = np.asarray(result.weights).tobytes(), np.asarray(result.gradient).tobytes()
    return (*arrays, result.loss, result.squared_loss)


def distance(one: Any, other: Any) -> float:
    return float(np.linalg.norm(np.asarray(one) - np.asarray(other)) / np.linalg.norm(np.asarray(other)))


@needs_gpu
@pytest.mark.parametrize(("optimiser", "rate"), OPTIMISERS, ids=["sgd", "adam", "adamw"])
@pytest.mark.parametrize("source", [torch_tasks.small, torch_tasks.images, torch_tasks.sequences])
def test_an_update_is_that_of_a_processor(
    source: Callable[[], TorchTask],
    optimiser: Optimiser,
    rate: float,
    made: Make,
    record_property: Callable[[str, object], None],
) -> None:
    """Also its gradient and losses. In images, statistics of batch normalisation are part of the update."""
    how: dict[str, Any] = {"optimiser": optimiser, "learning_rate": rate}
    theirs, ours = made(source, "cuda", **how), made(source, "cpu", **how)
    assert (theirs.device, ours.device) == ("cuda", "cpu")
    jobs = jobs_of(ours, len(torch_tasks.SIZES))
    start = np.asarray(jobs[0].weights)
    assert theirs.initial_weights(1).tobytes() == start.tobytes(), "drawn on the processor"
    furthest = 0.0
    for found, wanted in zip(theirs.train_many(jobs), ours.train_many(jobs), strict=True):
        change = np.asarray(wanted.weights) - start
        assert np.linalg.norm(change) > 1e-3
        furthest = max(furthest, distance(np.asarray(found.weights) - start, change))
        assert distance(found.gradient, wanted.gradient) <= LIMIT
        assert found.loss == pytest.approx(wanted.loss, rel=LIMIT)
        assert found.squared_loss == pytest.approx(wanted.squared_loss, rel=LIMIT)
        assert (found.samples, found.steps) == (wanted.samples, wanted.steps)
    record_property("furthest", furthest)
    assert furthest <= LIMIT


@needs_gpu
@pytest.mark.parametrize("source", [torch_tasks.images, torch_tasks.sequences])
def test_an_evaluation_is_that_of_a_processor(source: Callable[[], TorchTask], made: Make) -> None:
    theirs, ours = made(source, "cuda"), made(source, "cpu")
    weights = ours.initial_weights(1)
    for _ in range(5):
        [result] = ours.train_many([TrainingJob(JobId(0, 0, 0), 2, weights, 5)])
        weights = result.weights
    found, wanted = theirs.evaluate(weights), ours.evaluate(weights)
    assert found.loss == pytest.approx(wanted.loss, rel=LIMIT)
    assert abs(found.metric - wanted.metric) <= 1 / sum(torch_tasks.SIZES), "one sample may be between two classes"
    assert [one.loss for one in theirs.evaluate_by_device(weights) if one] == pytest.approx(
        [one.loss for one in ours.evaluate_by_device(weights) if one], rel=LIMIT
    )


@needs_gpu
@pytest.mark.parametrize("source", [torch_tasks.small, torch_tasks.images, torch_tasks.sequences])
def test_a_job_repeats_to_the_bit(source: Callable[[], TorchTask], made: Make) -> None:
    """Alone, among others, in another process and in this one."""
    one, several, here = made(source, "cuda"), made(source, "cuda", processes=3), made(source, "cuda", processes=0)
    jobs = jobs_of(one, 9)
    alone = [bits(one.train_many([job])[0]) for job in jobs]
    assert [bits(result) for result in several.train_many(jobs[::-1])] == alone[::-1]
    assert [bits(result) for result in here.train_many(jobs)] == alone


@needs_gpu
def test_dropout_repeats_with_the_seed(made: Make) -> None:
    learner = made(torch_tasks.normalised, "cuda", devices=1, processes=2)
    start = learner.initial_weights(1)
    jobs = [TrainingJob(JobId(0, 0, number), 0, start, seed) for number, seed in enumerate((1, 2, 1))]
    one, other, again = map(bits, learner.train_many(jobs))
    assert one == again != other


@needs_gpu
def test_a_few_processes_share_a_gpu(made: Make) -> None:
    learner = made(torch_tasks.small, "auto", processes=None)
    assert learner.device == "cuda"
    learner.compile()
    assert learner._count == len(learner._processes._running) == min(gpu.PROCESSES, usable_cores())  # type: ignore[union-attr]


@needs_gpu
def test_the_callers_generators_and_precision_come_back(made: Make) -> None:
    """A task that was made in Python is trained in the caller's process."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        torch.manual_seed(3)
        expected = [torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()]
        torch.manual_seed(3)
        learner = made(torch_tasks.images, "cuda", processes=0)
        learner.train_many(jobs_of(learner, 2))
        assert [torch.rand(4, device="cuda").tolist(), torch.rand(4).tolist()] == expected
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_float32_matmul_precision(precision)


@needs_gpu
def test_a_tensor_on_the_processor_is_an_error_that_names_the_setting(made: Make) -> None:
    with pytest.raises(TaskError, match=r"my\.py:task: loss: raised .*torch_device=cpu"):
        made(torch_tasks.weighted, "cuda")


@needs_gpu
def test_a_run_repeats_to_the_bit_and_learns(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    task = f"{HERE.parents[2] / 'examples' / 'own_torch.py'}:task"
    settings = ["task.devices=12", "network.gateways=2", "cloud.epochs=15", "device.learning_rate=0.05"]
    finals = {}
    for name, device in (("one", "cuda"), ("again", "cuda"), ("processor", "cpu")):
        run = api.run(
            task=task,
            method="async-hfl",
            seed=1,
            overrides=[*settings, f"engine.torch_device={device}"],
            out=tmp_path / name,
        )
        finals[name] = (run.summary["digest"], run.summary["final_metric"])
    assert finals["one"] == finals["again"]
    record_property("finals", str(finals))
    assert finals["processor"][1] > 0.7
    assert abs(finals["one"][1] - finals["processor"][1]) <= 0.01


def test_settings_of_the_process_come_back() -> None:
    """The settings exist without a GPU."""

    def settings() -> list[Any]:
        cudnn = torch.backends.cudnn
        flags = [torch.get_float32_matmul_precision(), cudnn.enabled, cudnn.deterministic, cudnn.benchmark]
        strict = torch.are_deterministic_algorithms_enabled()
        return [*flags, strict, torch.utils.deterministic.fill_uninitialized_memory]

    before = settings()
    assert before[4:] == [False, True]
    with gpu.exact(torch, torch.device("cuda")):
        assert settings() == ["highest", True, True, False, True, False]
        with gpu.exact(torch, torch.device("cuda"), cudnn=False):
            assert settings()[1] is False
        assert settings()[1] is True
    assert settings() == before
    with gpu.exact(torch, torch.device("cpu")):
        assert settings() == before


if __name__ == "__main__":
    sys.exit(pytest.main(["--noconftest", "-q", __file__, *sys.argv[1:]]))
