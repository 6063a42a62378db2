"""A task whose devices train with the user's own client code: what the clients are, and what they shall reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from async_hfl.adapters.clients import Clients
from async_hfl.learning.own.task import Goal

LOSS_NAMES = ("loss", "train_loss", "train-loss", "training_loss", "avg_trainloss")
"""Metrics that are taken for the loss of training, the first one that a client reports."""
EVALUATION_LOSS_NAMES = ("loss", "eval_loss", "eval-loss", "val_loss", "test_loss")
"""Metrics that are taken for the loss of an evaluation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientTask(Goal):
    """Made by `async_hfl.adapters.flower` and `async_hfl.adapters.torch_function`. The metric is the name under which
    the client reports it."""

    reports_any_metric: ClassVar[bool] = True
    clients: Clients
    loss: str | None = None
    """The metric that is the loss of training; None: the first of `LOSS_NAMES` that a client reports."""
    evaluate: Callable[..., Any] | None = None
    """Evaluates a model in one place; None: the clients evaluate it on their own data, weighted by their samples."""
    evaluate_on: int | None = None
    """The number of clients that evaluate, evenly spaced; None for all."""
