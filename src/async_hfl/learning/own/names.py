"""The losses and metrics that go by a name, and which way is better. Without JAX, so that other learners share it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from async_hfl.core.maths.targets import Direction, Target
from async_hfl.learning.own.task_errors import Blame

LOSSES = ("cross-entropy", "squared-error")
METRICS = ("accuracy", "squared-error", "absolute-error", "loss")


def named(given: object, known: Sequence[str], attribute: str, blame: Blame) -> str:
    """The name of a known one, or of the user's function."""
    if callable(given):
        return str(getattr(given, "__name__", attribute))
    if given not in known:
        raise blame.wrong(
            attribute, f"{given!r} is not one of {', '.join(known)}; or give a function (outputs, targets)"
        )
    return str(given)


def target_of(
    metric: object, wanted: object, direction: Direction | None, blame: Blame, threshold: float | None = None
) -> Target:
    """`threshold`, where a setting has one, goes before the task's own."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not isfinite(wanted):
        raise blame.wrong("target", f"is {wanted!r}; give the number that the metric shall reach")
    if direction not in (None, "at_least", "at_most"):
        raise blame.wrong("direction", f"is {direction!r}; give 'at_least' or 'at_most'")
    if direction is None and callable(metric):
        raise blame.wrong("direction", "a metric of your own needs one: 'at_least' or 'at_most'")
    better: Direction = direction or ("at_least" if metric == "accuracy" else "at_most")
    name, value = named(metric, METRICS, "metric", blame), float(wanted if threshold is None else threshold)
    return Target(name, value, better)
