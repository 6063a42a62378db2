"""Evaluation of a model on a test set, by one compiled program and with the samples distributed over the devices.

The sums of a batch do not depend on the device, and batches are added in order. The same model therefore gives the same
metric to the bit, on any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.learner import Evaluation
from async_hfl.core.weights import Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import Array, jax, lax
from async_hfl.learning.engine.compilation import Program, compile_for, like
from async_hfl.learning.engine.device_data import DeviceSamples, gather, samples_to_device
from async_hfl.learning.engine.memory_estimate import evaluation_bytes
from async_hfl.learning.engine.on_device.jax_vectors import program_argument
from async_hfl.learning.engine.trainer import Precision
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, unflatten

_ROWS_ON_CPU = 256
"""Samples per pass: activations of a large test set would not fit the cache."""
_ROWS_ON_ACCELERATOR = 1024
"""The fewest samples per pass, since a pass of fewer takes as long. More if they fit."""
_LARGEST = 1 << 28
"""Bytes of the largest array that fits."""


class Evaluator:
    """Evaluates models on one test set."""

    def __init__(self, model: Model, objective: Objective, test: Samples, precision: Precision = "float32") -> None:
        if not len(test):
            raise DataError("the test set is empty: there is nothing to evaluate a model on")
        self._model = model
        self._objective = objective
        self._window = test.window
        self._precision: Precision = precision
        devices = jax.local_devices()
        first = samples_to_device(test, devices[0])
        rows = min(_ROWS_ON_CPU, len(test)) if devices[0].platform == "cpu" else rows_per_pass(model, test, first)
        batches = -(-len(test) // rows)
        # All devices run the same program on equally many batches; the last has some empty ones.
        self._devices = devices[: min(len(devices), batches)]
        share = -(-batches // len(self._devices))
        places = np.arange(share * len(self._devices) * rows)
        # Padding repeats the first sample, masked out.
        order = np.where(places < len(test), places, 0).astype(np.int32).reshape(len(self._devices), share, rows)
        mask = (places < len(test)).astype(np.float32).reshape(len(self._devices), share, rows)
        self._batches = batches
        self._arguments = [
            (
                samples_to_device(test, device) if number else first,
                *jax.device_put((order[number], mask[number]), device),
            )
            for number, device in enumerate(self._devices)
        ]
        self._programs: list[Program] = []
        self._compiling = Lock()

    def compile(self) -> None:
        with self._compiling:
            if not self._programs:
                counting = counting_program(self._model, self._objective, self._window)
                arguments = (*self._arguments[0], like(self._model.layout.size))
                self._programs = compile_for(self._devices, counting, arguments, self._precision)

    def begin(self, weights: Weights) -> Callable[[], Evaluation]:
        """Start an evaluation and return a function that waits for its result."""
        self.compile()
        model = program_argument(weights, len(self._devices))
        parts = [program(*arguments, model) for program, arguments in zip(self._programs, self._arguments, strict=True)]

        def answer() -> Evaluation:
            by_batch = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])[: self._batches]
            return self._objective.summarise(by_batch.sum(axis=0))

        return answer


def rows_per_pass(model: Model, test: Samples, data: DeviceSamples) -> int:
    """Return the samples per pass on an accelerator, so that passes are about equally long."""
    few = min(_ROWS_ON_ACCELERATOR, len(test))
    fit = few * _LARGEST // evaluation_bytes(model, data, test.window, few)
    return -(-len(test) // -(-len(test) // max(few, fit)))


def counting_program(model: Model, objective: Objective, window: int) -> Program:
    """Return a function (samples, rows by batch, mask, weights) -> the objective's sums by batch."""

    def count_all(data: DeviceSamples, order: Array, mask: Array, weights: Array) -> Array:
        parameters = unflatten(model.layout, weights)

        def count(batch: tuple[Array, Array]) -> Array:
            rows, real = batch
            inputs, wanted = gather(data, rows, window)
            return objective.count(model.apply(parameters, inputs), wanted, real)

        sums: Array = lax.map(count, (order, mask))
        return sums

    return count_all
