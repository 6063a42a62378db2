"""The check that a run's target is a value that its metric can have: an accuracy of 90 would never be reached."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf

from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_metric
from async_hfl.core.errors import SettingsError
from async_hfl.learning.evaluation.metric_bounds import metric_bounds
from async_hfl.learning.tasks.catalogue import TASKS

_SURELY_PERCENT = 10.0
"""From here on, a number above the highest value was probably meant as a percentage."""


def check_target(settings: Settings, seed: int, origin: Mapping[str, str]) -> None:
    """Raise SettingsError if the metric of the task cannot reach `task.target`."""
    target, metric = settings.task.target, _metric(settings, seed)
    if metric is None:
        return
    low, high = metric_bounds(metric)
    if low <= target <= high:
        return
    bounds = f"between {low:g} and {high:g}" if not isinf(high) else f"at least {low:g}"
    source = f" ({origin['task.target']})" if "task.target" in origin else ""
    raise SettingsError(
        f"task.target = {target:g}{source}: the metric of the task {settings.task.name} is {metric}, which is "
        f"{bounds}; did you mean {_nearest(target, low, high):g}?"
    )


def _metric(settings: Settings, seed: int) -> str | None:
    """Return the name of a built-in metric; None if the metric is a user's function, or its values can be any."""
    task = settings.task
    if is_user_code(task.name):
        return own_metric(task.name, task.devices, seed)
    return TASKS[task.name].metric if task.name in TASKS else None


def _nearest(target: float, low: float, high: float) -> float:
    percent = target / 100
    return percent if target >= _SURELY_PERCENT and low <= percent <= high else min(max(target, low), high)
