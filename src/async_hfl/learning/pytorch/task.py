"""The protocol of a task of your own in PyTorch. Importing this does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from async_hfl.core.maths.targets import Direction
from async_hfl.learning.own.task import Shard


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchTask:
    """A model, a loss and data. As `OwnTask`, but `model` makes an `nn.Module`, and functions take and give tensors.

    The file is loaded again in every training process: what it gives must be the same for the same devices and seed.
    """

    model: Callable[[], Any]
    """() -> a new torch.nn.Module; PyTorch's generator is seeded before."""
    loss: Callable[[Any, Any], Any] | str = "cross-entropy"
    """(outputs, targets) -> one number for each sample (reduction="none"); or "cross-entropy", "squared-error"."""
    metric: Callable[[Any, Any], Any] | str = "accuracy"
    target: float
    direction: Direction | None = None
    shards: Sequence[Shard] | None = None
    train: Shard | None = None
    partition: str = "iid"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    test: Shard
    class_names: Sequence[str] = ()
