"""The arguments of the Python API: names, paths and texts as on the command line, or the objects themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from async_hfl.assembly.runs.provenance import check_seed
from async_hfl.assembly.settings.loading import Composed, compose
from async_hfl.assembly.settings.overrides import Overrides, override_texts
from async_hfl.assembly.user_code.objects import name_of_object
from async_hfl.learning.own.task import Goal
from async_hfl.network.description import NetworkDescription
from async_hfl.network.topologies.request import NetworkRequest

Task: TypeAlias = str | Goal | Callable[[int, int], Goal]
"""A name, FILE.py:NAME, a task (OwnTask, TorchTask, or one of `adapters`), or a function (devices, seed) -> one."""
Network: TypeAlias = str | Callable[[NetworkRequest], NetworkDescription]
"""A name, FILE.py:NAME, or a function that describes a network."""


@dataclass(frozen=True, slots=True)
class Named:
    """Arguments with a name in the place of each object. The caller keeps the objects alive meanwhile."""

    task: str | None
    network: str | None
    overrides: list[str]


def named(task: Task | None = None, network: Network | None = None, overrides: Overrides = ()) -> Named:
    """Return the arguments as text, as the command line has them."""
    names = {
        key: value if value is None or isinstance(value, str) else name_of_object(key, value)
        for key, value in (("task", task), ("network", network))
    }
    return Named(names["task"], names["network"], override_texts(overrides))


def composed_of(
    file: str | Path | None, task: str | None, network: str | None = None, *, overrides: list[str], **chosen: Any
) -> Composed:
    composed = compose(None if file is None else Path(file), task=task, network=network, overrides=overrides, **chosen)
    check_seed(composed.choice.seed)
    return composed


def objects_of(task: Task | None, network: Network | None, overrides: Mapping[str, object]) -> dict[str, object]:
    """Return the objects that a resumed run is given again, by the setting that they stand for."""
    given = {"task": task, "network": network, **overrides}
    return {setting: value for setting, value in given.items() if value is not None}
