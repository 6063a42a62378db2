"""`--task FILE.py:NAME`: the user's own task as a learner, whichever library it is written in."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.assembly.user_code.loading import file_of, load_task
from async_hfl.core.errors import InternalError, SettingsError
from async_hfl.core.learner import Learner
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.own.data import OwnData, checked_data
from async_hfl.learning.own.task import OwnTask, TorchTask, number_of_shards
from async_hfl.learning.own.task import load_task as made_task
from async_hfl.learning.own.task_errors import TaskErrors

if TYPE_CHECKING:
    from async_hfl.learning.tasks.task_learner import Task

_BRINGS_JAX = re.compile(r"^\s*(import|from)\s+(jax|flax|equinox)\b", re.MULTILINE)


def own_settings(name: str, devices: int | None, seed: int, usual_devices: int) -> dict[str, Any]:
    """What the task itself says of the settings: how many devices (where nobody else does) and the target."""
    if devices is None:
        devices = number_of_shards(_loaded_once(name, _content(name))) or usual_devices
    return {"devices": devices, "target": _given(name, devices, seed).target}


def own_learner(
    name: str,
    devices: int,
    seed: int,
    recipe: Recipe,
    options: EngineOptions,
    *,
    multiplied: bool = True,
    runs: int = 1,
    threshold: float | None = None,
    refresh: float = 0.0,
) -> Learner:
    """`threshold` goes before the task's own target; `runs` go on at a time."""
    if isinstance(_given(name, devices, seed), TorchTask):
        from async_hfl.learning.pytorch.learner import TorchLearner

        source = partial(load_torch_task, name, devices, seed)
        return TorchLearner(source, name, devices, seed, recipe, threshold=threshold, refresh=refresh)
    from async_hfl.learning.tasks.task_learner import (  # brings JAX, which a task in PyTorch does without
        TaskLearner,
        settled,
    )

    task = own_jax_task(name, devices, seed, threshold=threshold, refresh=refresh)
    return TaskLearner(task, recipe, settled(task, options, runs), multiplied=multiplied)


def own_jax_task(name: str, devices: int, seed: int, *, threshold: float | None = None, refresh: float = 0.0) -> Task:
    """As the engine knows tasks; an error where the task is written in PyTorch."""
    own = _given(name, devices, seed)
    if not isinstance(own, OwnTask):
        raise SettingsError(f"{name}: is a task in PyTorch, which only `async-hfl run` trains")
    from async_hfl.learning.own.build import own_task

    return own_task(own, name, devices, seed, threshold=threshold, refresh=refresh)


def own_data(name: str, devices: int, seed: int) -> OwnData:
    """The data alone, dealt over the devices."""
    return checked_data(_given(name, devices, seed), devices, seed, TaskErrors(name))


def own_class_names(name: str, devices: int, seed: int) -> tuple[str, ...]:
    return tuple(map(str, _given(name, devices, seed).class_names))


def load_torch_task(name: str, devices: int, seed: int) -> TorchTask:
    """Called in every training process, which loads the user's file for itself."""
    own = _given(name, devices, seed)
    if not isinstance(own, TorchTask):
        raise InternalError(f"{name} is a TorchTask in one process and not in another")
    return own


def _given(name: str, devices: int, seed: int) -> OwnTask | TorchTask:
    return _made_once(name, _content(name), devices, seed)


@lru_cache(maxsize=2)
def _made_once(name: str, content: str, devices: int, seed: int) -> OwnTask | TorchTask:
    """Composing the settings and building the learner both ask; reading the data may take a while."""
    return made_task(_loaded_once(name, content), name, devices, seed)


@lru_cache(maxsize=2)
def _loaded_once(name: str, content: str) -> object:
    if _BRINGS_JAX.search(content):
        # What the file computes while it is loaded must not start JAX unprepared, on one core.
        from async_hfl.learning.engine import runtime

        runtime.prepare()
    return load_task(name)


def _content(name: str) -> str:
    """Of the file; where it cannot be read, loading it will say so better."""
    try:
        return Path(file_of(name)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
