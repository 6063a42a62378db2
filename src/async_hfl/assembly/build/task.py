"""Building of a task from settings: its learner, the options of training, and the distribution of its data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from math import inf

import msgspec

from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.objects import shown
from async_hfl.assembly.user_code.user_task import own_class_names, own_data, own_learner
from async_hfl.core.data_distribution import DataDistribution, data_distribution
from async_hfl.core.errors import SettingsError
from async_hfl.core.learner import Learner
from async_hfl.learning.engine.recipe import Adam, Optimiser, Recipe, Sgd
from async_hfl.learning.engine.trainer import EngineOptions, Trainer, VectorsChoice
from async_hfl.learning.tasks.catalogue import TaskOptions, build_task, distributed_data
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.nodes.config import GradientKind


@dataclass(frozen=True, slots=True)
class EngineSharing:
    """Access to training engines that several concurrent runs share."""

    engine: Callable[[Hashable, Callable[[], Trainer]], Trainer]
    """Returns the engine with this key; the function makes it if there is none yet."""
    runs: int = 1
    """Number of concurrent runs."""


def build_learner(
    settings: Settings,
    seed: int,
    gradient: GradientKind,
    *,
    sharing: EngineSharing | None = None,
    vectors: VectorsChoice = "host",
) -> Learner:
    """Return the learner of the task. Only a simulation may ask for `vectors` other than "host"."""
    task, options = settings.task, replace(engine_options(settings), vectors=vectors)
    runs = 1 if sharing is None else sharing.runs
    if task.name == "null":
        return StubLearner(task.devices, task.model_size, gradient=gradient == "last", threshold=task.target)
    how = recipe(settings, gradient=gradient == "last")
    if is_user_code(task.name):
        return own_learner(
            task.name,
            task.devices,
            seed,
            how,
            options,
            multiplied=gradient != "none",
            runs=runs,
            threshold=task.target,
            refresh=task.refresh,
        )
    from async_hfl.learning.tasks.task_learner import TaskLearner, decide_vectors, engine_for  # imports JAX

    built = build_task(task.name, task.devices, seed, task_options(settings))
    options = decide_vectors(built, options, runs)
    trainer = None
    if sharing is not None:
        # The key consists of what an engine compiles in or keeps on the accelerator; the rest comes with each job.
        key = (task.name, task.layers, task.normalisation, task.interval, how.static, options)
        trainer = sharing.engine(key, lambda: engine_for(built, how, options))
    return TaskLearner(built, how, options, trainer, needs_products=gradient != "none")


def vectors_of(settings: Settings) -> VectorsChoice:
    """Return where models and gradients are kept: "auto" becomes "host" if gradients are projected, or changes are
    compared or clipped, which happens on the host."""
    compared = settings.gateway.robust != "none" or settings.privacy.clip < inf
    copied = settings.utility.compression != "none" or compared
    return "host" if settings.engine.vectors == "auto" and copied else settings.engine.vectors


def task_options(settings: Settings) -> TaskOptions:
    task = settings.task
    return TaskOptions(
        target=task.target,
        partition=task.partition,
        partition_settings=msgspec.structs.asdict(task),
        refresh=task.refresh,
        layers=task.layers,
        normalisation=task.normalisation,
        interval=task.interval,
    )


def recipe(settings: Settings, *, gradient: bool) -> Recipe:
    device = settings.device
    return Recipe(
        device.epochs,
        device.batch_size,
        device.learning_rate,
        device.momentum,
        device.weight_decay,
        device.proximal_weight,
        gradient,
        device.single_sample,
        _optimiser(settings),
    )


def _optimiser(settings: Settings) -> Optimiser:
    device = settings.device
    if device.optimiser == "sgd":
        return Sgd()
    return Adam(device.adam_beta1, device.adam_beta2, device.adam_epsilon, decoupled=device.optimiser == "adamw")


def engine_options(settings: Settings) -> EngineOptions:
    engine = settings.engine
    return EngineOptions(
        memory=engine.memory,
        precision=engine.precision,
        prefetch=engine.prefetch,
        torch_device=engine.torch_device,
    )


def build_data_distribution(settings: Settings, seed: int) -> DataDistribution:
    """Return the samples of each device by class, as in a run. Builds no model and does not import JAX."""
    task = settings.task
    if task.name == "null":
        raise SettingsError("the task null has no data to show")
    if is_user_code(task.name):
        own = own_data(task.name, task.devices, seed)
        names = own_class_names(task.name, task.devices, seed)
        return data_distribution(
            shown(task.name), "its own partition", seed, own.owned, own.train.targets, own.classes, names
        )
    data, owned = distributed_data(task.name, task.devices, seed, task_options(settings))
    return data_distribution(task.name, task.partition, seed, owned, data.train.targets, data.classes, data.class_names)
