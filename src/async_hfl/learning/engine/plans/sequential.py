"""The plan for CPUs: a compiled loop that trains one job after another, on every core.

The grouping of jobs cannot change a result. A learner has one program with a fixed number of places and a dynamic loop
bound, and unused places are never computed: a job's numbers come from the same instructions on the same values whether
it is trained alone or with a thousand others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from async_hfl.core.learner import PrefetchPolicy
from async_hfl.learning.engine.backend import Array, jnp, lax
from async_hfl.learning.engine.compilation import Program, like
from async_hfl.learning.engine.device_data import DeviceSamples
from async_hfl.learning.engine.plans.padding import padded_steps
from async_hfl.learning.engine.plans.plan import QUEUED_GROUPS, Group, GroupInput, Plan, PlanSetup, Traced
from async_hfl.learning.engine.trainer import Request

_MOST_PLACES, _MOST_BYTES = 16, 1 << 18
"""Limits on the jobs and the bytes of weights of a group. More jobs reduce the cost of calls, fewer reduce the padding
of a small call. For a large model the cost of a call is negligible, but each unused place costs a copy."""
_PREFETCH_JOBS, _PREFETCH_CALLS = 2, 4
"""Jobs per core in a call that is started early (at most a group), and the most such calls at a time. Small calls start
early; results do not depend on these numbers."""


@final
class SequentialPlan(Plan):
    name = "sequential"

    def __init__(self, setup: PlanSetup) -> None:
        super().__init__(setup)
        size, cores = setup.model.bytes, len(setup.devices)
        # Each queued group holds the weights of its places (start, result, gradient), but no activations.
        queued = 3 * size * (QUEUED_GROUPS + 1) * cores
        self.places = max(1, min(_MOST_PLACES, _MOST_BYTES // size, setup.options.memory // queued))
        self.prefetch = PrefetchPolicy(min(_PREFETCH_JOBS, self.places) * cores, 0.0, _PREFETCH_CALLS)

    def expected(self, max_samples: int, jobs: int) -> list[Group]:
        return [Group(0, (), self.places, padded_steps(self._static.steps_per_epoch(max_samples)))]

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """Deal the longest jobs first, so that the cores finish together. The program depends on the learner alone, not
        on the samples of other jobs or learners."""
        static = self._static
        samples = np.array([len(request.rows) for request in requests], dtype=np.int64)
        steps_of = np.array([padded_steps(static.steps_per_epoch(request.max_samples)) for request in requests], int)
        for steps in np.unique(steps_of)[::-1].tolist():
            members = np.flatnonzero(steps_of == steps)
            members = members[np.argsort(-samples[members], kind="stable")]
            used = min(len(self._devices), len(members))
            shares = [members[core::used] for core in range(used)]
            for first in range(0, len(shares[0]), self.places):
                for core, share in enumerate(shares):
                    part = share[first : first + self.places]
                    if len(part):
                        yield Group(core, tuple(part.tolist()), self.places, steps)

    def run(self, inputs: GroupInput) -> tuple[Array, ...]:
        starts = np.empty((self.places, self._model.layout.size), dtype=np.float32)
        for place, request in enumerate(inputs.members):
            starts[place] = request.weights
        output: tuple[Array, ...] = inputs.programs["train"](
            inputs.data, inputs.coefficients, starts, inputs.orders.draw(), inputs.sizes
        )
        return output

    def programs(self, group: Group) -> dict[str, Traced]:
        static, places = self._static, group.places
        arguments = (
            self._data,
            like(places, 4),
            like(places, self._model.layout.size),
            like(places, static.passes, group.steps, static.batch_size, dtype=np.int32),
            like(places, dtype=np.int32),
        )
        return {"train": Traced(group.steps, self._program(), arguments)}

    def _program(self) -> Program:
        """Return (data, coefficients, starts, orders, sizes) -> weights, loss sums and, if asked for, gradients."""
        train, with_gradient, trained = self._train, self._static.gradient, self._model.trained_size

        def train_group(
            data: DeviceSamples, coefficients: Array, starts: Array, orders: Array, sizes: Array
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
