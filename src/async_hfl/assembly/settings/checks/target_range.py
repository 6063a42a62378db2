"""The check of a run's targets: an accuracy of 90 would never be reached, and a ladder must go from easy to hard."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isinf

from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_direction, own_metric
from async_hfl.core.errors import SettingsError
from async_hfl.core.maths.targets import Direction, Target
from async_hfl.learning.evaluation.metric_bounds import metric_bounds, metric_direction
from async_hfl.learning.tasks.catalogue import TASKS

_SURELY_PERCENT = 10.0
"""From here on, a number above the highest value was probably meant as a percentage."""


def check_targets(settings: Settings, seed: int, origin: Mapping[str, str]) -> None:
    """Raise SettingsError if the metric of the task cannot reach `task.target` or a step of `task.ladder`, or if a step
    of the ladder is not harder than the one before."""
    task, metric = settings.task, _metric(settings, seed)
    _check_range("task.target", task.target, task.name, metric, origin)
    for step in task.ladder:
        _check_range("task.ladder", step, task.name, metric, origin)
    if len(task.ladder) < 2:
        return
    direction = _direction(settings, seed, metric)
    for easier, harder in pairwise(task.ladder):
        if easier == harder or Target("", harder, direction).passes(easier):
            order, side = "ascending" if direction == "at_least" else "descending", direction.replace("_", " ")
            raise SettingsError(
                f"task.ladder: {harder:g} follows {easier:g}{_source('task.ladder', origin)}; order the targets from "
                f"the easiest to the hardest, each once: {order}, since the metric shall be {side}"
            )


def _check_range(path: str, target: float, task: str, metric: str | None, origin: Mapping[str, str]) -> None:
    if metric is None:
        return
    low, high = metric_bounds(metric)
    if low <= target <= high:
        return
    bounds = f"between {low:g} and {high:g}" if not isinf(high) else f"at least {low:g}"
    raise SettingsError(
        f"{path} = {target:g}{_source(path, origin)}: the metric of the task {task} is {metric}, which is "
        f"{bounds}; did you mean {_nearest(target, low, high):g}?"
    )


def _source(path: str, origin: Mapping[str, str]) -> str:
    return f" ({origin[path]})" if path in origin else ""


def _metric(settings: Settings, seed: int) -> str | None:
    """Return the name of a built-in metric; None if the metric is a user's function, or its values can be any."""
    task = settings.task
    if is_user_code(task.name):
        return own_metric(task.name, task.devices, seed)
    return TASKS[task.name].metric if task.name in TASKS else None


def _direction(settings: Settings, seed: int, metric: str | None) -> Direction:
    task = settings.task
    if is_user_code(task.name):
        return own_direction(task.name, task.devices, seed)
    return "at_least" if metric is None else metric_direction(metric)


def _nearest(target: float, low: float, high: float) -> float:
    percent = target / 100
    return percent if target >= _SURELY_PERCENT and low <= percent <= high else min(max(target, low), high)
