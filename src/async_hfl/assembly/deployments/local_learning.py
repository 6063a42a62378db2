"""The learner of a device process: its devices' part of a task, loaded and compiled in the training process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from async_hfl.adapters.learner import ClientLearner
from async_hfl.adapters.travelling import task_of
from async_hfl.assembly.build.nodes import method_of
from async_hfl.assembly.build.task import build_learner, engine_options, recipe, task_options
from async_hfl.assembly.deployments.deployed_nodes import settings_text
from async_hfl.assembly.settings.loading import compose, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import file_of, fingerprint, is_user_code, load_object
from async_hfl.assembly.user_code.user_task import load_torch_task, own_data, own_jax_task, own_kind, own_learner
from async_hfl.core.errors import SettingsError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, Learner, Remembering, TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import Layout, Weights
from async_hfl.deployment.training.child_process import Ready, Spent, TrainingChild, timed

if TYPE_CHECKING:
    from async_hfl.learning.datasets.samples import Samples
    from async_hfl.learning.engine.recipe import Recipe
    from async_hfl.learning.partition.dealing import Rows
    from async_hfl.learning.pytorch.learner import TorchLearner
    from async_hfl.learning.tasks.task_learner import Task

_WORTH_REPEATING_S = 1.0
"""A first training job that is shorter than this is repeated, to time it with warm caches."""
_HELD_OUT = 5
"""One in this many samples of a device is held out for evaluation, if devices evaluate."""


@dataclass(frozen=True, slots=True)
class Part:
    """A device's part of a built-in data set (`--shard 3/8`)."""

    place: int
    """Numbered from 0."""
    of: int


@dataclass(frozen=True, slots=True)
class Files:
    """A device's own samples (`--data PATH`)."""

    path: Path


Source = Part | Files


@dataclass(frozen=True, slots=True)
class Local:
    """Options of a device process that the cloud does not know."""

    sources: tuple[Source, ...]
    """One per device of the process."""
    task: str = ""
    """The user's own task as FILE.py:NAME on this machine; empty for the cloud's task."""
    client: str = ""
    """Instead of a task, the user's client code as FILE.py:NAME on this machine."""


class ProcessLearner:
    """The LocalLearner of the devices of this process, which are numbered from 0."""

    def __init__(self, learner: Learner, places: Sequence[int]) -> None:
        self._learner = learner
        self._places = places

    def samples(self, device: int) -> int:
        return int(self._learner.samples[self._places[device]])

    def train(self, job: TrainingJob) -> TrainingResult:
        (result,) = self._learner.train_many([replace(job, device=self._places[job.device])])
        return result

    def evaluate(self, device: int, weights: Weights) -> Evaluation | None:
        found = self._learner.evaluate_by_device(weights)
        return found[self._places[device]] if found else None


def task_digest(name: str, layout: Layout) -> str:
    """Return a digest of the model's layout and, for a task of the user's own, of its file."""
    own = fingerprint(file_of(name)) if is_user_code(name) else name
    return hashlib.sha256(json.dumps([own, layout.names, layout.shapes]).encode()).hexdigest()


def local_learner(settings_text: str, seed: int, digest: str, local: Local) -> tuple[ProcessLearner, Ready]:
    """Load and compile the task in the training process, and time one training job of each device."""
    settings = _installed(settings_from(json.loads(settings_text)), local.task)
    _check_shards(settings, local)
    learner, places = _own_part(settings, seed, local.sources)
    own_digest = task_digest(settings.task.name, learner.layout)
    if digest and own_digest != digest:
        raise SettingsError(
            f"the task {settings.task.name} differs from the cloud's (digest {own_digest[:16]} here, {digest[:16]} "
            "there): install the same version of it on both"
        )
    return _ready(learner, places, settings, seed)


def client_learner(
    settings_text: str, seed: int, facts: Mapping[str, Any], target: Target, local: Local
) -> tuple[ProcessLearner, Ready]:
    """Load the user's client in the training process; the model and its configuration are the cloud's."""
    settings = settings_from(json.loads(settings_text))
    _check_shards(settings, local)
    task = task_of(load_object("--client", local.client), facts, target)
    learner = ClientLearner(
        lambda: task,
        local.client,
        settings.task.devices,
        seed,
        gradient=method_of(settings, seed).gradient == "last",
        places=[_part(source).place for source in local.sources],
        processes=0,
    )
    return _ready(learner, list(range(len(local.sources))), settings, seed)


def _ready(learner: Learner, places: Sequence[int], settings: Settings, seed: int) -> tuple[ProcessLearner, Ready]:
    """Compile, and time one training job of each device."""
    learner.compile()
    own = ProcessLearner(learner, places)
    weights = learner.initial_weights(seed)
    devices = range(len(places))
    before = learner.memory() if isinstance(learner, Remembering) else None
    spent = tuple(_timed(own, TrainingJob(JobId(0, 0, 0), device, weights, 1)) for device in devices)
    if isinstance(learner, Remembering):
        learner.remember(before)  # nobody asked for these jobs
    if settings.evaluation.where == "devices":
        own.evaluate(0, weights)  # to compile it
    return own, Ready(tuple(own.samples(device) for device in devices), spent, learner.model_bytes)


def _check_shards(settings: Settings, local: Local) -> None:
    for source in local.sources:
        if isinstance(source, Part) and source.of != settings.task.devices:
            raise SettingsError(
                f"--shard {source.place + 1}/{source.of}: the data is distributed over {settings.task.devices} devices "
                f"(task.devices); use {source.place + 1}/{settings.task.devices}"
            )


class _IgnoreResults:
    def trained(self, *result: Any) -> None:
        return

    broke = evaluated = gone = trained


def check_device(task: str | None, local: Local, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Load the task and train once in a child process, as a device does before it joins (`device --check`).

    Raises UserError if that is impossible."""
    parts = [source for source in local.sources if isinstance(source, Part)]
    devices = [f"task.devices={parts[0].of}"] if parts else []
    composed = compose(task=task, network="deployed", overrides=[*overrides, *devices])
    make = partial(local_learner, settings_text(composed.settings), composed.choice.seed, "", local)
    child = TrainingChild(make, _IgnoreResults())
    try:
        ready = child.start()
    finally:
        child.close()
    return {
        "task": composed.choice.task,
        "samples": list(ready.samples),
        "compute_s": [spent.seconds for spent in ready.spent],
        "busy_s": [spent.busy_s for spent in ready.spent],
        "model_bytes": ready.model_bytes,
    }


def _installed(settings: Settings, task: str) -> Settings:
    """Return the settings with the task's name on this machine, since no code is transferred."""
    there = settings.task.name
    if is_user_code(there):
        if not task:
            raise SettingsError(
                f"the cloud's task is the user's own {there}; name the same file on this machine: --task FILE.py:NAME"
            )
        return msgspec.structs.replace(settings, task=msgspec.structs.replace(settings.task, name=task))
    if task and task != there:
        raise SettingsError(f"--task {task}: the cloud's task is {there}; omit --task, or join another run")
    return settings


def _timed(local: ProcessLearner, job: TrainingJob) -> Spent:
    _, first = timed(local, job)
    return timed(local, job)[1] if first.seconds < _WORTH_REPEATING_S else first


def _own_part(settings: Settings, seed: int, sources: Sequence[Source]) -> tuple[Learner, list[int]]:
    """Return a learner with only these devices' samples, and their indices in it."""
    gradient = method_of(settings, seed).gradient
    task, here = settings.task, list(range(len(sources)))
    if task.name == "null":
        return build_learner(settings, seed, gradient), [_part(source).place for source in sources]
    how = recipe(settings, gradient=gradient == "last")
    kind = own_kind(task.name, task.devices, seed) if is_user_code(task.name) else "jax"
    if kind == "clients":
        places = [_part(source).place for source in sources]
        return own_learner(task.name, task.devices, seed, how, threshold=task.target, places=places), here
    evaluates = settings.evaluation.where == "devices"
    if kind == "torch":
        return _torch_part(settings, seed, how, sources, evaluates=evaluates), here
    from async_hfl.learning.engine import runtime

    runtime.prepare(1)  # one core per process, since there may be many
    from async_hfl.learning.tasks.task_learner import TaskLearner

    jax_task = _jax_task(settings, seed)
    test = (jax_task.test, jax_task.test_owned)
    mine = _own_samples(jax_task.train, jax_task.owned, *test, jax_task.classes, sources, evaluates=evaluates)
    narrowed = replace(jax_task, train=mine.train, owned=mine.owned, test=mine.test, test_owned=mine.test_owned)
    return TaskLearner(narrowed, how, engine_options(settings)), here


def _jax_task(settings: Settings, seed: int) -> Task:
    task = settings.task
    if is_user_code(task.name):
        return own_jax_task(task.name, task.devices, seed, threshold=task.target, refresh=task.refresh)
    from async_hfl.learning.tasks.catalogue import build_task

    return build_task(task.name, task.devices, seed, task_options(settings))


def _torch_part(
    settings: Settings, seed: int, how: Recipe, sources: Sequence[Source], *, evaluates: bool
) -> TorchLearner:
    """Return a learner that works in this process, which may not start others."""
    from async_hfl.learning.pytorch.learner import TorchLearner

    task = settings.task
    whole = load_torch_task(task.name, task.devices, seed)
    data = own_data(task.name, task.devices, seed)
    mine = _own_samples(data.train, data.owned, data.test, (), data.classes, sources, evaluates=evaluates)
    shards = [(part.inputs, part.targets) for part in map(mine.train.rows, mine.owned)]
    narrowed = replace(whole, train=None, shards=shards, test=(mine.test.inputs, mine.test.targets))
    return TorchLearner(
        lambda: narrowed,
        task.name,
        len(sources),
        seed,
        how,
        threshold=task.target,
        refresh=task.refresh,
        processes=0,
        device=settings.engine.torch_device,
        judged=mine.test_owned,
    )


def _part(source: Source) -> Part:
    if isinstance(source, Files):
        raise SettingsError("--data: this task distributes its own data; use --shard 3/8")
    return source


@dataclass(frozen=True, slots=True, eq=False)
class _OwnSamples:
    """The samples of the devices of this process."""

    train: Samples
    owned: tuple[Rows, ...]
    test: Samples
    test_owned: tuple[Rows, ...]


def _own_samples(
    train: Samples,
    owned: Sequence[Rows],
    test: Samples,
    test_owned: Sequence[Rows],
    classes: int,
    sources: Sequence[Source],
    *,
    evaluates: bool,
) -> _OwnSamples:
    """Return only these devices' samples.

    If devices evaluate, some samples are held out, unless the data set has test samples for each device."""
    from async_hfl.learning.datasets.local_data import read_local_samples

    held: list[Samples] = []
    tests: list[Samples] = []
    for source in sources:
        if isinstance(source, Part):
            samples = train.rows(owned[source.place])
            judged = test.rows(test_owned[source.place]) if test_owned else None
        else:
            samples, judged = read_local_samples(source.path, train, classes), None
        if evaluates and judged is None and len(samples) > 1:
            places = np.arange(len(samples))
            judged = samples.rows(places[::_HELD_OUT])
            samples = samples.rows(places[places % _HELD_OUT != 0])
        held.append(samples)
        tests.append(judged if judged is not None else samples)
    if not evaluates:
        return _OwnSamples(*_joined(held), test, ())
    return _OwnSamples(*_joined(held), *_joined(tests))


def _joined(parts: Sequence[Samples]) -> tuple[Samples, tuple[Rows, ...]]:
    stops = np.cumsum([len(part) for part in parts]).tolist()
    owned = tuple(np.arange(stop - len(part), stop, dtype=np.int64) for part, stop in zip(parts, stops, strict=True))
    first = parts[0]
    if first.starts is not None:  # windows of a series that all parts share
        starts = np.concatenate([part.starts for part in parts if part.starts is not None])
        return replace(first, starts=starts, targets=np.concatenate([part.targets for part in parts])), owned
    scalings = {part.inputs.dtype for part in parts}
    if len(scalings) > 1:
        raise SettingsError(
            "the devices of one process have inputs of different types; start them in separate processes"
        )
    inputs = np.concatenate([part.inputs for part in parts])
    return replace(first, inputs=inputs, targets=np.concatenate([part.targets for part in parts])), owned
