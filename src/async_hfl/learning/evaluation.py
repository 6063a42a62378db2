"""How good a model is on the whole test set: one compiled program, always on the same core."""

from __future__ import annotations

from threading import Lock

import numpy as np

from async_hfl.core.learner import Evaluation
from async_hfl.core.weights import Weights
from async_hfl.learning.backend import Array, jax, lax
from async_hfl.learning.compilation import Program, compile_for
from async_hfl.learning.models.model import Model, unflatten
from async_hfl.learning.objectives import Objective
from async_hfl.learning.samples import Samples

_MOST_ROWS = 512
"""Samples per pass: activations of a large test set would not fit the cache, nor, for a large model, the memory."""


class Evaluator:
    def __init__(self, model: Model, objective: Objective, test: Samples) -> None:
        self._model = model
        self._objective = objective
        rows = min(_MOST_ROWS, len(test))
        batches = -(-len(test) // rows)
        padding = batches * rows - len(test)
        # Padding repeats the first sample, masked out.
        order = np.concatenate([np.arange(len(test)), np.zeros(padding, dtype=np.int64)]).reshape(batches, rows)
        mask = (np.arange(batches * rows) < len(test)).astype(np.float32).reshape(batches, rows)
        self._device = jax.local_devices(backend="cpu")[0]
        self._resident = tuple(
            jax.device_put(part, self._device) for part in (test.inputs[order], test.targets[order], mask)
        )
        self._compiled: Program | None = None
        self._compiling = Lock()

    def compile(self) -> Program:
        with self._compiling:
            if self._compiled is not None:
                return self._compiled
            weights = np.empty(self._model.layout.size, dtype=np.float32)
            [self._compiled] = compile_for([self._device], self._program(), (*self._resident, weights))
            return self._compiled

    def evaluate(self, weights: Weights) -> Evaluation:
        program = self._compiled or self.compile()
        sums = np.asarray(program(*self._resident, weights), dtype=np.float64)
        return self._objective.summarise(sums.sum(axis=0))

    def _program(self) -> Program:
        model, objective = self._model, self._objective

        def count_all(inputs: Array, targets: Array, mask: Array, weights: Array) -> Array:
            parameters = unflatten(model.layout, weights)

            def count(batch: tuple[Array, Array, Array]) -> Array:
                rows, wanted, real = batch
                return objective.count(model.apply(parameters, rows), wanted, real)

            sums: Array = lax.map(count, (inputs, targets, mask))
            return sums

        return count_all
