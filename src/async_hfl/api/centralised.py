"""Training of a task on all its data in one place, and the distribution of its data over devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from async_hfl.api.arguments import Task, composed_of, named
from async_hfl.assembly.settings.overrides import Overrides
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.data_distribution import DataDistribution
from async_hfl.journal.model_file import save_model


@dataclass(frozen=True, slots=True)
class Central:
    """The result of centralised training: the upper bound for federated runs."""

    task: str
    metric: str
    curve: tuple[dict[str, float], ...]
    """One row per epoch: epoch, learning_rate, loss, metric, test_loss."""
    best: float
    final: float
    naive: float | None
    """The metric of predicting the last reading again, for tasks whose inputs are time series."""
    wall_s: float


def central(
    file: str | Path | None = None,
    *,
    task: Task | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
    model: str | Path | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> Central:
    """Train a task on all its data in one place, with the same model, loss and engine (settings: [central]).

    `model` is a file for the final weights.
    """
    from async_hfl.assembly.runs.central_run import train_task_centrally

    given = named(task, overrides=overrides)
    composed = composed_of(file, given.task, seed=seed, overrides=given.overrides)
    began = time.perf_counter()
    trained = train_task_centrally(composed.settings, composed.choice.seed, on_epoch)
    if model is not None:
        save_model(Path(model), trained.layout, trained.weights)
    values = [row["metric"] for row in trained.curve]
    return Central(
        task=shown(composed.choice.task),
        metric=trained.metric,
        curve=tuple(trained.curve),
        best=max(values) if trained.higher_is_better else min(values),
        final=values[-1],
        naive=trained.naive,
        wall_s=time.perf_counter() - began,
    )


def data_distribution(
    file: str | Path | None = None,
    *,
    task: Task | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
) -> DataDistribution:
    """Return the number of samples by device and class that a run with the same settings and seed would have."""
    from async_hfl.assembly.build.task import build_data_distribution

    given = named(task, overrides=overrides)
    composed = composed_of(file, given.task, seed=seed, overrides=given.overrides)
    return build_data_distribution(composed.settings, composed.choice.seed)
