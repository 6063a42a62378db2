"""Trains jobs, many at a time, on the host's cores or on accelerators.

An engine belongs to a model, an objective and a training set; whose rows a job trains on, with which coefficients and
from which weights, comes with the job. So one engine serves every run of a task, whatever its seed and method.

A call is cut into groups, spread over the devices, and collected in order. The two plans differ in how a group runs:

* CPU: a compiled loop, job after job, on every core. Exact by construction: how jobs are grouped cannot change a
  result, because there is one program with a fixed number of places and a dynamic loop bound; unused places are never
  computed. A job's numbers come from the same instructions on the same values whether it comes alone or with a thousand
  others.
* Accelerator: stacked weights, all jobs of a group side by side (vmap). Groups are padded to a few sizes, so that
  little is compiled anew; a job's numbers may differ in the last bits between group sizes. The plan depends on the
  jobs and the settings alone, so the same command gives the same groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import TrainingResult
from async_hfl.core.weights import frozen
from async_hfl.learning.activations import training_bytes
from async_hfl.learning.backend import Array, jax, jnp, lax
from async_hfl.learning.batches import batch_orders
from async_hfl.learning.buckets import padded_jobs, padded_steps
from async_hfl.learning.compilation import Program, compile_for
from async_hfl.learning.local_training import local_training
from async_hfl.learning.models.model import Model
from async_hfl.learning.objectives import Objective
from async_hfl.learning.recipe import Shape
from async_hfl.learning.resident import Resident, resident
from async_hfl.learning.samples import Samples
from async_hfl.learning.trainer import EngineOptions, Plan, Request

_MOST_LOOPED = 16
"""Jobs per program call on a core: enough that calling costs little, few enough that padding a small call does too."""
_MOST_STACKED = 1024
_QUEUED_GROUPS = 4
"""Groups handed to each device ahead of their results: none waits for work, a huge call takes bounded memory."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    device: int
    members: npt.NDArray[np.intp]
    places: int
    steps: int
    """Per epoch, padded."""


class Engine:
    def __init__(
        self,
        model: Model,
        objective: Objective,
        train: Samples,
        shape: Shape,
        options: EngineOptions = EngineOptions(),  # noqa: B008  (frozen)
    ) -> None:
        self._model = model
        self._objective = objective
        self._shape = shape
        self._window = train.window
        self._options = options
        self._devices = jax.local_devices()
        self.plan: Plan = options.plan or ("loop" if self._devices[0].platform == "cpu" else "stack")
        self._data: list[Resident] = [resident(train, device) for device in self._devices]
        one = training_bytes(model, objective, shape, self._data[0], train.window)
        if self.plan == "stack":
            self._places = max(1, min(_MOST_STACKED, options.memory // one.stacked))
        else:
            # Job after job: a place costs its weights (start, answer, gradient) in every queued group, no activations.
            queued = 3 * one.weights * (_QUEUED_GROUPS + 1) * len(self._devices)
            self._places = max(1, min(_MOST_LOOPED, options.memory // queued))
        self._programs: dict[tuple[int, int], list[Program]] = {}
        self._compiling = Lock()

    def compile(self, room: int) -> None:
        """Compile now rather than in the first call, for whoever wants to measure without it."""
        if self.plan == "loop":
            self._program(self._places, padded_steps(self._shape.steps_per_epoch(room)))

    def train(self, requests: Sequence[Request]) -> list[TrainingResult]:
        running: deque[tuple[_Group, tuple[Array, ...]]] = deque()
        results: dict[int, TrainingResult] = {}
        for group in self._groups(requests):
            starts, coefficients, orders, sizes = self._empty(group.places, group.steps)
            members = [requests[index] for index in group.members.tolist()]
            for place, request in enumerate(members):
                starts[place] = request.weights
                coefficients[place] = request.coefficients
                sizes[place] = len(request.rows)
            seeds = np.array([request.seed for request in members], dtype=np.uint64)
            batch_orders(orders[: len(members)], [request.rows for request in members], seeds, self._shape)
            if self.plan == "stack":
                # Unused places repeat the first job: finite numbers, thrown away.
                for part in (starts, coefficients, orders, sizes):
                    part[len(members) :] = part[0]
            program = self._program(group.places, group.steps)[group.device]
            # Returns before the work is done: the other devices get theirs meanwhile.
            running.append((group, program(self._data[group.device], coefficients, starts, orders, sizes)))
            if len(running) > _QUEUED_GROUPS * len(self._devices):
                self._collect(*running.popleft(), requests, results)
        for group, outcome in running:
            self._collect(group, outcome, requests, results)
        return [results[index] for index in range(len(requests))]

    def _groups(self, requests: Sequence[Request]) -> Iterator[_Group]:
        """In the order of dispatch; longest jobs first, so that devices finish together and steps are alike."""
        sizes = np.array([len(request.rows) for request in requests], dtype=np.int64)
        if self.plan == "loop":
            rooms = [padded_steps(self._shape.steps_per_epoch(request.room)) for request in requests]
        else:
            rooms = [padded_steps(self._shape.steps_per_epoch(size)) for size in sizes.tolist()]
        steps_of = np.array(rooms, dtype=np.int64)
        for steps in sorted(set(rooms), reverse=True):
            members = np.flatnonzero(steps_of == steps)
            members = members[np.argsort(-sizes[members], kind="stable")]
            if self.plan == "loop":
                # Dealt in turn: job after job, so what a core does is the sum of its jobs.
                used = min(len(self._devices), len(members))
                shares = [members[core::used] for core in range(used)]
            else:
                # Few jobs on one device rather than fewer on several: a half-empty accelerator is no faster.
                used = min(len(self._devices), -(-len(members) // min(self._places, 8)))
                shares = list(np.array_split(members, used))
            for first in range(0, len(shares[0]), self._places):
                for device, share in enumerate(shares):
                    part = share[first : first + self._places]
                    if len(part):
                        places = self._places if self.plan == "loop" else padded_jobs(len(part), self._places)
                        yield _Group(device, part, places, steps)

    def _collect(
        self,
        group: _Group,
        outcome: tuple[Array, ...],
        requests: Sequence[Request],
        results: dict[int, TrainingResult],
    ) -> None:
        weights, sums, *gradients = (np.asarray(part) for part in outcome)
        for place, index in enumerate(group.members.tolist()):
            samples = len(requests[index].rows)
            loss, squared_loss = sums[place].tolist()
            results[index] = TrainingResult(
                # Copied: a view would keep the whole group's memory alive for as long as one model is in use.
                weights=frozen(weights[place].copy()),
                samples=samples,
                steps=self._shape.epochs * self._shape.steps_per_epoch(samples),
                loss=loss / samples,
                squared_loss=squared_loss / samples,
                gradient=frozen(gradients[0][place].copy()) if gradients else None,
            )

    def _empty(
        self, places: int, steps: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Start weights, coefficients, orders and sample counts; a count of 0 marks an unused place."""
        return (
            np.empty((places, self._model.layout.size), dtype=np.float32),
            np.zeros((places, 4), dtype=np.float32),
            np.zeros((places, self._shape.passes, steps, self._shape.batch_size), dtype=np.int32),
            np.zeros(places, dtype=np.int32),
        )

    def _program(self, places: int, steps: int) -> list[Program]:
        with self._compiling:
            found = self._programs.get((places, steps))
            if found is None:
                starts, coefficients, orders, sizes = self._empty(places, steps)
                arguments = (self._data[0], coefficients, starts, orders, sizes)
                function = self._looped() if self.plan == "loop" else self._stacked(steps)
                found = compile_for(self._devices, function, arguments, self._options.precision)
                self._programs[places, steps] = found
            return found

    def _looped(self) -> Program:
        train = local_training(self._model, self._objective, self._shape, self._window)
        gradients = self._shape.gradient
        trained = self._model.trained_size

        def train_group(
            data: Resident, coefficients: Array, starts: Array, orders: Array, sizes: Array
        ) -> tuple[Array, ...]:
            def train_next(place: Array, done: tuple[Array, ...]) -> tuple[Array, ...]:
                own = (coefficients, starts, orders, sizes)
                one = train(data, *(lax.dynamic_index_in_dim(part, place, keepdims=False) for part in own))
                parts = (one.weights, one.sums) if one.gradient is None else one
                return tuple(
                    lax.dynamic_update_index_in_dim(all_, part, place, 0)
                    for all_, part in zip(done, parts, strict=True)
                )

            nothing: tuple[Array, ...] = (jnp.zeros_like(starts), jnp.zeros((len(sizes), 2), starts.dtype))
            if gradients:
                nothing = (*nothing, jnp.zeros((len(sizes), trained), starts.dtype))
            done: tuple[Array, ...] = lax.fori_loop(0, (sizes > 0).sum(), train_next, nothing)
            return done

        return train_group

    def _stacked(self, steps: int) -> Program:
        train = local_training(
            self._model,
            self._objective,
            self._shape,
            self._window,
            most_steps=steps,
            half=self._options.precision == "bf16",
        )
        side_by_side: Any = jax.vmap(train, in_axes=(None, 0, 0, 0, 0))

        def train_group(
            data: Resident, coefficients: Array, starts: Array, orders: Array, sizes: Array
        ) -> tuple[Array, ...]:
            trained = side_by_side(data, coefficients, starts, orders, sizes)
            return tuple(part for part in trained if part is not None)

        return train_group
