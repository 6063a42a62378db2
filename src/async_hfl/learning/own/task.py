"""Tasks of your own, written in JAX (`OwnTask`) or PyTorch (`TorchTask`). Importing this module imports neither.

A file defines a task, or a function `task(devices, seed)` that returns one. The command line names it:
`async-hfl run --task my_task.py:task`. The task is checked before anything is trained, and every error names the file
and the attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from math import isclose, isfinite, isnan
from typing import Any, ClassVar, TypeAlias

import numpy as np

from async_hfl.core.maths.targets import Direction, Target
from async_hfl.learning.evaluation.metric_bounds import metric_direction
from async_hfl.learning.own.task_errors import TaskErrors

Shard: TypeAlias = tuple[Any, Any]
"""(inputs, targets): arrays or what numpy converts to arrays, one row per sample."""
LOSSES = ("cross-entropy", "squared-error")
METRICS = ("accuracy", "squared-error", "absolute-error", "loss")
_BY_VALUE = ("squared-error", "absolute-error")
"""Losses and metrics that compare each output with one target."""
_TOLERANCE = 1e-3
"""Tolerance between a sample's loss among others and among copies of itself: rounding may differ."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """The metric of a task and what it shall reach."""

    metric: Callable[[Any, Any], Any] | str = "accuracy"
    """"accuracy", "squared-error", "absolute-error" or "loss"; or (outputs, targets) -> one number per sample."""
    target: float
    """The mean of the metric over the test set that a run has to reach."""
    direction: Direction | None = None
    """Side of the target on which the metric shall be, "at_least" or "at_most"; required for a metric of your own."""
    ladder: Sequence[float] = ()
    """Further targets that the summary of a run looks up, from the easiest to the hardest."""
    reports_any_metric: ClassVar[bool] = False
    """True if the metric may be any name, namely what the user's own code reports."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UserTask(Goal):
    """The loss, metric, target and data of a task, whichever library its model is written in."""

    loss: Callable[[Any, Any], Any] | str = "cross-entropy"
    """(outputs, targets) -> one number per sample; or "cross-entropy" or "squared-error"."""
    shards: Sequence[Shard] | None = None
    """The training data of each device. Give either these, or `train` with a `partition`."""
    train: Shard | None = None
    partition: str = "iid"
    """The partitioner for `train`: iid, by_class, pathological, dirichlet, shard or by_size."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the partitioner, named as the settings or as in Flower Datasets: {"dirichlet_alpha": 0.3} or
    {"alpha": 0.3}."""
    test: Shard
    class_names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTask(UserTask):
    """A task in JAX. Its functions must be pure and traceable by `jax.jit`."""

    init: Callable[[np.random.Generator], Any]
    """(random) -> the initial parameters: a dict of arrays, or any tree of float arrays."""
    apply: Callable[[Any, Any], Any]
    """(parameters, batch of inputs) -> batch of outputs; each sample's output depends on that sample alone."""
    optimiser: Any = None
    """An optax.GradientTransformation, or a function (learning rate) -> one, such as `optax.lion`. It takes the place
    of `device.optimiser`, and begins anew with each job."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchTask(UserTask):
    """A task in PyTorch. Its functions take and return tensors; losses per sample need reduction="none".

    The file is loaded again in every training process, so it must define the same task for the same devices and seed.
    """

    model: Callable[[], Any]
    """() -> a new torch.nn.Module. PyTorch's generator is seeded before the call."""


def load_task(value: object, name: str, devices: int, seed: int) -> Goal:
    """Return the task that the user's file defines. `value` is the object in the file called `name`, FILE.py:NAME."""
    errors = TaskErrors(name)
    if callable(value) and not isinstance(value, Goal | type):
        with errors.during("task(devices, seed)"):
            value = value(devices, seed)
    if not isinstance(value, Goal):
        kind = "None" if value is None else f"a {getattr(value, '__name__', type(value).__name__)}"
        kind = f"the class {value.__name__}" if isinstance(value, type) else kind
        raise errors.invalid(
            "task", f"is {kind}; give an async_hfl.OwnTask, or a function (devices, seed) that returns one"
        )
    return value


def number_of_shards(value: object) -> int | None:
    """Return the number of devices that a task (not a function) has shards for, which then need not be set."""
    shards = getattr(value, "shards", None)
    return len(shards) if isinstance(shards, Sized) else None


def function_name(value: object, known: Sequence[str], attribute: str, errors: TaskErrors) -> str:
    """Return the name of a built-in loss or metric, or of the user's function."""
    if callable(value):
        return str(getattr(value, "__name__", attribute))
    if value not in known:
        raise errors.invalid(
            attribute, f"{value!r} is not one of {', '.join(known)}; or give a function (outputs, targets)"
        )
    return str(value)


def check_shapes(task: UserTask, outputs: tuple[int, ...], targets: tuple[int, ...], errors: TaskErrors) -> None:
    """Check that losses and metrics by value get outputs and targets of the same shape: others would broadcast."""
    for attribute in ("loss", "metric"):
        name = getattr(task, attribute)
        if name in _BY_VALUE and outputs != targets:
            raise errors.invalid(
                attribute,
                f"{name} compares each output with a target, but {outputs[0]} samples gave outputs of shape {outputs} "
                f"and targets of shape {targets}; reshape one of them",
            )


def check_independent(
    attribute: str, value: float, alone: float, outputs: tuple[int, ...], targets: tuple[int, ...], errors: TaskErrors
) -> None:
    """Check that a loss or metric gives a sample the same value among others as among copies of itself."""
    if not isclose(value, alone, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) and not (isnan(value) and isnan(alone)):
        raise errors.invalid(
            attribute,
            f"the value of a sample depends on the other samples of its batch: outputs of shape {outputs} and targets "
            f"of shape {targets} may broadcast; reshape one of them",
        )


def task_ladder(task: Goal, errors: TaskErrors) -> list[float]:
    """Return the ladder of targets as numbers; their range and order are checked with the settings."""
    ladder = task.ladder
    if not isinstance(ladder, Sequence) or not all(
        isinstance(step, int | float) and not isinstance(step, bool) for step in ladder
    ):
        raise errors.invalid("ladder", f"is {ladder!r}; give a list of numbers")
    return [float(step) for step in ladder]


def task_target(task: Goal, errors: TaskErrors, threshold: float | None = None) -> Target:
    """Return the target of a run. `threshold`, if a setting gives one, replaces the task's own."""
    metric, wanted, direction = task.metric, task.target, task.direction
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not isfinite(wanted):
        raise errors.invalid("target", f"is {wanted!r}; give the number that the metric shall reach")
    if direction not in (None, "at_least", "at_most"):
        raise errors.invalid("direction", f"is {direction!r}; give 'at_least' or 'at_most'")
    own = metric not in METRICS if task.reports_any_metric else callable(metric)
    if direction is None and own:
        raise errors.invalid("direction", "a metric of your own needs one: 'at_least' or 'at_most'")
    name = str(metric) if task.reports_any_metric else function_name(metric, METRICS, "metric", errors)
    value = float(wanted if threshold is None else threshold)
    return Target(name, value, direction or metric_direction(name))
