"""Side by side on an accelerator, as `stack_plan`, and what goes in and comes out stays there.

Start weights, trained weights and gradients are vectors of the card; of each job only two sums of losses, and whether
its weights are finite, are fetched. With the jobs, what their gradients will be asked for is ordered (`kin`): where a
job gives no gradient, the mean step takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import PrefetchPolicy
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program, like
from async_hfl.learning.engine.device_data import Resident
from async_hfl.learning.engine.local_training import Named
from async_hfl.learning.engine.on_device.device_ops import DeviceOps
from async_hfl.learning.engine.on_device.device_vector import JaxVector
from async_hfl.learning.engine.on_device.kin import Kin
from async_hfl.learning.engine.plans.protocol import Collected, Group, Traced
from async_hfl.learning.engine.plans.vmap import Through, VmapPlan
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, flatten

_AHEAD = PrefetchPolicy(16, 0.0, 3, in_order=True)
"""A call of fewer jobs takes as long."""


class _Outcome(NamedTuple):
    weights: list[JaxVector]
    gradients: list[JaxVector]
    facts: Array
    """Of each place: sum of losses, of their squares, are the weights finite."""


@final
class ResidentVmapPlan(VmapPlan):
    name = "card"

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
        super().__init__(model, objective, shape, data, window, devices, options)
        self._card = DeviceOps(devices[0])
        self.ahead = _AHEAD

    def _like_starts(self, group: Group) -> Any:
        return (like(self._model.layout.size),) * (1 if group.shared else group.places)

    def run(
        self,
        programs: Mapping[str, Program],
        group: Group,
        members: Sequence[Request],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: BatchOrders,
        sizes: npt.NDArray[np.int32],
    ) -> _Outcome:
        self._draw_ahead(group, orders, sizes)
        divisors = np.ones(group.places, np.float32)
        for place, request in enumerate(members):
            if request.kin is not None:
                steps = self._shape.epochs * self._shape.steps_per_epoch(len(request.rows))
                divisors[place] = request.kin.learning_rate * steps
        placed = [self._card.place(request.weights) for request in members[: 1 if group.shared else None]]
        self._card.settle(placed)
        rows = [vector.array for vector in placed]
        if not group.shared:
            rows += rows[:1] * (group.places - len(rows))
        job = self._through(programs, group, tuple(rows), data, coefficients, orders, sizes)
        weights, facts, gradients = programs["finish"](job, divisors)
        facts.copy_to_host_async()
        outcome = _Outcome(self._vectors(weights, members), self._vectors(gradients, members), facts)
        self._introduce(members, outcome, divisors)
        return outcome

    def _vectors(self, rows: Sequence[Array], members: Sequence[Request]) -> list[JaxVector]:
        return [JaxVector(self._card, row) for row in rows[: len(members)]]

    def _introduce(self, members: Sequence[Request], outcome: _Outcome, divisors: npt.NDArray[np.float32]) -> None:
        families: dict[int, tuple[Kin, list[JaxVector]]] = {}
        for request, weights, gradient, divisor in zip(
            members, outcome.weights, outcome.gradients, divisors, strict=False
        ):
            if request.kin is not None:
                families.setdefault(id(request.kin), (request.kin, []))[1].append(gradient)
                if not self._shape.gradient:
                    weights.know_step(request.weights, divisor, gradient)
        for kin, vectors in families.values():
            self._card.introduce(kin, vectors)

    def collect(self, group: Group, outcome: _Outcome) -> Iterator[Collected]:
        facts = np.asarray(outcome.facts).tolist()
        for place, weights in enumerate(outcome.weights):
            loss, squared_loss, finite = facts[place]
            weights.know_finite(bool(finite))
            yield Collected(weights, loss, squared_loss, outcome.gradients[place] if self._shape.gradient else None)

    def programs(self, group: Group) -> dict[str, Traced]:
        places, with_gradient = group.places, self._shape.gradient
        flat, mean_gradient, trained = jax.vmap(self._train.flat), self._mean_gradient, self._model.trained

        def mean_step(received: Named, trained_to: Named, divisor: Array) -> Array:
            return flatten(trained, {name: (received[name] - trained_to[name]) / divisor for name in trained})

        mean_steps = jax.vmap(mean_step)

        def finish(job: Through, divisors: Array) -> tuple[tuple[Array, ...], Array, tuple[Array, ...]]:
            weights = flat(job.progress)
            if with_gradient:
                gradients = mean_gradient(job)
            else:
                gradients = mean_steps(job.received, job.progress.parameters, divisors)
            finite = jnp.isfinite(weights).all(axis=1, keepdims=True).astype(weights.dtype)
            return (
                tuple(weights[place] for place in range(places)),
                jnp.concatenate([job.progress.sums, finite], axis=1),
                tuple(gradients[place] for place in range(places)),
            )

        finishing = Traced(("finish", places), finish, (self._like(group), like(places)))
        return {**self._piece_programs(group), "finish": finishing}
