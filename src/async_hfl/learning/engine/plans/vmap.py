"""The plan for accelerators: the jobs of a group run side by side on stacked weights (vmap).

Groups are padded to a few sizes, and jobs are divided into chunks of equally many steps, so that few programs are
compiled. The last bits of a job's numbers may depend on the size of its group. The groups depend on the jobs and the
settings alone, so the same command gives the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from async_hfl.core.learner import PrefetchPolicy
from async_hfl.core.vectors import to_host
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.compilation import Program, like
from async_hfl.learning.engine.local_training import Progress
from async_hfl.learning.engine.memory_estimate import training_bytes
from async_hfl.learning.engine.optimisers import Coefficients, Named, optimiser_state
from async_hfl.learning.engine.plans.host_transfer import HostTransfer
from async_hfl.learning.engine.plans.padding import padded_jobs
from async_hfl.learning.engine.plans.plan import Group, GroupInput, Plan, PlanSetup, Traced
from async_hfl.learning.engine.plans.step_chunks import chunk_length, step_chunks
from async_hfl.learning.engine.trainer import Request

_MOST_PLACES = 1024
_MOST_BYTES = 1 << 28
"""Limit on the weights of a group of more than `_FEW` jobs: while it trains, the weights of the next group are copied
to the device and those of the previous group back."""
_LARGE = 1 << 24
"""Bytes from which a few models fill an accelerator."""
_FEW = 8
"""Jobs below which a second device is not used: a half-empty accelerator is no faster."""


class _ChunkLengths(NamedTuple):
    """Steps of a chunk of training and of the final gradient."""

    training: int
    gradient: int


class JobStates(NamedTuple):
    """The states of the jobs of a group between two chunks, by place."""

    coefficients: Array
    received: Named
    progress: Progress
    total: Named
    """Summed gradients; empty if the recipe asks for none."""
    samples: Array


class VmapPlan(Plan):
    name = "vmap"

    def __init__(self, setup: PlanSetup) -> None:
        super().__init__(setup)
        self._train = replace(self._train, half=setup.options.precision == "bf16")
        per_job = training_bytes(*setup[:5]).per_job
        fit, of_weights = setup.options.memory // per_job, _MOST_BYTES // setup.model.bytes
        self.places = max(1, min(_MOST_PLACES, fit, max(_FEW, of_weights)))
        # A call takes about as long for few jobs as for many: one at a time, of the jobs that wait by then.
        self.prefetch = PrefetchPolicy(_FEW, 1 / 8, 1)
        self._transfers = [HostTransfer(device, setup.model.layout.size) for device in setup.devices]

    def expected(self, max_samples: int, jobs: int) -> list[Group]:
        """Any number of jobs up to all of them may come."""
        steps, large = self._static.steps_per_epoch(max_samples), self._model.bytes >= _LARGE
        numbers = {padded_jobs(number, self.places, large=large) for number in range(1, min(jobs, self.places) + 1)}
        return [Group(0, (), number, steps, same, max_samples) for number in sorted(numbers) for same in (False, True)]

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """Group the longest job with all jobs more than half as long, and so on. Shorter jobs wait for the longest, but
        a half-empty accelerator is no faster either."""
        steps_of = np.array([self._static.steps_per_epoch(len(request.rows)) for request in requests])
        order = np.argsort(-steps_of, kind="stable")
        max_samples = max((request.max_samples for request in requests), default=0)
        while len(order):
            longest = int(steps_of[order[0]])
            alike = int(np.searchsorted(-steps_of[order], -longest / 2, side="left"))
            members, order = order[:alike].tolist(), order[alike:]
            first = requests[members[0]].weights
            same_start = all(requests[index].weights is first for index in members)
            used = min(len(self._devices), -(-alike // min(self.places, _FEW)))
            # Dealt in turn, so that devices finish together.
            shares = [members[device::used] for device in range(used)]
            # Full groups, then the rest: if a full group has few jobs, two halves would be padded to much more.
            for begin in range(0, len(shares[0]), self.places):
                for device, share in enumerate(shares):
                    part = share[begin : begin + self.places]
                    if part:
                        places = padded_jobs(len(part), self.places, large=self._model.bytes >= _LARGE)
                        yield Group(device, tuple(part), places, longest, same_start, max_samples)

    def run(self, inputs: GroupInput) -> Any:
        self._prefetch_orders(inputs)
        group, transfer = inputs.group, self._transfers[inputs.group.device]
        weights = [to_host(request.weights) for request in inputs.members]
        if group.same_start:
            starts: tuple[Any, ...] = (np.asarray(weights[0], np.float32)[None],)
        else:
            starts = transfer.to_device([*weights, *[weights[0]] * (group.places - len(weights))])
        return transfer.to_host(inputs.programs["finish"](self._train_chunks(inputs, starts)))

    def _prefetch_orders(self, inputs: GroupInput) -> None:
        """Draw the orders of the first chunk while the weights are transferred."""
        shortest = self._static.steps_per_epoch(int(inputs.sizes[: len(inputs.members)].min()))
        inputs.orders.prefetch(-(-self._chunk_lengths(inputs.group).training // shortest))

    def _train_chunks(self, inputs: GroupInput, starts: tuple[Any, ...]) -> JobStates:
        """Enqueue all chunks of all jobs. Calls beyond those that a device may queue (some 32) wait for it."""
        _, programs, members, data, coefficients, orders, sizes = inputs
        # Padding repeats the first job: finite numbers that are ignored.
        for part in (coefficients, sizes):
            part[len(members) :] = part[0]
        static, lengths = self._static, self._chunk_lengths(inputs.group)
        steps = -(-sizes.astype(np.int64) // static.batch_size)
        rates, received, progress, total, samples = programs["begin"](starts, coefficients, sizes)
        for number, visited in enumerate(step_chunks(steps, range(static.epochs), lengths.training)):
            first = np.int32(number * lengths.training)
            progress = programs["advance"](data, rates, received, progress, orders.batches(*visited), samples, first)
        if static.gradient:
            for number, visited in enumerate(step_chunks(steps, range(static.epochs, static.passes), lengths.gradient)):
                first = np.int32(number * lengths.gradient)
                total = programs["add"](data, progress, total, orders.batches(*visited), samples, first)
        return JobStates(rates, received, progress, total, samples)

    def programs(self, group: Group) -> dict[str, Traced]:
        flat, mean_gradient = jax.vmap(self._train.flat), jax.vmap(self._train.mean_gradient)
        with_gradient = self._static.gradient

        def finish(jobs: JobStates) -> tuple[Array, ...]:
            output = (flat(jobs.progress), jobs.progress.sums)
            return (*output, mean_gradient(*jobs)) if with_gradient else output

        finishing = Traced(("finish", group.places), finish, (self._like_states(group),))
        return {**self._chunk_programs(group), "finish": finishing}

    def _chunk_programs(self, group: Group) -> dict[str, Traced]:
        """Return the programs that `_train_chunks` calls."""
        places, size, lengths, train = group.places, self._model.layout.size, self._chunk_lengths(group), self._train
        with_gradient = self._static.gradient

        def begin_job(coefficients: Array, received: Named, statistics: Named) -> Progress:
            return train.begin(Coefficients(*coefficients), received, statistics)

        def begin(starts: tuple[Array, ...], coefficients: Array, samples: Array) -> JobStates:
            weights = jnp.broadcast_to(jnp.vstack(starts), (places, size))
            received, statistics = jax.vmap(train.named)(weights)
            progress = jax.vmap(begin_job)(coefficients, received, statistics)
            total = jax.tree.map(jnp.zeros_like, received) if with_gradient else {}
            return JobStates(coefficients, received, progress, total, samples)

        advance: Program = jax.vmap(train.advance, in_axes=(None, 0, 0, 0, 0, 0, None))
        add: Program = jax.vmap(train.add_gradient, in_axes=(None, 0, 0, 0, 0, None))
        first = like(dtype=np.int32)

        def orders(length: int) -> Any:
            return like(places, length, self._static.batch_size, dtype=np.int32)

        rates, received, progress, total, samples = self._like_states(group)
        found = {
            "begin": Traced(("begin", places, group.same_start), begin, (self._like_starts(group), rates, samples)),
            "advance": Traced(
                ("advance", places, lengths.training),
                advance,
                (self._data, rates, received, progress, orders(lengths.training), samples, first),
            ),
        }
        if with_gradient:
            found["add"] = Traced(
                ("add", places, lengths.gradient),
                add,
                (self._data, progress, total, orders(lengths.gradient), samples, first),
            )
        return found

    def _chunk_lengths(self, group: Group) -> _ChunkLengths:
        epochs, most = self._static.epochs, self._static.steps_per_epoch(group.max_samples)
        return _ChunkLengths(chunk_length(epochs * group.steps, epochs * most), chunk_length(group.steps, most))

    def _like_states(self, group: Group) -> JobStates:
        places, layout = group.places, self._model.layout
        shapes = {name: like(places, *shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
        trained = {name: shapes[name] for name in self._model.trained}
        statistics = {name: shapes[name] for name in self._model.statistics}
        coefficients = like(places, 4)
        state = optimiser_state(self._static.optimiser, coefficients, trained)
        progress = Progress(trained, statistics, state, like(places, 2))
        total = trained if self._static.gradient else {}
        return JobStates(coefficients, trained, progress, total, like(places, dtype=np.int32))

    def _like_starts(self, group: Group) -> Any:
        return (like(1, self._model.layout.size),) if group.same_start else self._transfers[0].like(group.places)
