"""The vmap plan with vectors that stay on the accelerator.

Start weights, trained weights and gradients are vectors on the device. Only two sums of losses per job, and a flag that
its weights are finite, are copied to the host. The products of the gradients with all live gradients are enqueued along
with the jobs; if the recipe asks for no gradient, the mean step takes its place. If results will be encoded, that is
enqueued as well, and the gradients are those that their receivers will decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.learner import PrefetchPolicy
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.compilation import like
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps, JaxVector
from async_hfl.learning.engine.optimisers import Named
from async_hfl.learning.engine.plans.plan import Group, GroupInput, JobOutput, PlanSetup, Traced
from async_hfl.learning.engine.plans.vmap import JobStates, VmapPlan
from async_hfl.learning.engine.trainer import Request
from async_hfl.learning.models.model import flatten

Floats = npt.NDArray[np.float32]


class _Output(NamedTuple):
    weights: list[JaxVector]
    gradients: list[JaxVector]
    facts: Array
    """By place: sum of losses, sum of squared losses, 1 if the weights are finite."""


@final
class ResidentVmapPlan(VmapPlan):
    name = "resident vmap"

    def __init__(self, setup: PlanSetup) -> None:
        super().__init__(setup)
        self._ops = DeviceOps(setup.devices[0])
        # A call of fewer jobs takes as long as one of 16. Calls and evaluations are completed in order.
        self.prefetch = PrefetchPolicy(16, 0.0, 3, True)

    def _like_starts(self, group: Group) -> Any:
        return (like(self._model.layout.size),) * (1 if group.same_start else group.places)

    def run(self, inputs: GroupInput) -> _Output:
        self._prefetch_orders(inputs)
        group, members = inputs.group, inputs.members
        divisors = np.ones(group.places, np.float32)
        for place, request in enumerate(members):
            if request.live is not None:
                steps = self._static.epochs * self._static.steps_per_epoch(len(request.rows))
                divisors[place] = request.live.learning_rate * steps
        placed = [self._ops.place(request.weights) for request in members[: 1 if group.same_start else None]]
        self._ops.compute(placed)
        starts = [vector.array for vector in placed]
        if not group.same_start:
            starts += starts[:1] * (group.places - len(starts))
        states = self._train_chunks(inputs, tuple(starts))
        weight_rows, facts, gradient_rows = inputs.programs["finish"](states, divisors)
        facts.copy_to_host_async()
        weights = [JaxVector(self._ops, row) for row in weight_rows[: len(members)]]
        gradients = [JaxVector(self._ops, row) for row in gradient_rows[: len(members)]]
        if not self._static.gradient:
            for request, end, step, divisor in zip(members, weights, gradients, divisors, strict=False):
                if request.live is not None:
                    end.set_step(request.weights, divisor, step)
        received = self._encode(members, weights, gradients, divisors)
        for live in dict.fromkeys(request.live for request in members):
            if live is not None:
                own = [one for one, request in zip(received, members, strict=True) if request.live is live]
                self._ops.multiply(live, own)
        return _Output(weights, gradients, facts)

    def _encode(
        self, members: Sequence[Request], weights: list[JaxVector], gradients: list[JaxVector], divisors: Floats
    ) -> list[JaxVector]:
        """Encode the results for which that was announced; return the gradients as their receivers will have them."""
        received, stepping, with_gradient = gradients.copy(), [], self._static.gradient
        all_decoded = []
        for place, request in enumerate(members):
            how = request.encoding
            if how is None:
                continue
            decoded = weights[place].encode_ahead(request.weights, how.memory, how.kind, how.trained, how.key)
            all_decoded.append(decoded)
            if with_gradient and how.gradient_key is not None:
                received[place] = gradients[place].encode_ahead(None, None, how.kind, how.trained, how.gradient_key)
                all_decoded.append(received[place])
            elif not with_gradient and request.live is not None:
                stepping.append((place, decoded))
        self._ops.compute(all_decoded)
        if stepping:
            places, ends = zip(*stepping, strict=True)
            starts, by = [members[place].weights for place in places], [divisors[place] for place in places]
            steps = self._ops.mean_steps(starts, ends, self._model.trained_size, by)
            for place, step in zip(places, steps, strict=True):
                received[place] = step
        return received

    def collect(self, output: _Output) -> Iterator[JobOutput]:
        facts = np.asarray(output.facts).tolist()
        for place, weights in enumerate(output.weights):
            loss, squared_loss, finite = facts[place]
            weights.set_finite(bool(finite))
            yield JobOutput(weights, loss, squared_loss, output.gradients[place] if self._static.gradient else None)

    def programs(self, group: Group) -> dict[str, Traced]:
        places, with_gradient, trained = group.places, self._static.gradient, self._model.trained
        flat, mean_gradient = jax.vmap(self._train.flat), jax.vmap(self._train.mean_gradient)

        def mean_step(received: Named, trained_to: Named, divisor: Array) -> Array:
            return flatten(trained, {name: (received[name] - trained_to[name]) / divisor for name in trained})

        mean_steps = jax.vmap(mean_step)

        def finish(jobs: JobStates, divisors: Array) -> tuple[tuple[Array, ...], Array, tuple[Array, ...]]:
            weights = flat(jobs.progress)
            if with_gradient:
                gradients = mean_gradient(*jobs)
            else:
                gradients = mean_steps(jobs.received, jobs.progress.parameters, divisors)
            finite = jnp.isfinite(weights).all(axis=1, keepdims=True).astype(weights.dtype)
            return (
                tuple(weights[place] for place in range(places)),
                jnp.concatenate([jobs.progress.sums, finite], axis=1),
                tuple(gradients[place] for place in range(places)),
            )

        finishing = Traced(("finish", places), finish, (self._like_states(group), like(places)))
        return {**self._chunk_programs(group), "finish": finishing}
