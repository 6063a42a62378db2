"""Centralised training of a task, for comparison: its learning curve and its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from async_hfl.assembly.build.task import engine_options, recipe, task_options
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.objects import is_object, shown
from async_hfl.assembly.user_code.user_task import load_torch_task, own_jax_task, own_kind, own_optimiser_kind
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.tasks.catalogue import build_task
from async_hfl.learning.tasks.central_epochs import CentralEpoch, central_epochs, central_recipe


@dataclass(frozen=True, slots=True, eq=False)
class CentralisedTraining:
    """The result of centralised training."""

    metric: str
    higher_is_better: bool
    curve: list[dict[str, float]]
    naive: float | None
    """The error of the trivial forecast; None if the task is not a forecast."""
    layout: Layout
    weights: Weights


def train_task_centrally(
    settings: Settings, seed: int, on_epoch: Callable[[dict[str, float]], None] | None
) -> CentralisedTraining:
    if settings.task.name == "null":
        raise SettingsError("the task null has nothing to train")
    central = settings.central
    how = replace(recipe(settings, gradient=False), batch_size=central.batch_size, learning_rate=central.learning_rate)
    work = _prepared(settings, how, seed)
    curve: list[dict[str, float]] = []
    weights: Weights | None = None
    for done in work.epochs:
        weights = done.weights
        row = {
            "epoch": done.epoch,
            "learning_rate": done.learning_rate,
            "loss": done.loss,
            "metric": done.evaluation.metric,
            "test_loss": done.evaluation.loss,
        }
        if not np.isfinite(weights).all():
            raise DataError(
                f"epoch {done.epoch}: the weights are not finite; set central.learning_rate below "
                f"{central.learning_rate:g}"
            )
        curve.append(row)
        if on_epoch is not None:
            on_epoch(row)
    assert weights is not None
    return CentralisedTraining(
        metric=work.target.metric,
        higher_is_better=work.target.direction == "at_least",
        curve=curve,
        naive=_last_reading_error(work.test),
        layout=work.layout,
        weights=weights,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A task, ready to be trained in JAX or in PyTorch."""

    epochs: Iterator[CentralEpoch]
    target: Target
    test: Samples
    layout: Layout


def _prepared(settings: Settings, how: Recipe, seed: int) -> _Prepared:
    name, devices, epochs = settings.task.name, settings.task.devices, settings.central.epochs
    own = is_user_code(name)
    if own and own_kind(name, devices, seed) == "torch":
        from async_hfl.learning.pytorch.learner import TorchLearner

        source = partial(load_torch_task, name, devices, seed)
        learner = TorchLearner(
            source,
            shown(name),
            devices,
            seed,
            central_recipe(how),
            processes=0 if is_object(name) else 1,
            device=settings.engine.torch_device,
        )
        first, train = learner.initial_weights(seed), learner.train_on_all
        done = central_epochs(train, learner.evaluate, first, how.learning_rate, epochs, seed)
        return _Prepared(done, learner.target, learner.data.test, learner.layout)
    from async_hfl.learning.tasks.central import train_centrally  # imports JAX

    if own and own_optimiser_kind(name, devices, seed) == "transformation":
        raise SettingsError(
            f"{name}: optimiser: has a learning rate of its own, but `central` lowers it from epoch to epoch; give a "
            "function of the learning rate that returns the transformation"
        )
    task = own_jax_task(name, devices, seed) if own else build_task(name, devices, seed, task_options(settings))
    done = train_centrally(task, how, epochs, seed, engine_options(settings))
    return _Prepared(done, task.target, task.test, task.model.layout)


def _last_reading_error(test: Samples) -> float | None:
    """Return the mean squared error of repeating the last reading; None if the task is not a forecast."""
    if test.starts is None or test.targets.ndim != 2:
        return None
    last = test.inputs[test.starts + test.window - 1]
    return float(np.mean((last.astype(np.float64) - test.targets) ** 2))
