"""Trains jobs, many at a time, on the host's cores or on accelerators.

An engine belongs to a model, an objective and a training set; whose rows a job trains on, with which coefficients and
from which weights, comes with the job. So one engine serves every run of a task, whatever its seed and method.

A call is cut into groups, spread over the devices, and collected in order. How a group runs is the plan's: job after
job on a core (`loop_plan`), or side by side on an accelerator (`stack_plan`). Devices work by themselves, so a call may
be begun and collected later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np

from async_hfl.core.learner import PrefetchPolicy, Results, TrainingResult
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.compilation import Program, compile_for
from async_hfl.learning.engine.device_data import Resident, resident
from async_hfl.learning.engine.on_device.resident_vmap_plan import ResidentVmapPlan
from async_hfl.learning.engine.plans.protocol import QUEUED_GROUPS, Group, Plan, Traced
from async_hfl.learning.engine.plans.sequential import SequentialPlan
from async_hfl.learning.engine.plans.vmap import VmapPlan
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.engine.runtime import usable_cores
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model


class Engine:
    def __init__(
        self,
        model: Model,
        objective: Objective,
        train: Samples,
        shape: Shape,
        options: EngineOptions = EngineOptions(),  # noqa: B008  (frozen)
    ) -> None:
        self._shape = shape
        self._options = options
        on_card = options.vectors == "card"
        self._devices = jax.local_devices()[: 1 if on_card else None]
        self._data: list[Resident] = [resident(train, device) for device in self._devices]
        chosen = options.plan or ("loop" if self._devices[0].platform == "cpu" and not on_card else "stack")
        make = SequentialPlan if chosen == "loop" else ResidentVmapPlan if on_card else VmapPlan
        self.plan: Plan = make(model, objective, shape, self._data[0], train.window, self._devices, options)
        self._programs: dict[Hashable, list[Program]] = {}
        self._of_kind: dict[Group, dict[str, Program]] = {}
        """By a group without its members: many kinds share programs."""
        self._locks: dict[Hashable, Lock] = {}
        self._compiling = Lock()
        # A device lets whoever orders more pieces than it may queue wait: the others' must not wait with them.
        several = len(self._devices) if len(self._devices) > 1 and chosen == "stack" else 0
        self._starters = [ThreadPoolExecutor(1, thread_name_prefix="starter") for _ in range(several)]

    def compile(self, room: int, jobs: int) -> None:
        """Compile now what calls will need, all programs at once: compiling leaves Python."""
        expected = self.plan.expected(room, jobs)
        programs = {traced.key: traced for group in expected for traced in self.plan.programs(group).values()}
        with ThreadPoolExecutor(min(len(programs), usable_cores())) as threads:
            list(threads.map(self._compiled, programs.values()))

    @property
    def ahead(self) -> PrefetchPolicy | None:
        choice = self._options.ahead
        # Where every vector passes through the host, it is the host that is waited for.
        return self.plan.ahead if choice == "on" or (choice == "auto" and self.plan.name != "stack") else None

    def train(self, requests: Sequence[Request]) -> list[TrainingResult]:
        return self.begin(requests)()

    def begin(self, requests: Sequence[Request]) -> Results:
        """Hands the devices as many groups as they may queue; the rest, if any, when the results are asked for."""
        groups = self.plan.groups(requests)

        def started(group: Group) -> tuple[Group, Callable[[], Any]]:
            # Before the work is done: the other devices get theirs meanwhile.
            members = [requests[index] for index in group.members]
            if self._starters:
                return group, self._starters[group.device].submit(self._start, group, members).result
            outcome = self._start(group, members)
            return group, lambda: outcome

        running = deque(map(started, islice(groups, QUEUED_GROUPS * len(self._devices))))

        def collected() -> list[TrainingResult]:
            results: dict[int, TrainingResult] = {}
            for group in groups:
                running.append(started(group))
                self._collect(*running.popleft(), requests, results)
            while running:
                self._collect(*running.popleft(), requests, results)
            return [results[index] for index in range(len(requests))]

        return collected

    def _start(self, group: Group, members: Sequence[Request]) -> Any:
        coefficients = np.zeros((group.places, 4), dtype=np.float32)
        sizes = np.zeros(group.places, dtype=np.int32)
        for place, request in enumerate(members):
            coefficients[place] = request.coefficients
            sizes[place] = len(request.rows)
        seeds = np.array([request.seed for request in members], dtype=np.uint64)
        rows = [request.rows for request in members]
        orders = BatchOrders(rows, seeds, self._shape, places=group.places, steps=group.steps)
        programs = self._programs_of(group)
        return self.plan.run(programs, group, members, self._data[group.device], coefficients, orders, sizes)

    def _collect(
        self,
        group: Group,
        outcome: Callable[[], Any],
        requests: Sequence[Request],
        results: dict[int, TrainingResult],
    ) -> None:
        # There may be more places than members.
        for index, one in zip(group.members, self.plan.collect(group, outcome()), strict=False):
            samples = len(requests[index].rows)
            results[index] = TrainingResult(
                weights=one.weights,
                samples=samples,
                steps=self._shape.epochs * self._shape.steps_per_epoch(samples),
                loss=one.loss / samples,
                squared_loss=one.squared_loss / samples,
                gradient=one.gradient,
            )

    def _programs_of(self, group: Group) -> dict[str, Program]:
        kind = replace(group, members=())
        found = self._of_kind.get(kind)
        if found is None:
            traced = self.plan.programs(group)
            found = {name: self._compiled(one)[group.device] for name, one in traced.items()}
            self._of_kind[kind] = found
        return found

    def _compiled(self, traced: Traced) -> list[Program]:
        with self._compiling:
            lock = self._locks.setdefault(traced.key, Lock())
        with lock:  # one thread compiles it, the others wait for it
            found = self._programs.get(traced.key)
            if found is None:
                found = compile_for(self._devices, traced.function, traced.arguments, self._options.precision)
                self._programs[traced.key] = found
            return found
