"""The CPU plan: a compiled loop over jobs on every core.

Exact by construction: how jobs are grouped cannot change a result, because there is one program per learner, with a
fixed number of places for jobs and a dynamic loop bound. A call is cut into groups of at most that many jobs, spread
over the host devices (one per core, each with the same program); unused places are never computed. A job's numbers
therefore come from the same instructions on the same values whether it comes alone or with a thousand others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.weights import frozen
from async_hfl.learning.backend import Array, jax, jnp, lax
from async_hfl.learning.batches import BatchPlanner
from async_hfl.learning.compilation import Program, compile_for
from async_hfl.learning.local_training import local_training
from async_hfl.learning.models.model import Model
from async_hfl.learning.objectives import Objective
from async_hfl.learning.partition import Rows
from async_hfl.learning.recipe import Recipe
from async_hfl.learning.samples import Samples

_MOST_PLACES = 16
"""Jobs per program call: enough that calling costs little, few enough that padding a small call does too."""
_GROUP_BYTES = 1 << 26
"""A large model has fewer places, so that a group's weights do not fill the memory."""
_QUEUED_GROUPS = 4
"""Groups handed to each core ahead of their results: a core never waits for work, a huge call takes bounded memory."""

_Group: TypeAlias = npt.NDArray[np.intp]


class LoopEngine:
    """Trains jobs on the host's cores."""

    def __init__(
        self, model: Model, objective: Objective, train: Samples, owned: Sequence[Rows], recipe: Recipe
    ) -> None:
        self._model = model
        self._objective = objective
        self._recipe = recipe
        self._planner = BatchPlanner(
            owned, epochs=recipe.epochs, batch_size=recipe.batch_size, in_stored_order=recipe.gradient
        )
        self._places = max(1, min(_MOST_PLACES, _GROUP_BYTES // max(1, model.bytes)))
        self._devices = jax.local_devices(backend="cpu")
        coefficients = np.array(
            [recipe.learning_rate, recipe.momentum, recipe.weight_decay, recipe.proximal_weight], dtype=np.float32
        )
        # Resident on every device: only what differs between calls travels.
        self._resident = [
            tuple(jax.device_put(part, device) for part in (coefficients, train.inputs, train.targets))
            for device in self._devices
        ]
        self._programs: list[Program] = []
        self._compiling = Lock()

    def compile(self) -> None:
        """Compile now rather than in the first call, for whoever wants to measure without it."""
        with self._compiling:
            if self._programs:
                return
            arguments = (*self._resident[0], *self._empty_group())
            self._programs = compile_for(self._devices, self._program(), arguments)

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        if not jobs:
            return []
        self.compile()
        devices = np.array([job.device for job in jobs], dtype=np.int64)
        seeds = np.array([job.seed for job in jobs], dtype=np.uint64)
        running: deque[tuple[_Group, tuple[Array, ...]]] = deque()
        results: dict[int, TrainingResult] = {}
        for core, group in self._groups(devices):
            starts, orders, sizes = self._empty_group()
            for place, index in enumerate(group.tolist()):
                starts[place] = jobs[index].weights
            self._planner.fill(orders[: len(group)], devices[group], seeds[group])
            sizes[: len(group)] = self._planner.sizes[devices[group]]
            # Returns before the work is done: the other cores get theirs meanwhile.
            running.append((group, self._programs[core](*self._resident[core], starts, orders, sizes)))
            if len(running) > _QUEUED_GROUPS * len(self._devices):
                self._collect(*running.popleft(), devices, results)
        for group, outcome in running:
            self._collect(group, outcome, devices, results)
        return [results[index] for index in range(len(jobs))]

    def _groups(self, devices: npt.NDArray[np.int64]) -> list[tuple[int, _Group]]:
        """(core, jobs) in the order of dispatch; longest jobs first, dealt in turn, so that cores finish together."""
        by_length = np.argsort(-self._planner.sizes[devices], kind="stable")
        cores = min(len(self._devices), len(devices))
        shares = [by_length[core::cores] for core in range(cores)]
        return [
            (core, share[first : first + self._places])
            for first in range(0, len(shares[0]), self._places)
            for core, share in enumerate(shares)
            if first < len(share)
        ]

    def _collect(
        self,
        group: _Group,
        outcome: tuple[Array, ...],
        devices: npt.NDArray[np.int64],
        results: dict[int, TrainingResult],
    ) -> None:
        weights, sums, *gradients = (np.asarray(part) for part in outcome)
        for place, index in enumerate(group.tolist()):
            samples = int(self._planner.sizes[devices[index]])
            loss, squared_loss = sums[place].tolist()
            results[index] = TrainingResult(
                # Copied: a view would keep the whole group's memory alive for as long as one model is in use.
                weights=frozen(weights[place].copy()),
                samples=samples,
                steps=self._recipe.epochs * self._recipe.steps_per_epoch(samples),
                loss=loss / samples,
                squared_loss=squared_loss / samples,
                gradient=frozen(gradients[0][place].copy()) if gradients else None,
            )

    def _empty_group(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Start weights, orders and sample counts; a count of 0 marks an unused place."""
        return (
            np.empty((self._places, self._model.layout.size), dtype=np.float32),
            np.empty((self._places, *self._planner.shape), dtype=np.int32),
            np.zeros(self._places, dtype=np.int32),
        )

    def _program(self) -> Program:
        train = local_training(self._model, self._objective, self._recipe)
        with_gradient = self._recipe.gradient

        def train_group(
            coefficients: Array, inputs: Array, targets: Array, starts: Array, orders: Array, sizes: Array
        ) -> tuple[Array, ...]:
            def train_next(place: Array, done: tuple[Array, ...]) -> tuple[Array, ...]:
                start, order, size = (
                    lax.dynamic_index_in_dim(a, place, keepdims=False) for a in (starts, orders, sizes)
                )
                one = train(coefficients, inputs, targets, start, order, size)
                parts = (one.weights, one.sums) if one.gradient is None else one
                return tuple(
                    lax.dynamic_update_index_in_dim(all_, part, place, 0)
                    for all_, part in zip(done, parts, strict=True)
                )

            models = jnp.zeros_like(starts)
            sums = jnp.zeros((len(sizes), 2), starts.dtype)
            nothing = (models, sums, models) if with_gradient else (models, sums)
            done: tuple[Array, ...] = lax.fori_loop(0, (sizes > 0).sum(), train_next, nothing)
            return done

        return train_group
