"""The engine: trains jobs, many at a time, on the host's cores or on accelerators.

An engine belongs to a model, an objective and a training set. The rows on which a job trains, its coefficients and its
start weights come with the job, so one engine serves every run of a task, whatever its seed and method.

A call is divided into groups, which are distributed over the devices and collected in order. A plan runs the groups:
one job after another on a core (`plans.sequential`), or side by side on an accelerator (`plans.vmap`). Devices work in
the background, so a call can be started and collected later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
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
from async_hfl.learning.engine.device_data import samples_to_device
from async_hfl.learning.engine.on_device.resident_vmap_plan import ResidentVmapPlan
from async_hfl.learning.engine.plans.plan import QUEUED_GROUPS, Group, GroupInput, Plan, PlanSetup, Traced
from async_hfl.learning.engine.plans.sequential import SequentialPlan
from async_hfl.learning.engine.plans.vmap import VmapPlan
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.engine.runtime import usable_cores
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model


class Engine:
    """The `Trainer` of one task, on all devices of this process."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        train: Samples,
        static: StaticHyperparameters,
        options: EngineOptions = EngineOptions(),  # noqa: B008  (frozen)
    ) -> None:
        self._static = static
        self._options = options
        on_device = options.vectors == "device"
        self._devices = jax.local_devices()[: 1 if on_device else None]
        self._data = [samples_to_device(train, device) for device in self._devices]
        on_cpu = self._devices[0].platform == "cpu"
        chosen = options.plan or ("sequential" if on_cpu and not on_device else "vmap")
        plan = SequentialPlan if chosen == "sequential" else ResidentVmapPlan if on_device else VmapPlan
        self.plan: Plan = plan(PlanSetup(model, objective, static, self._data[0], train.window, self._devices, options))
        self._programs: dict[Hashable, list[Program]] = {}
        self._of_group: dict[Group, dict[str, Program]] = {}
        """By group without members; groups of one kind share programs."""
        self._locks: dict[Hashable, Lock] = {}
        self._compiling = Lock()
        # A device whose queue is full blocks the caller: one thread per device, so that it does not block the others.
        several = len(self._devices) > 1 and chosen == "vmap"
        devices = self._devices if several else []
        self._starters = [ThreadPoolExecutor(1, thread_name_prefix="starter") for _ in devices]

    def compile(self, max_samples: int, jobs: int) -> None:
        """Compile the programs that calls will need, all at once: the compiler does not hold Python's lock."""
        expected = self.plan.expected(max_samples, jobs)
        programs = {traced.key: traced for group in expected for traced in self.plan.programs(group).values()}
        with ThreadPoolExecutor(min(len(programs), usable_cores())) as threads:
            list(threads.map(self._compiled, programs.values()))

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        choice = self._options.prefetch
        # Where every vector passes through the host, the host is the bottleneck.
        return self.plan.prefetch if choice == "on" or (choice == "auto" and self.plan.name != "vmap") else None

    def begin(self, requests: Sequence[Request]) -> Results:
        """Start as many groups as the devices may queue; the others start when the results are collected."""
        starters = self._starters
        started: Iterator[tuple[Group, Any]] = (
            (
                group,
                starters[group.device].submit(self._run, group, requests) if starters else self._run(group, requests),
            )
            for group in self.plan.groups(requests)
        )
        running = deque(islice(started, QUEUED_GROUPS * len(self._devices)))

        def collect() -> list[TrainingResult]:
            results: dict[int, TrainingResult] = {}
            while running:
                running.extend(islice(started, 1))
                group, output = running.popleft()
                outputs = self.plan.collect(output.result() if starters else output)
                for index, one in zip(group.members, outputs, strict=False):  # there may be more places than members
                    samples = len(requests[index].rows)
                    results[index] = TrainingResult(
                        weights=one.weights,
                        samples=samples,
                        steps=self._static.epochs * self._static.steps_per_epoch(samples),
                        loss=one.loss / samples,
                        squared_loss=one.squared_loss / samples,
                        gradient=one.gradient,
                    )
            return [results[index] for index in range(len(requests))]

        return collect

    def _run(self, group: Group, requests: Sequence[Request]) -> Any:
        members = [requests[index] for index in group.members]
        coefficients = np.zeros((group.places, 4), dtype=np.float32)
        sizes = np.zeros(group.places, dtype=np.int32)
        for place, request in enumerate(members):
            coefficients[place] = request.coefficients
            sizes[place] = len(request.rows)
        seeds = np.array([request.seed for request in members], dtype=np.uint64)
        orders = BatchOrders(
            [request.rows for request in members], seeds, self._static, places=group.places, steps=group.steps
        )
        kind = replace(group, members=())
        programs = self._of_group.get(kind)
        if programs is None:
            traced = self.plan.programs(group)
            programs = {name: self._compiled(one)[group.device] for name, one in traced.items()}
            self._of_group[kind] = programs
        return self.plan.run(
            GroupInput(group, programs, members, self._data[group.device], coefficients, orders, sizes)
        )

    def _compiled(self, traced: Traced) -> list[Program]:
        with self._compiling:
            lock = self._locks.setdefault(traced.key, Lock())
        with lock:  # one thread compiles it, the others wait
            found = self._programs.get(traced.key)
            if found is None:
                found = compile_for(self._devices, traced.function, traced.arguments, self._options.precision)
                self._programs[traced.key] = found
            return found
