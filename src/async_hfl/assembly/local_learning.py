"""What a device trains on: its part of a task, loaded and compiled in a process that does nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from async_hfl.assembly.build import build_learner, engine_options, recipe, task_options
from async_hfl.assembly.deployed_nodes import method_for
from async_hfl.assembly.loading import settings_from
from async_hfl.assembly.settings import Settings
from async_hfl.assembly.user_code import is_user_code
from async_hfl.core.errors import SettingsError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Learner, TrainingJob, TrainingResult
from async_hfl.deployment.training_child import Ready
from async_hfl.learning.tasks import build_task

_WORTH_REPEATING_S = 1.0
"""A first training shorter than this is timed again: caches were cold."""


@dataclass(frozen=True, slots=True)
class Part:
    """`--shard 3/8`: which device's share of a built-in set."""

    place: int
    """From 0."""
    of: int


class OfThisProcess:
    """`deployment.training_child.LocalLearner`: the devices of this process, counted from 0."""

    def __init__(self, learner: Learner, places: Sequence[int]) -> None:
        self._learner = learner
        self._places = places

    def samples(self, device: int) -> int:
        return int(self._learner.samples[self._places[device]])

    def train(self, job: TrainingJob) -> TrainingResult:
        (result,) = self._learner.train_many([replace(job, device=self._places[job.device])])
        return result


def local_learner(settings_text: str, seed: int, parts: Sequence[Part]) -> tuple[OfThisProcess, Ready]:
    """Called in the training process. Compiled when it returns, and each device timed."""
    settings = settings_from(json.loads(settings_text))
    for part in parts:
        if part.of != settings.task.devices:
            raise SettingsError(
                f"--shard {part.place + 1}/{part.of}: the run deals its data over {settings.task.devices} devices "
                f"(task.devices); say {part.place + 1}/{settings.task.devices}"
            )
    learner, places = _own_part(settings, seed, parts)
    learner.compile()
    local = OfThisProcess(learner, places)
    weights = learner.initial_weights(seed)
    seconds = []
    for device in range(len(parts)):
        job = TrainingJob(JobId(0, 0, 0), device, weights, 1)
        seconds.append(_timed(local, job))
    samples = tuple(local.samples(device) for device in range(len(parts)))
    return local, Ready(samples, tuple(seconds))


def _timed(local: OfThisProcess, job: TrainingJob) -> float:
    begun = time.perf_counter()
    local.train(job)
    seconds = time.perf_counter() - begun
    return _timed_again(local, job) if seconds < _WORTH_REPEATING_S else seconds


def _timed_again(local: OfThisProcess, job: TrainingJob) -> float:
    begun = time.perf_counter()
    local.train(job)
    return time.perf_counter() - begun


def _own_part(settings: Settings, seed: int, parts: Sequence[Part]) -> tuple[Learner, list[int]]:
    """Only the rows of these devices, where the task is ours; a task of the user's own comes whole."""
    gradient = method_for(settings, seed).gradient
    if settings.task.name == "null" or is_user_code(settings.task.name):
        return build_learner(settings, seed, gradient), [part.place for part in parts]
    from async_hfl.learning import runtime

    runtime.prepare(1)  # one core a process: there may be many of them
    from async_hfl.learning.task_learner import TaskLearner

    task = build_task(settings.task.name, settings.task.devices, seed, task_options(settings))
    rows = [task.owned[part.place] for part in parts]
    stops = np.cumsum([len(own) for own in rows]).tolist()
    owned = tuple(np.arange(stop - len(own), stop, dtype=np.int64) for own, stop in zip(rows, stops, strict=True))
    mine = replace(task, train=task.train.rows(np.concatenate(rows)), owned=owned, test_owned=())
    how = recipe(settings, gradient=gradient == "last")
    return TaskLearner(mine, how, engine_options(settings)), list(range(len(parts)))
