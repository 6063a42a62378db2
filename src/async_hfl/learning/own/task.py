"""The protocol of a task of your own, in plain JAX. Importing this does not import JAX.

A file gives a function `task(devices, seed)` that returns an `OwnTask`, or an `OwnTask` itself, and is named on the
command line: `async-hfl run --task my_task.py:task`. What it holds is checked before anything is trained; each message
names the file and the attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from async_hfl.core.maths.targets import Direction

Shard: TypeAlias = tuple[Any, Any]
"""(inputs, targets): arrays, or what numpy makes arrays of, one row a sample."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTask:
    """Model, loss, metric and data. Functions must be pure and traceable by JAX (`jax.jit`)."""

    init: Callable[[np.random.Generator], Any]
    """(random) -> the first parameters: a dict of arrays, or any tree of float arrays."""
    apply: Callable[[Any, Any], Any]
    """(parameters, batch of inputs) -> batch of outputs; each sample's output depends on that sample alone."""
    loss: Callable[[Any, Any], Any] | str = "cross-entropy"
    """(outputs, targets) -> one number for each sample; or "cross-entropy" or "squared-error"."""
    metric: Callable[[Any, Any], Any] | str = "accuracy"
    """"accuracy", "squared-error", "absolute-error" or "loss"; or (outputs, targets) -> one number for each sample."""
    target: float
    """The mean of the metric over the test set at which a run has done its work."""
    direction: Direction | None = None
    """Whether the metric shall be "at_least" or "at_most" its target; needed for a metric of your own."""
    shards: Sequence[Shard] | None = None
    """What each device holds. Give these, or `train` with a `partition`."""
    train: Shard | None = None
    partition: str = "iid"
    """How `train` is dealt: iid, by_class, pathological, dirichlet, shard, by_size."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the partition, by the names of the settings: {"dirichlet_alpha": 0.3}."""
    test: Shard
    class_names: Sequence[str] = ()
