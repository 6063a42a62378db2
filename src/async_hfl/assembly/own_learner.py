"""`--task FILE.py:NAME`: the user's own task as a learner, whichever library it is written in."""

from __future__ import annotations

from functools import partial

from async_hfl.assembly.user_code import load_task
from async_hfl.core.errors import InternalError
from async_hfl.core.learner import Learner
from async_hfl.learning.own.given import devices_given, given_task
from async_hfl.learning.own.task import OwnTask
from async_hfl.learning.pytorch.task import TorchTask
from async_hfl.learning.recipe import Recipe
from async_hfl.learning.trainer import EngineOptions


def own_learner(
    name: str,
    devices: int,
    seed: int,
    recipe: Recipe,
    options: EngineOptions,
    *,
    threshold: float | None = None,
    refresh: float = 0.0,
) -> Learner:
    """`threshold` and `refresh` where the settings give them; None: the task's own target."""
    own = given_task(load_task(name), name, devices, seed)
    if isinstance(own, TorchTask):
        from async_hfl.learning.pytorch.learner import TorchLearner

        source = partial(load_torch_task, name, devices, seed)
        return TorchLearner(source, name, devices, seed, recipe, threshold=threshold, refresh=refresh)
    assert isinstance(own, OwnTask)
    # Brings JAX, which a task in PyTorch does without.
    from async_hfl.learning.own.build import own_task
    from async_hfl.learning.task_learner import TaskLearner

    return TaskLearner(own_task(own, name, devices, seed, threshold=threshold, refresh=refresh), recipe, options)


def own_devices(name: str) -> int | None:
    """How many devices the task has shards for; None where it is dealt over any number."""
    return devices_given(load_task(name))


def load_torch_task(name: str, devices: int, seed: int) -> TorchTask:
    """Called in every training process, which loads the user's file for itself."""
    own = given_task(load_task(name), name, devices, seed)
    if not isinstance(own, TorchTask):
        raise InternalError(f"{name} is a TorchTask in one process and not in another")
    return own
