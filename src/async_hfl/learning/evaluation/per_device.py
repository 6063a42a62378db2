"""Evaluation of one model for each device, which shows the spread behind the mean.

Each device is evaluated on its own samples: its natural owner's part of the test set if the data has owners, otherwise
its training samples. The model was trained on the latter. They show which devices the model serves worse than others,
but not how it performs on unseen data.
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
from async_hfl.learning.engine.device_data import samples_to_device
from async_hfl.learning.engine.on_device.jax_vectors import program_argument
from async_hfl.learning.engine.trainer import Precision
from async_hfl.learning.evaluation.evaluator import counting_program
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model
from async_hfl.learning.partition.dealing import Rows

_MOST = 200
"""The most samples of a device: enough to tell devices apart, and all devices together cost a few evaluations."""
_ROWS = 100
"""Samples per pass. The passes of all devices form one list, so that a small device costs a single pass."""


@final
class PerDeviceEvaluation:
    """Evaluates models on the samples of each device."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        samples: Samples,
        owned: Sequence[Rows],
        precision: Precision = "float32",
    ) -> None:
        self._counting = counting_program(model, objective, samples.window)
        self._objective = objective
        self._precision: Precision = precision
        self._devices = len(owned)
        used = [_spaced(rows) for rows in owned]
        passes = [
            (number, rows[first : first + _ROWS])
            for number, rows in enumerate(used)
            for first in range(0, len(rows), _ROWS)
        ]
        self._device_of = np.array([number for number, _ in passes], dtype=np.int64)
        order = np.zeros((len(passes), _ROWS), dtype=np.int32)
        mask = np.zeros((len(passes), _ROWS), dtype=np.float32)
        for place, (_, rows) in enumerate(passes):
            order[place, : len(rows)] = rows
            # Padding repeats the device's first sample, masked out.
            order[place, len(rows) :] = rows[0]
            mask[place, : len(rows)] = 1
        self._place = jax.local_devices()[0]
        self._arguments = (samples_to_device(samples, self._place), *jax.device_put((order, mask), self._place))
        self._program: Program | None = None
        self._compiling = Lock()

    def evaluate(self, weights: Weights) -> list[Evaluation | None]:
        """Return one evaluation per device; None for a device without samples."""
        model = program_argument(weights, 1)
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
    """Return at most `_MOST` of the rows, evenly spaced."""
    return rows if len(rows) <= _MOST else rows[np.linspace(0, len(rows) - 1, _MOST).astype(np.int64)]
