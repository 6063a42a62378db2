"""The plan for accelerators: stacked weights, all jobs of a group side by side (vmap).

Groups are padded to a few sizes and jobs cut into pieces of the same length, so that little is compiled anew. A job's
numbers may differ in the last bits between group sizes; which groups there are depends on the jobs and the settings
alone, so the same command gives the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from async_hfl.core.device_vector import here
from async_hfl.core.learner import PrefetchPolicy
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program, like
from async_hfl.learning.engine.device_data import Resident
from async_hfl.learning.engine.host_transfer import HostTransfer
from async_hfl.learning.engine.local_training import LocalTraining, Named, Progress
from async_hfl.learning.engine.memory_estimate import training_bytes
from async_hfl.learning.engine.padding import padded_jobs
from async_hfl.learning.engine.plans.protocol import Collected, Group, Traced, collected_rows
from async_hfl.learning.engine.plans.step_chunks import cut, piece_of
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model

_MOST_PLACES = 1024
_MOST_BYTES = 1 << 28
"""Of weights in a group of more than a few jobs: while it trains, those of the next group travel to the device, and
those of the last one back."""
_HEAVY = 1 << 24
"""Bytes of a model of which a handful fills an accelerator."""
_FEW = 8
"""Jobs that are not worth a second device: a half-empty accelerator is no faster."""
_AHEAD = PrefetchPolicy(_FEW, 1 / 8, 1)
"""A call takes about as long for few jobs as for many, so there is one at a time, of what has gathered meanwhile."""


class _Pieces(NamedTuple):
    """Steps of a piece of ..."""

    training: int
    gradient: int


class Through(NamedTuple):
    """Jobs on their way through their pieces, by place."""

    coefficients: Array
    received: Named
    progress: Progress
    total: Named
    """Summed gradients; empty where none are asked for."""
    samples: Array


class VmapPlan:
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
        self._shape = shape
        self._train = LocalTraining(model, objective, shape, window, half=options.precision == "bf16")
        self._data = data
        self._devices = devices
        one = training_bytes(model, objective, shape, data, window)
        self.places = max(1, min(_MOST_PLACES, options.memory // one.stacked, max(_FEW, _MOST_BYTES // model.bytes)))
        self.ahead = _AHEAD
        self._staging = [HostTransfer(device, model.layout.size) for device in devices]

    def expected(self, room: int, jobs: int) -> list[Group]:
        """Any number of jobs up to all of them."""
        steps, heavy = self._shape.steps_per_epoch(room), self._model.bytes >= _HEAVY
        numbers = {padded_jobs(number, self.places, heavy=heavy) for number in range(1, min(jobs, self.places) + 1)}
        return [Group(0, (), number, steps, shared, room) for number in sorted(numbers) for shared in (False, True)]

    def groups(self, requests: Sequence[Request]) -> Iterator[Group]:
        """The longest first, and with it those more than half as long: the shorter ones wait for the longest, but an
        accelerator that is half empty is no faster either."""
        steps_of = np.array([self._shape.steps_per_epoch(len(request.rows)) for request in requests])
        order = np.argsort(-steps_of, kind="stable")
        room = max((request.room for request in requests), default=0)
        while len(order):
            longest = int(steps_of[order[0]])
            alike = int(np.searchsorted(-steps_of[order], -longest / 2, side="left"))
            members, order = order[:alike].tolist(), order[alike:]
            first = requests[members[0]].weights
            shared = all(requests[index].weights is first for index in members)
            used = min(len(self._devices), -(-alike // min(self.places, _FEW)))
            # Dealt in turn, so that devices finish together.
            shares = [members[device::used] for device in range(used)]
            # Full groups, then what is left: where few jobs make a full one, halves would be padded to much more.
            for begin in range(0, len(shares[0]), self.places):
                for device, share in enumerate(shares):
                    part = share[begin : begin + self.places]
                    if part:
                        places = padded_jobs(len(part), self.places, heavy=self._model.bytes >= _HEAVY)
                        yield Group(device, tuple(part), places, longest, shared, room)

    def run(
        self,
        programs: Mapping[str, Program],
        group: Group,
        members: Sequence[Request],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: BatchOrders,
        sizes: npt.NDArray[np.int32],
    ) -> Any:
        self._draw_ahead(group, orders, sizes)
        weights = [here(request.weights) for request in members]
        if group.shared:
            starts: tuple[Any, ...] = (np.asarray(weights[0], np.float32)[None],)
        else:
            starts = self._staging[group.device].place([*weights, *[weights[0]] * (group.places - len(weights))])
        job = self._through(programs, group, starts, data, coefficients, orders, sizes)
        return self._staging[group.device].bring(programs["finish"](job))

    def _draw_ahead(self, group: Group, orders: BatchOrders, sizes: npt.NDArray[np.int32]) -> None:
        """What the first piece will ask for, while the weights are sent."""
        shortest = self._shape.steps_per_epoch(int(sizes[: len(group.members)].min()))
        orders.ahead(-(-self._pieces(group).training // shortest))

    def _through(
        self,
        programs: Mapping[str, Program],
        group: Group,
        starts: tuple[Any, ...],
        data: Resident,
        coefficients: npt.NDArray[np.float32],
        orders: BatchOrders,
        sizes: npt.NDArray[np.int32],
    ) -> Through:
        """All pieces of all jobs, ordered. What is beyond the calls that a device may queue (some 32) is waited for."""
        # Unused places repeat the first job: finite numbers, thrown away.
        unused = slice(len(group.members), None)
        for part in (coefficients, sizes):
            part[unused] = part[0]
        steps = -(-sizes.astype(np.int64) // self._shape.batch_size)
        shape, pieces = self._shape, self._pieces(group)
        rates, received, progress, total, samples = programs["begin"](starts, coefficients, sizes)
        for number, visited in enumerate(cut(steps, range(shape.epochs), pieces.training)):
            first = np.int32(number * pieces.training)
            progress = programs["advance"](data, rates, received, progress, orders.batches(*visited), samples, first)
        if shape.gradient:
            for number, visited in enumerate(cut(steps, range(shape.epochs, shape.passes), pieces.gradient)):
                first = np.int32(number * pieces.gradient)
                total = programs["add"](data, progress, total, orders.batches(*visited), samples, first)
        return Through(rates, received, progress, total, samples)

    def collect(self, group: Group, outcome: Any) -> Iterator[Collected]:
        return collected_rows(outcome)

    def programs(self, group: Group) -> dict[str, Traced]:
        with_gradient, flat, mean_gradient = self._shape.gradient, jax.vmap(self._train.flat), self._mean_gradient

        def finish(job: Through) -> tuple[Array, ...]:
            outcome = (flat(job.progress), job.progress.sums)
            return (*outcome, mean_gradient(job)) if with_gradient else outcome

        return {
            **self._piece_programs(group),
            "finish": Traced(("finish", group.places), finish, (self._like(group),)),
        }

    def _mean_gradient(self, job: Through) -> Array:
        gradients: Array = jax.vmap(self._train.mean_gradient)(*job)
        return gradients

    def _piece_programs(self, group: Group) -> dict[str, Traced]:
        """What `_through` calls."""
        places, size, pieces, train = group.places, self._model.layout.size, self._pieces(group), self._train
        with_gradient = self._shape.gradient

        def begin(starts: tuple[Array, ...], coefficients: Array, samples: Array) -> Through:
            weights = jnp.broadcast_to(jnp.vstack(starts), (places, size))
            received, statistics = jax.vmap(train.named)(weights)
            at_rest = jax.tree.map(jnp.zeros_like, received)
            progress = Progress(received, statistics, at_rest, jnp.zeros((places, 2), weights.dtype))
            return Through(coefficients, received, progress, at_rest if with_gradient else {}, samples)

        advance: Program = jax.vmap(train.advance, in_axes=(None, 0, 0, 0, 0, 0, None))
        add: Program = jax.vmap(train.add_gradient, in_axes=(None, 0, 0, 0, 0, None))
        first = like(dtype=np.int32)

        def orders(piece: int) -> Any:
            return like(places, piece, self._shape.batch_size, dtype=np.int32)

        rates, received, progress, total, samples = self._like(group)
        found = {
            "begin": Traced(("begin", places, group.shared), begin, (self._like_starts(group), rates, samples)),
            "advance": Traced(
                ("advance", places, pieces.training),
                advance,
                (self._data, rates, received, progress, orders(pieces.training), samples, first),
            ),
        }
        if with_gradient:
            found["add"] = Traced(
                ("add", places, pieces.gradient),
                add,
                (self._data, progress, total, orders(pieces.gradient), samples, first),
            )
        return found

    def _pieces(self, group: Group) -> _Pieces:
        epochs, most = self._shape.epochs, self._shape.steps_per_epoch(group.room)
        return _Pieces(piece_of(epochs * group.steps, epochs * most), piece_of(group.steps, most))

    def _like(self, group: Group) -> Through:
        places, layout = group.places, self._model.layout
        shapes = {name: like(places, *shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
        trained = {name: shapes[name] for name in self._model.trained}
        statistics = {name: shapes[name] for name in self._model.statistics}
        progress = Progress(trained, statistics, trained, like(places, 2))
        total = trained if self._shape.gradient else {}
        return Through(like(places, 4), trained, progress, total, like(places, dtype=np.int32))

    def _like_starts(self, group: Group) -> Any:
        return (like(1, self._model.layout.size),) if group.shared else self._staging[0].like(group.places)
