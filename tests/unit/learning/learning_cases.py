"""Jobs that differ in every respect. Run as a script, this module prints a fingerprint of each result."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.vectors import DeviceVector, Vector, to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.evaluation.objectives import classification
from async_hfl.learning.models.mlp import mlp
from async_hfl.learning.tasks.task_learner import Task, TaskLearner

SIZES = (24, 1, 70, 32, 33, 5, 64, 31, 12, 48)
"""One sample, full batches, one sample more, one sample less."""
INPUTS, HIDDEN, CLASSES = 64, 64, 10
RECIPE = Recipe(3, 32, 0.05, momentum=0.9, weight_decay=0.01, proximal_weight=0.1, gradient=True)


def uneven_task(sizes: Sequence[int] = SIZES, inputs: int = INPUTS, hidden: int = HIDDEN) -> Task:
    random = np.random.default_rng(5)
    total = sum(sizes)
    rows = random.permutation(total)
    stops = np.cumsum(sizes)
    return Task(
        name="uneven",
        model=mlp(inputs, hidden, CLASSES),
        objective=classification(CLASSES),
        train=_samples(random, total, inputs),
        test=_samples(random, 700, inputs),
        owned=tuple(np.sort(rows[stop - size : stop]) for size, stop in zip(sizes, stops, strict=True)),
        target=Target("accuracy", 0.9),
    )


def _samples(random: np.random.Generator, count: int, inputs: int) -> Samples:
    return Samples(
        random.standard_normal((count, inputs)).astype(np.float32), random.integers(0, CLASSES, count).astype(np.int32)
    )


def make_job(number: int, device: int, weights: Weights, seed: int) -> TrainingJob:
    return TrainingJob(JobId(0, 0, number), device, weights, seed)


def mixed_jobs(learner: TaskLearner, count: int) -> list[TrainingJob]:
    """Return jobs of every device, with two start models and seeds of 64 bits."""
    starts = [learner.initial_weights(1), learner.initial_weights(2)]
    return [
        make_job(number, number % len(learner.samples), starts[number % 2], (number * 0x9E3779B97F4A7C15) % 2**64)
        for number in range(count)
    ]


def fingerprint(result: TrainingResult) -> str:
    digest = hashlib.sha256(result.weights.tobytes())
    if result.gradient is not None:
        digest.update(result.gradient.tobytes())
    digest.update(repr((result.samples, result.steps, result.loss, result.squared_loss)).encode())
    return digest.hexdigest()


def with_noise(weights: Weights, seed: int, scale: float = 0.1) -> Weights:
    noise: npt.NDArray[np.float64] = np.random.default_rng(seed).standard_normal(len(weights)) * scale
    return frozen((weights + noise).astype(np.float32))


def run_python(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a new interpreter in which warnings are errors, and return its output. Any output on stderr is a failure."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def fingerprints_elsewhere(environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the number of host devices and the fingerprints of 16 mixed jobs in a new process."""
    devices, *prints = run_python([str(Path(__file__))], environment).split()
    return int(devices), prints


def main() -> None:
    from async_hfl.learning.engine.backend import jax

    learner = TaskLearner(uneven_task(), RECIPE)
    lines = [str(jax.local_device_count()), *map(fingerprint, learner.train_many(mixed_jobs(learner, 16)))]
    sys.stdout.write("\n".join(lines))


def check_products(gradients: Sequence[Vector]) -> None:
    """Check the products of device vectors with each other against double precision."""
    exact = np.array([to_host(gradient) for gradient in gradients], np.float64)
    norms = np.linalg.norm(exact, axis=1)
    placed = [gradient for gradient in gradients if isinstance(gradient, DeviceVector)]
    found = np.array([one.products(placed) for one in placed])
    np.testing.assert_array_less(np.abs(found - exact @ exact.T), 2e-6 * np.outer(norms, norms))


if __name__ == "__main__":
    main()
