"""How good one model is for each device: the spread that a mean over everybody hides.

Each device is judged on samples of its own: its natural owner's part of the test set where the data has owners, else
the training samples it holds. The latter were trained on, so they tell who is served worse than whom, not how a model
does on what it has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import final

import numpy as np

from async_hfl.core.learner import Evaluation
from async_hfl.core.weights import Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.compilation import Program, compile_for
from async_hfl.learning.engine.device_data import resident
from async_hfl.learning.engine.on_device.device_vector import as_argument
from async_hfl.learning.engine.trainer import Precision
from async_hfl.learning.evaluation.evaluator import counting
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model
from async_hfl.learning.partition import Rows

_MOST = 200
"""Samples of a device: enough to tell devices apart, and all of them together cost no more than a few evaluations."""
_ROWS = 100
"""Samples per pass. Passes of all devices stand in one list, so a small device costs one pass, not a large one's."""


@final
class PerDeviceEvaluation:
    """Evaluates a model on each group of samples."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        samples: Samples,
        owned: Sequence[Rows],
        precision: Precision = "float32",
    ) -> None:
        self._counting = counting(model, objective, samples.window)
        self._objective = objective
        self._precision: Precision = precision
        self._devices = len(owned)
        judged = [_spaced(rows) for rows in owned]
        pieces = [
            (number, rows[first : first + _ROWS])
            for number, rows in enumerate(judged)
            for first in range(0, len(rows), _ROWS)
        ]
        self._device_of = np.array([number for number, _ in pieces], dtype=np.int64)
        order = np.zeros((len(pieces), _ROWS), dtype=np.int32)
        mask = np.zeros((len(pieces), _ROWS), dtype=np.float32)
        for place, (_, rows) in enumerate(pieces):
            order[place, : len(rows)] = rows
            # Padding repeats the device's own first sample, masked out.
            order[place, len(rows) :] = rows[0]
            mask[place, : len(rows)] = 1
        self._place = jax.local_devices()[0]
        self._arguments = (resident(samples, self._place), *jax.device_put((order, mask), self._place))
        self._program: Program | None = None
        self._compiling = Lock()

    def evaluate(self, weights: Weights) -> list[Evaluation | None]:
        """One for each device; None for a device without samples."""
        model = as_argument(weights, 1)
        with self._compiling:
            if self._program is None:
                [self._program] = compile_for([self._place], self._counting, (*self._arguments, model), self._precision)
        sums = np.asarray(self._program(*self._arguments, model), dtype=np.float64)
        totals = np.zeros((self._devices, sums.shape[1]))
        np.add.at(totals, self._device_of, sums)
        counted = np.bincount(self._device_of, minlength=self._devices) > 0
        return [
            self._objective.summarise(total) if any_ else None
            for total, any_ in zip(totals, counted.tolist(), strict=True)
        ]


def _spaced(rows: Rows) -> Rows:
    """At most `_MOST` of them, evenly spread."""
    return rows if len(rows) <= _MOST else rows[np.linspace(0, len(rows) - 1, _MOST).astype(np.int64)]
