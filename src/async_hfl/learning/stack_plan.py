"""The plan for accelerators: stacked weights, all jobs of a group side by side (vmap).

Groups are padded to a few sizes, so that little is compiled anew. A job's numbers may differ in the last bits between
group sizes; which groups there are depends on the jobs and the settings alone, so the same command gives the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.far_vector import here
from async_hfl.core.learner import Ahead
from async_hfl.learning.activations import training_bytes
from async_hfl.learning.backend import Array, jax, jnp
from async_hfl.learning.buckets import padded_jobs, padded_steps
from async_hfl.learning.compilation import Program
from async_hfl.learning.local_training import local_training
from async_hfl.learning.models.model import Model
from async_hfl.learning.objectives import Objective
from async_hfl.learning.plan import Collected, Group, collected_rows
from async_hfl.learning.recipe import Shape
from async_hfl.learning.resident import Resident
from async_hfl.learning.staging import Staging
from async_hfl.learning.trainer import EngineOptions, Request

_MOST_PLACES = 1024
_MOST_BYTES = 1 << 28
"""Of weights in a group: while one group trains, the next one's weights travel."""
_HEAVY = 1 << 24
"""Bytes of a model of which a handful fills an accelerator."""
_FEW = 8
"""Jobs that are not worth a second device: a half-empty accelerator is no faster."""
_AHEAD = Ahead(_FEW, 1 / 8, 1)
"""A call takes about as long for few jobs as for many, so there is one at a time, of what has gathered meanwhile."""


class StackPlan:
    name = "stack"

    def __init__(
        self,
        model: Model,
        objective: Objective,
        shape: Shape,
        data: Resident,
        window: int,
        devices: Sequence[Any],
        options: EngineOptions,
    ) -> None:
        self._model = model
        self._objective = objective
        self._shape = shape
        self._window = window
        self._devices = devices
        self._half = options.precision == "bf16"
        one = training_bytes(model, objective, shape, data, window)
        self.places = max(1, min(_MOST_PLACES, options.memory // one.stacked))
        self.ahead = _AHEAD
        self._staging = [Staging(device, model.layout.size) for device in devices]

    def expected(self, room: int, jobs: int) -> list[Group]:
        """Any number of jobs up to all of them; from one model only where it is all of them, as in a warm-up."""
        heavy = self._model.bytes >= _HEAVY
        steps = padded_steps(self._shape.steps_per_epoch(room))
        most = min(self.places, max(_FEW, _MOST_BYTES // self._model.bytes))
        numbers = {padded_jobs(number, most, heavy=heavy) for number in range(1, min(jobs, most) + 1)}
        all_at_once = -(-jobs // -(-jobs // self.places))
        together = padded_jobs(all_at_once, self.places, heavy=heavy)
        return [Group(0, (), together, steps, shared=True)] + [Group(0, (), n, steps) for n in sorted(numbers)]

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """The longest first, and with it those at least half as long: the shorter ones wait for the longest, but an
        accelerator that is half empty is no faster either."""
        steps_of = np.array([self._shape.steps_per_epoch(len(request.rows)) for request in requests])
        order = np.argsort(-steps_of, kind="stable")
        while len(order):
            longest = int(steps_of[order[0]])
            alike = int(np.searchsorted(-steps_of[order], -longest / 2, side="left"))
            members, order = order[:alike].tolist(), order[alike:]
            first = requests[members[0]].weights
            shared = all(requests[index].weights is first for index in members)
            # Weights that lie on the device once need not be sent piece by piece.
            most = self.places if shared else min(self.places, max(_FEW, _MOST_BYTES // self._model.bytes))
            used = min(len(self._devices), -(-alike // min(most, _FEW)))
            parts = used * -(-alike // (used * most))
            for number in range(parts):
                part = members[alike * number // parts : alike * (number + 1) // parts]
                places = padded_jobs(len(part), most, heavy=self._model.bytes >= _HEAVY)
                yield Group(number % used, tuple(part), places, padded_steps(longest), shared)

    def like_starts(self, group: Group) -> Any:
        return self._staging[0].like(1 if group.shared else group.places)

    def run(
        self,
        program: Program,
        group: Group,
        members: Sequence[Request],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: npt.NDArray[np.int32],
        sizes: npt.NDArray[np.int32],
    ) -> Any:
        # Unused places repeat the first job: finite numbers, thrown away.
        for part in (coefficients, orders, sizes):
            part[len(group.members) :] = part[0]
        weights = [here(request.weights) for request in members]
        rows = weights[:1] if group.shared else [*weights, *[weights[0]] * (group.places - len(weights))]
        outcome = program(data, coefficients, self._staging[group.device].place(rows), orders, sizes)
        return self._staging[group.device].bring(outcome)

    def collect(self, group: Group, outcome: Any) -> Iterator[Collected]:
        return collected_rows(outcome)

    def _side_by_side(self, group: Group) -> Any:
        """`LocalTraining` of all places at once; their start weights are stacked unless shared."""
        train = local_training(
            self._model, self._objective, self._shape, self._window, most_steps=group.steps, half=self._half
        )
        return jax.vmap(train, in_axes=(None, 0, None if group.shared else 0, 0, 0))

    def program(self, group: Group) -> Program:
        shared, side_by_side = group.shared, self._side_by_side(group)

        def train_group(
            data: Resident, coefficients: Array, starts: tuple[Array, ...], orders: Array, sizes: Array
        ) -> tuple[Array, ...]:
            start = starts[0][0] if shared else jnp.concatenate(starts)
            trained = side_by_side(data, coefficients, start, orders, sizes)
            return tuple(part for part in trained if part is not None)

        return train_group
