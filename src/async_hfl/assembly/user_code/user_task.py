"""A user's task as a learner, for JAX and PyTorch alike: `--task FILE.py:NAME`, or a task made in Python."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from async_hfl.adapters.client_task import ClientTask
from async_hfl.assembly.user_code.loading import file_of, load_task
from async_hfl.assembly.user_code.objects import is_object, shown
from async_hfl.core.errors import InternalError, SettingsError
from async_hfl.core.learner import Learner
from async_hfl.core.maths.targets import Direction
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.own.data import OwnData, checked_data
from async_hfl.learning.own.task import Goal, OwnTask, TorchTask, UserTask, number_of_shards, task_ladder, task_target
from async_hfl.learning.own.task import load_task as made_task
from async_hfl.learning.own.task_errors import TaskErrors

if TYPE_CHECKING:
    from async_hfl.learning.tasks.task_learner import Task

Kind: TypeAlias = Literal["jax", "torch", "clients"]

_IMPORTS_JAX = re.compile(r"^\s*(import|from)\s+(jax|flax|equinox)\b", re.MULTILINE)


def own_settings(name: str, devices: int | None, seed: int, usual_devices: int) -> dict[str, Any]:
    """The settings that the task itself gives: its targets, and its number of devices if `devices` is None."""
    if devices is None:
        devices = number_of_shards(_loaded_once(name, _content(name))) or usual_devices
    task = _given(name, devices, seed)
    return {"devices": devices, "target": task.target, "ladder": task_ladder(task, TaskErrors(shown(name)))}


def own_direction(name: str, devices: int, seed: int) -> Direction:
    """The side of its targets on which the task's metric shall be."""
    return task_target(_given(name, devices, seed), TaskErrors(shown(name))).direction


def own_metric(name: str, devices: int, seed: int) -> str | None:
    """The name of the built-in metric that the task uses; None if its metric is a function."""
    task = _given(name, devices, seed)
    if isinstance(task, ClientTask) and task.direction is not None:
        return None  # a name of the client's own, whatever it means
    return task.metric if isinstance(task.metric, str) else None


def own_learner(
    name: str,
    devices: int,
    seed: int,
    recipe: Recipe,
    options: EngineOptions = EngineOptions(),  # noqa: B008  (frozen)
    *,
    multiplied: bool = True,
    runs: int = 1,
    threshold: float | None = None,
    refresh: float = 0.0,
    places: Sequence[int] | None = None,
) -> Learner:
    """The learner of a user's task. `threshold` overrides the task's target; `runs` counts concurrent runs. `places`:
    the partitions of this process's devices, for a task with clients; they are called in this process."""
    given = _given(name, devices, seed)
    if isinstance(given, ClientTask):
        from async_hfl.adapters.learner import ClientLearner

        return ClientLearner(
            partial(load_client_task, name, devices, seed),
            shown(name),
            devices,
            seed,
            gradient=recipe.gradient,
            threshold=threshold,
            places=places,
            processes=None if places is None and not is_object(name) else 0,
        )
    if isinstance(given, TorchTask):
        from async_hfl.learning.pytorch.learner import TorchLearner

        source = partial(load_torch_task, name, devices, seed)
        return TorchLearner(
            source,
            shown(name),
            devices,
            seed,
            recipe,
            threshold=threshold,
            refresh=refresh,
            processes=0 if is_object(name) else None,
            device=options.torch_device,
        )
    from async_hfl.learning.tasks.task_learner import (  # imports JAX, which a task in PyTorch does not need
        TaskLearner,
        decide_vectors,
    )

    task = own_jax_task(name, devices, seed, threshold=threshold, refresh=refresh)
    return TaskLearner(task, recipe, decide_vectors(task, options, runs), needs_products=multiplied)


def own_jax_task(name: str, devices: int, seed: int, *, threshold: float | None = None, refresh: float = 0.0) -> Task:
    """The task in the form that the training engine takes."""
    own = _given(name, devices, seed)
    if not isinstance(own, OwnTask):
        kind = "in PyTorch, which JAX cannot train" if isinstance(own, TorchTask) else "whose clients train it"
        raise SettingsError(f"{shown(name)}: is a task {kind}")
    from async_hfl.learning.own.build import own_task

    return own_task(own, shown(name), devices, seed, threshold=threshold, refresh=refresh)


def own_optimiser_kind(name: str, devices: int, seed: int) -> Literal["none", "transformation", "function"]:
    """The kind of optimiser that the task brings: none, one with a learning rate of its own, or a function of it."""
    given = _given(name, devices, seed)
    if not isinstance(given, OwnTask) or given.optimiser is None:
        return "none"
    return "function" if callable(given.optimiser) else "transformation"


def own_kind(name: str, devices: int, seed: int) -> Kind:
    """The way in which the task is trained."""
    given = _given(name, devices, seed)
    return "torch" if isinstance(given, TorchTask) else "clients" if isinstance(given, ClientTask) else "jax"


def own_data(name: str, devices: int, seed: int) -> OwnData:
    """The data alone, dealt over the devices."""
    return checked_data(_with_data(name, devices, seed), devices, seed, TaskErrors(shown(name)))


def own_class_names(name: str, devices: int, seed: int) -> tuple[str, ...]:
    return tuple(map(str, _with_data(name, devices, seed).class_names))


def _with_data(name: str, devices: int, seed: int) -> UserTask:
    given = _given(name, devices, seed)
    if not isinstance(given, UserTask):
        raise SettingsError(f"{name}: the data is with its clients, which alone read it")
    return given


def load_torch_task(name: str, devices: int, seed: int) -> TorchTask:
    """The task in PyTorch. Every training process calls this, and so loads the user's file itself."""
    own = _given(name, devices, seed)
    if not isinstance(own, TorchTask):
        raise InternalError(f"{name} is a TorchTask in one process and not in another")
    return own


def load_client_task(name: str, devices: int, seed: int) -> ClientTask:
    """The task whose clients train it. Every process that calls them calls this, and so loads the user's files."""
    own = _given(name, devices, seed)
    if not isinstance(own, ClientTask):
        raise InternalError(f"{name} is a ClientTask in one process and not in another")
    return own


def _given(name: str, devices: int, seed: int) -> Goal:
    return _made_once(name, _content(name), devices, seed)


@lru_cache(maxsize=2)
def _made_once(name: str, content: str, devices: int, seed: int) -> Goal:
    """Composing the settings and building the learner both ask; reading the data may take a while."""
    return made_task(_loaded_once(name, content), shown(name), devices, seed)


@lru_cache(maxsize=2)
def _loaded_once(name: str, content: str) -> object:
    if _IMPORTS_JAX.search(content) or (is_object(name) and "jax" in sys.modules):
        # The file may compute with JAX while it is loaded, and a function when it is called, so JAX must be configured.
        from async_hfl.learning.engine import runtime

        runtime.prepare()
    return load_task(name)


def _content(name: str) -> str:
    """The content of the file; empty if it cannot be read, which `load_task` then reports."""
    try:
        return Path(file_of(name)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
