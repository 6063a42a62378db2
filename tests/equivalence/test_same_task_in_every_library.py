"""The same model, data and seed in plain JAX, Flax, Equinox and PyTorch: the same training, up to rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_task import CLASSES, HIDDEN, INPUTS

from async_hfl import api
from async_hfl.assembly.user_code.user_task import own_learner
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Learner, TrainingJob
from async_hfl.learning.engine.recipe import Recipe

HERE = Path(__file__).parent
DEVICES = 8
LIBRARIES = ["flax", "equinox", "torch"]


def first_update(library: str) -> np.ndarray[Any, Any]:
    """The change of one device's first job, as matrices of (inputs, outputs) and biases in one vector."""
    task = f"{HERE / 'same_task.py'}:{library}"
    learner = own_learner(task, DEVICES, 1, Recipe(2, 8, 0.1, momentum=0.5))
    try:
        start = learner.initial_weights(1)
        [result] = learner.train_many([TrainingJob(JobId(0, 0, 0), 3, start, 12345)])
        return in_order(learner, np.asarray(result.weights)) - in_order(learner, np.asarray(start))
    finally:
        getattr(learner, "close", lambda: None)()


def in_order(learner: Learner, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    arrays = list(learner.layout.unflatten(weights).values())
    found = []
    for inputs, outputs in ((INPUTS, HIDDEN), (HIDDEN, CLASSES)):
        (matrix,) = [array for array in arrays if array.shape in ((inputs, outputs), (outputs, inputs))]
        (bias,) = [array for array in arrays if array.shape == (outputs,)]
        found += [matrix if matrix.shape == (inputs, outputs) else matrix.T, bias]
    return np.concatenate([part.reshape(-1) for part in found])


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_first_update_is_the_same(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    expected = first_update("plain")
    length = np.linalg.norm(expected)
    assert length > 0.1
    assert np.linalg.norm(first_update(library) - expected) <= 1e-4 * length


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_ends_within_a_point(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    settings = [f"task.devices={DEVICES}", "network.gateways=2", "cloud.epochs=12", "device.learning_rate=0.05"]
    finals = []
    for name in ("plain", library):
        options: dict[str, Any] = {"task": f"{HERE / 'same_task.py'}:{name}", "method": "async-hfl", "seed": 1}
        finals.append(api.run(**options, overrides=settings, out=tmp_path / name).summary["final_metric"])
    assert finals[0] > 0.5
    assert abs(finals[0] - finals[1]) <= 0.01
