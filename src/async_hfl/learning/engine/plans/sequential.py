"""The plan for processors: a compiled loop, job after job, on every core.

Exact by construction: how jobs are grouped cannot change a result, because a learner has one program, with a fixed
number of places and a dynamic loop bound; unused places are never computed. A job's numbers come from the same
instructions on the same values whether it comes alone or with a thousand others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import here
from async_hfl.core.learner import PrefetchPolicy
from async_hfl.learning.engine.backend import Array, jnp, lax
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program
from async_hfl.learning.engine.device_data import Resident
from async_hfl.learning.engine.local_training import LocalTraining
from async_hfl.learning.engine.padding import padded_steps
from async_hfl.learning.engine.plans.protocol import QUEUED_GROUPS, Collected, Group, Traced, collected_rows
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model

_MOST_PLACES, _MOST_BYTES = 16, 1 << 18
"""Of a group, and of its weights. Enough that calling costs little; few enough that padding a small call does, too.
Where a model is large, calling for each job costs next to nothing beside it, but unused places cost their copies."""
_AHEAD_JOBS, _AHEAD_CALLS = 2, 4
"""Jobs a core in a call that is begun ahead, if a group holds as many, and such calls at a time. Results do not depend
on it: small and soon."""


@final
class SequentialPlan:
    name = "loop"

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
        self._shape = shape
        self._cores = len(devices)
        self._train = LocalTraining(model, objective, shape, window)
        self._data = data
        # A place costs its weights (start, answer, gradient) in every queued group, no activations.
        queued = 3 * model.bytes * (QUEUED_GROUPS + 1) * len(devices)
        self.places = max(1, min(_MOST_PLACES, _MOST_BYTES // model.bytes, options.memory // queued))
        self.ahead = PrefetchPolicy(min(_AHEAD_JOBS, self.places) * len(devices), 0.0, _AHEAD_CALLS)

    def expected(self, room: int, jobs: int) -> list[Group]:
        return [Group(0, (), self.places, self._steps(room))]

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """Longest jobs first, dealt in turn, so that cores finish together. The program is the learner's own: how many
        samples other jobs have, or other learners, does not touch it."""
        samples = np.array([len(request.rows) for request in requests], dtype=np.int64)
        steps_of = np.array([self._steps(request.room) for request in requests], dtype=np.int64)
        for steps in np.unique(steps_of)[::-1].tolist():
            members = np.flatnonzero(steps_of == steps)
            members = members[np.argsort(-samples[members], kind="stable")]
            used = min(self._cores, len(members))
            shares = [members[core::used] for core in range(used)]
            for first in range(0, len(shares[0]), self.places):
                for core, share in enumerate(shares):
                    part = share[first : first + self.places]
                    if len(part):
                        yield Group(core, tuple(part.tolist()), self.places, steps)

    def _steps(self, samples: int) -> int:
        return padded_steps(self._shape.steps_per_epoch(samples))

    def _starts(self) -> npt.NDArray[np.float32]:
        return np.empty((self.places, self._model.layout.size), dtype=np.float32)

    def run(
        self,
        programs: Mapping[str, Program],
        group: Group,
        members: Sequence[Request],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: BatchOrders,
        sizes: npt.NDArray[np.int32],
    ) -> tuple[Array, ...]:
        starts = self._starts()
        for place, request in enumerate(members):
            starts[place] = here(request.weights)
        outcome: tuple[Array, ...] = programs["train"](data, coefficients, starts, orders.whole(), sizes)
        return outcome

    def collect(self, group: Group, outcome: tuple[Array, ...]) -> Iterator[Collected]:
        return collected_rows(outcome)

    def programs(self, group: Group) -> dict[str, Traced]:
        shape = self._shape
        arguments = (
            self._data,
            np.empty((group.places, 4), np.float32),
            self._starts(),
            np.empty((group.places, shape.passes, group.steps, shape.batch_size), np.int32),
            np.empty(group.places, np.int32),
        )
        return {"train": Traced(group.steps, self._program(), arguments)}

    def _program(self) -> Program:
        """(data, coefficients, starts, orders, sizes) -> weights, loss sums, and gradients where asked for."""
        train, with_gradient, trained = self._train, self._shape.gradient, self._model.trained_size

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
            if with_gradient:
                nothing = (*nothing, jnp.zeros((len(sizes), trained), starts.dtype))
            # A size of 0 marks an unused place; they come last.
            done: tuple[Array, ...] = lax.fori_loop(0, (sizes > 0).sum(), train_next, nothing)
            return done

        return train_group
