"""The PyTorch learner: the same training as the engine's, in processes that leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import methodcaller, mul, truediv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_tasks
from learning_cases import fingerprint, make_job

from async_hfl.core.errors import SettingsError, TaskError
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.engine.recipe import Adam, Optimiser, Recipe, Sgd
from async_hfl.learning.engine.trainer import TorchDevice
from async_hfl.learning.own.task import TorchTask
from async_hfl.learning.pytorch.learner import TorchLearner
from async_hfl.learning.pytorch.processes import Processes

RECIPE = Recipe(3, 8, 0.05, momentum=0.9, weight_decay=0.02, proximal_weight=0.3, gradient=True)
HERE = str(Path(__file__).parent)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes import `torch_tasks` from the same place as this process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def made(importable: None) -> Iterator[Callable[..., TorchLearner]]:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'async-hfl[torch]'")
    learners = []

    def make(
        source: Callable[[], TorchTask] = torch_tasks.small,
        devices: int = 6,
        processes: int | None = 2,
        device: TorchDevice = "cpu",
        **changed: Any,
    ) -> TorchLearner:
        recipe = replace(RECIPE, **changed)
        learners.append(TorchLearner(source, "my.py:task", devices, 1, recipe, processes=processes, device=device))
        return learners[-1]

    yield make
    for learner in learners:
        learner.close()


def jobs_of(learner: Learner, count: int) -> list[TrainingJob]:
    starts = [learner.initial_weights(1), learner.initial_weights(2)]
    return [
        make_job(number, number % len(learner.samples), starts[number % 2], (number * 0x9E3779B97F4A7C15) % 2**64)
        for number in range(count)
    ]


def test_the_learner_interface(made: Callable[..., TorchLearner]) -> None:
    learner: Learner = made()
    assert learner.layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert learner.layout.shapes == ((5, 6), (5,), (3, 5), (3,))
    assert learner.gradient_size == learner.layout.size == 53
    assert learner.model_bytes == 4 * 53
    assert learner.target == Target("accuracy", 0.9, "at_least")
    assert learner.learning_rate == 0.05
    assert learner.samples.tolist() == list(torch_tasks.SIZES)
    one, again, other = (learner.initial_weights(seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert not one.flags.writeable
    learner.compile()
    assert learner.train_many([]) == []


def test_together_as_alone(made: Callable[..., TorchLearner]) -> None:
    learner, one_process = made(), made(processes=1)
    jobs = jobs_of(learner, 10)
    alone = [fingerprint(one_process.train_many([job])[0]) for job in jobs]
    assert len(set(alone)) >= 9, "jobs differ, but for the device with one sample"
    assert [fingerprint(result) for result in learner.train_many(jobs)] == alone
    assert [fingerprint(result) for result in learner.train_many(jobs[::-1])] == alone[::-1]
    assert [fingerprint(result) for result in learner.train_many(jobs * 3)] == alone * 3


def steps_of(learner: TorchLearner) -> list[int]:
    jobs = jobs_of(learner, len(torch_tasks.SIZES))
    results = learner.train_many(jobs)
    assert all(np.isfinite(result.weights).all() and np.isfinite(result.loss) for result in results)
    return [result.steps for result in results]


def test_batch_normalisation_with_a_last_batch_of_one_sample(made: Callable[..., TorchLearner]) -> None:
    """Of 33 samples in batches of 8, the last is alone; of one sample, statistics cannot be computed at all."""
    assert torch_tasks.SIZES == (24, 1, 70, 32, 33, 5)
    assert steps_of(made(torch_tasks.normalised_everywhere)) == [9, 3, 27, 12, 12, 3], "merged"
    assert steps_of(made(torch_tasks.normalised_everywhere, single_sample="drop")) == [9, 3, 27, 12, 12, 3]
    with pytest.raises(TaskError, match="Expected more than 1 value per channel"):
        steps_of(made(torch_tasks.normalised_everywhere, single_sample="keep"))


def test_a_single_sample_is_merged_or_dropped(made: Callable[..., TorchLearner]) -> None:
    """Without batch normalisation nothing changes unless it is asked for."""
    [whole, kept, merged, dropped] = [
        made(**how).train_many([jobs_of(made(), 5)[4]])[0]
        for how in ({}, {"single_sample": "keep"}, {"single_sample": "merge"}, {"single_sample": "drop"})
    ]
    assert [one.steps for one in (whole, kept, merged, dropped)] == [15, 15, 12, 12]
    assert (whole.weights == kept.weights).all()
    assert whole.samples == dropped.samples == 33
    different = {one.weights.tobytes() for one in (kept, merged, dropped)}
    assert len(different) == 3
    assert dropped.loss == pytest.approx(kept.loss, rel=0.3), "a mean over the samples that were trained on"


def transposed(weights: Weights) -> Weights:
    """Convert torch's (outputs, inputs) to the engine's (inputs, outputs)."""
    a, b = torch_tasks.INPUTS, torch_tasks.HIDDEN
    c = torch_tasks.CLASSES
    first, bias, second, last = np.split(weights, np.cumsum([a * b, b, b * c]))
    return frozen(np.concatenate([first.reshape(b, a).T.ravel(), bias, second.reshape(c, b).T.ravel(), last]))


@pytest.mark.parametrize("optimiser", [Sgd(), Adam(epsilon=1e-3), Adam(epsilon=1e-3, decoupled=True)])
def test_trains_as_the_engine_does(optimiser: Optimiser, made: Callable[..., TorchLearner]) -> None:
    """Same data, same order of batches, same update: equal up to rounding."""
    from async_hfl.learning.evaluation.objectives import classification
    from async_hfl.learning.models.mlp import mlp
    from async_hfl.learning.tasks.task_learner import Task, TaskLearner

    theirs = made(optimiser=optimiser)
    data = theirs.data
    task = Task(
        name="same",
        model=mlp(torch_tasks.INPUTS, torch_tasks.HIDDEN, torch_tasks.CLASSES),
        objective=classification(torch_tasks.CLASSES),
        train=data.train,
        test=data.test,
        owned=data.owned,
        target=Target("accuracy", 0.9),
    )
    ours = TaskLearner(task, replace(RECIPE, optimiser=optimiser))
    jobs = jobs_of(theirs, 8)
    expected = ours.train_many([replace_weights(job, transposed(job.weights)) for job in jobs])
    for torch_result, result in zip(theirs.train_many(jobs), expected, strict=True):
        np.testing.assert_allclose(transposed(torch_result.weights), result.weights, atol=2e-6)
        assert torch_result.gradient is not None
        assert result.gradient is not None
        np.testing.assert_allclose(transposed(torch_result.gradient), result.gradient, atol=5e-6)
        assert torch_result.loss == pytest.approx(result.loss, rel=1e-5)
        assert torch_result.squared_loss == pytest.approx(result.squared_loss, rel=1e-5)
        assert (torch_result.samples, torch_result.steps) == (result.samples, result.steps)
    weights = jobs[0].weights
    one, other = theirs.evaluate(weights), ours.evaluate(transposed(weights))
    assert one.metric == other.metric
    assert one.loss == pytest.approx(other.loss, rel=1e-5)
    assert one.details == pytest.approx(dict(other.details))
    by_device = theirs.evaluate_by_device(weights)
    assert sum(e.metric * n for e, n in zip(by_device, theirs.samples, strict=True) if e) == pytest.approx(
        one.metric * theirs.samples.sum()
    ), "the test set of this task is all shards together"


def replace_weights(job: TrainingJob, weights: Weights) -> TrainingJob:
    return TrainingJob(job.job, job.device, weights, job.seed)


def test_statistics_travel_and_dropout_repeats(made: Callable[..., TorchLearner]) -> None:
    learner = made(torch_tasks.normalised, devices=1)
    assert learner.layout.names[-2:] == ("1.running_mean", "1.running_var")
    assert learner.gradient_size == learner.layout.size - 10
    start = learner.initial_weights(1)
    jobs = [make_job(number, 0, start, seed) for number, seed in enumerate((1, 2, 1))]
    one, other, again = learner.train_many(jobs)
    assert fingerprint(one) == fingerprint(again) != fingerprint(other)
    assert (one.weights[-10:] != start[-10:]).any()
    assert one.gradient is not None
    assert len(one.gradient) == learner.gradient_size


def test_a_regression_learns(made: Callable[..., TorchLearner]) -> None:
    learner = made(torch_tasks.regression, devices=3, gradient=False, proximal_weight=0.0, weight_decay=0.0)
    assert learner.target == Target("absolute-error", 0.1, "at_most")
    weights = learner.initial_weights(1)
    before = learner.evaluate(weights)
    for number in range(20):
        [result] = learner.train_many([make_job(number, number % 3, weights, number)])
        assert result.gradient is None
        weights = result.weights
    assert learner.evaluate(weights).metric < 0.1 < before.metric


def test_a_function_may_be_called_accuracy(made: Callable[..., TorchLearner]) -> None:
    learner = made(torch_tasks.quarter)
    assert learner.evaluate(learner.initial_weights(1)).metric == 0.25


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (torch_tasks.other_data_each_time, "gives other data each time"),
        (torch_tasks.wrong_loss, r"loss: 3 samples gave \(\); give one number for each sample"),
        (torch_tasks.wrong_metric, r"metric: 3 samples gave \(\); give one number for each sample"),
        (torch_tasks.raises, "model: raised ValueError: no such layer"),
        (torch_tasks.not_a_module, "made a dict; make a torch.nn.Module"),
        (torch_tasks.few_outputs, r"3 samples gave \(3, 2\); 3 classes occur"),
        (torch_tasks.loss_broadcasts, r"loss: squared-error .* outputs of shape \(3, 1\) and targets of shape \(3,\)"),
        (torch_tasks.metric_broadcasts, r"metric: absolute-error .* of shape \(3, 1\) and targets of shape \(3,\)"),
        (
            torch_tasks.own_loss_broadcasts,
            r"loss: the value of a sample depends on .*\(3, 1\) .*\(3,\) may broadcast",
        ),
        (torch_tasks.own_metric_broadcasts, r"metric: the value of a sample depends on the other samples"),
    ],
)
def test_errors_are_in_the_users_terms(
    made: Callable[..., TorchLearner], source: Callable[[], TorchTask], told: str
) -> None:
    with pytest.raises(TaskError, match=rf"my\.py:task: .*{told}"):
        made(source)


def test_an_own_loss_may_reshape_by_itself(made: Callable[..., TorchLearner]) -> None:
    learner = made(torch_tasks.own_loss_of_a_column)
    evaluation = learner.evaluate(learner.initial_weights(1))
    assert evaluation.metric == evaluation.loss > 0


def test_a_process_that_dies_is_detected(made: Callable[..., TorchLearner]) -> None:
    learner = made(torch_tasks.dies_in_training)
    jobs = jobs_of(learner, 4)
    with pytest.raises(TaskError, match=r"exit code -9 \(out of memory\?\)"):
        learner.train_many(jobs)
    assert (learner.initial_weights(1) == jobs[0].weights).all(), "a later call starts them again"


def test_a_gpu_that_is_missing_is_an_error(made: Callable[..., TorchLearner]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("PyTorch sees a GPU")
    with pytest.raises(SettingsError, match=r"engine\.torch_device: is cuda, but PyTorch .* or use auto"):
        made(device="cuda")
    assert made(device="auto").device == "cpu"


def test_every_core_has_a_process_without_a_gpu(
    made: Callable[..., TorchLearner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process says that it trains on a processor, and the others are started then."""
    monkeypatch.setattr("async_hfl.learning.pytorch.gpu.PROCESSES", 1)
    monkeypatch.setattr("async_hfl.learning.pytorch.learner.usable_cores", lambda: 3)
    learner = made(device="cpu", processes=None)
    assert isinstance(learner._processes, Processes)
    assert len(learner._processes._running) == 1
    learner.compile()
    assert len(learner._processes._running) == 3


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("async_hfl.learning.pytorch.learner.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"pip install 'async-hfl\[torch\]'"):
        TorchLearner(torch_tasks.small, "my.py:task", 6, 1, RECIPE)


# The processes themselves, which need no PyTorch.


def two() -> int:
    return 2


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_answers_in_order_and_errors_raised_in_the_owner(importable: None) -> None:
    processes = Processes(2, two, "mine")
    assert processes.answers([partial(mul, number) for number in range(30)]) == [2 * number for number in range(30)]
    assert processes.answers([]) == []
    pids = [process.pid for process, _ in processes._running]
    processes.close()
    processes.close()
    assert not any(alive(pid) for pid in pids if pid)
    with pytest.raises(TaskError, match="ZeroDivisionError"):
        processes.answers([partial(truediv, 1), methodcaller("__truediv__", 0)])
    assert processes.answers([partial(truediv, 1)]) == [0.5]
    processes.close()


@pytest.mark.parametrize("ending", ["exit", "kill"])
def test_no_process_outlives_its_owner(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from async_hfl.learning.pytorch.processes import Processes

            if __name__ == "__main__":
                processes = Processes(2, os.getpid, "mine")
                processes.answers([str, str, str])
                print(*[process.pid for process, _ in processes._running], flush=True)
                if sys.argv[1] == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script), ending], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == (0 if ending == "exit" else -signal.SIGKILL), done.stderr
    assert done.stderr == ""
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, pids))
