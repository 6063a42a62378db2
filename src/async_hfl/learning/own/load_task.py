"""What a user's file gives as a task: a value, or a function of the number of devices and the seed."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING

from async_hfl.learning.own.task import OwnTask
from async_hfl.learning.own.task_errors import Blame

if TYPE_CHECKING:
    from async_hfl.learning.pytorch.task import TorchTask


def given_task(value: object, name: str, devices: int, seed: int) -> OwnTask | TorchTask:
    """`value` is what stands in the file under `name`, FILE.py:NAME."""
    from async_hfl.learning.pytorch.task import TorchTask

    blame = Blame(name)
    if callable(value) and not isinstance(value, OwnTask | TorchTask | type):
        with blame.calling("task(devices, seed)"):
            value = value(devices, seed)
    if not isinstance(value, OwnTask | TorchTask):
        kind = "None" if value is None else f"a {getattr(value, '__name__', type(value).__name__)}"
        raise blame.wrong(
            "task", f"is {kind}; give an async_hfl.OwnTask, or a function (devices, seed) that returns one"
        )
    return value


def devices_given(value: object) -> int | None:
    """How many devices a value (not a function) has shards for: a run need not be told then."""
    shards = getattr(value, "shards", None)
    return len(shards) if isinstance(shards, Sized) else None
