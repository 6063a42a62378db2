"""The built-in tasks: their data, models and losses. Importing this module does not import JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from async_hfl.core.errors import SettingsError
from async_hfl.core.maths.targets import Target
from async_hfl.learning.datasets.cifar10 import load_cifar10
from async_hfl.learning.datasets.digits import load_digits
from async_hfl.learning.datasets.har import load_har
from async_hfl.learning.datasets.hpwren import load_hpwren
from async_hfl.learning.datasets.idx_images import load_fashion_mnist, load_mnist
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.datasets.shakespeare import load_shakespeare
from async_hfl.learning.partition import Rows, partition
from async_hfl.learning.partition.natural import owners_test_rows

if TYPE_CHECKING:
    from async_hfl.learning.evaluation.objectives import Objective
    from async_hfl.learning.models.model import Model
    from async_hfl.learning.tasks.task_learner import Task

Normalisation = Literal["batch", "group"]
Interval = Literal["half-hourly", "hourly"]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of all tasks; each task reads those that it needs."""

    target: float
    partition: str
    partition_settings: Mapping[str, Any] = field(default_factory=dict)
    refresh: float = 0.0
    """Share of a device's samples that each job replaces by others of the same classes."""
    layers: int = 1
    """Layers of the character LSTM."""
    normalisation: Normalisation = "batch"
    """Normalisation of the ResNet."""
    interval: Interval = "half-hourly"
    """Interval of the weather readings."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A built-in task."""

    load: Callable[[TaskOptions], Dataset]
    model: Callable[[Dataset, TaskOptions], Model]
    reads: frozenset[str] = frozenset()
    """Settings of [task] that only this task reads."""


def build_task(name: str, devices: int, seed: int, options: TaskOptions) -> Task:
    """Return the task with its data distributed over the devices. The split into training and test sets does not depend
    on the seed."""
    # Imported here because JAX takes a while to import, and a command that only prints help should not wait for it.
    from async_hfl.learning.tasks.task_learner import Task

    data, owned = distributed_data(name, devices, seed, options)
    objective = _objective(data)
    direction: Literal["at_least", "at_most"] = "at_least" if data.classes else "at_most"
    return Task(
        name=name,
        model=TASKS[name].model(data, options),
        objective=objective,
        train=data.train,
        test=data.test,
        owned=owned,
        target=Target(objective.metric, options.target, direction),
        refresh=options.refresh,
        seed=seed,
        test_owned=_test_rows(options.partition, data, owned),
        classes=data.classes,
        class_names=data.class_names,
    )


def distributed_data(name: str, devices: int, seed: int, options: TaskOptions) -> tuple[Dataset, tuple[Rows, ...]]:
    """Return the data and each device's rows of the training set; without a model, and hence without JAX."""
    if name not in TASKS:
        raise SettingsError(f"task.name = {name!r}: `async-hfl tasks` lists them all")
    data = _loaded(name, options.layers, options.normalisation, options.interval)
    return data, partition(options.partition, data, devices, seed, options.partition_settings)


def _test_rows(how: str, data: Dataset, owned: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """Return each device's rows of the test set if devices are the natural owners of the data."""
    if how != "natural_id" or data.owner is None or data.test_owner is None:
        return ()
    return owners_test_rows(owned, data.owner, data.test_owner)


def _objective(data: Dataset) -> Objective:
    from async_hfl.learning.evaluation import objectives

    return (
        objectives.classification(data.classes) if data.classes else objectives.regression(data.train.targets.shape[1])
    )


@lru_cache(maxsize=2)
def _loaded(name: str, layers: int, normalisation: Normalisation, interval: Interval) -> Dataset:
    """Load the data once for all runs of a process."""
    options = TaskOptions(0.0, "", layers=layers, normalisation=normalisation, interval=interval)
    return TASKS[name].load(options)


def _perceptron(hidden: int) -> Callable[[Dataset, TaskOptions], Model]:
    def make(data: Dataset, options: TaskOptions) -> Model:
        from async_hfl.learning.models.mlp import mlp

        return mlp(data.train.inputs.shape[1], hidden, data.classes)

    return make


def _small_cnn(data: Dataset, options: TaskOptions) -> Model:
    from async_hfl.learning.models.cnn import cnn

    return cnn(in_blocks=_on_accelerator())


def _resnet(data: Dataset, options: TaskOptions) -> Model:
    from async_hfl.learning.models.resnet import resnet18

    return resnet18(norm=options.normalisation)


def _character_lstm(data: Dataset, options: TaskOptions) -> Model:
    from async_hfl.learning.models.lstm import character_lstm

    return character_lstm(layers=options.layers, unroll=_UNROLLED if _on_accelerator() else 1)


def _series_lstm(data: Dataset, options: TaskOptions) -> Model:
    from async_hfl.learning.models.lstm import series_lstm

    return series_lstm(unroll=_UNROLLED if _on_accelerator() else 1)


def _on_accelerator() -> bool:
    """True if models should use their form for accelerators, which computes the same by other products."""
    from async_hfl.learning.engine.backend import jax

    return bool(jax.default_backend() != "cpu")


_UNROLLED = 4
"""Unrolled steps of a recurrence: an accelerator starts fewer kernels; a CPU gains nothing."""

TASKS: dict[str, KnownTask] = {
    "digits": KnownTask(lambda options: load_digits(), _perceptron(64)),
    "mnist": KnownTask(lambda options: load_mnist(), _small_cnn),
    "fashion-mnist": KnownTask(lambda options: load_fashion_mnist(), _small_cnn),
    "cifar10": KnownTask(lambda options: load_cifar10(), _resnet, frozenset({"normalisation"})),
    "shakespeare": KnownTask(lambda options: load_shakespeare(), _character_lstm, frozenset({"layers"})),
    "har": KnownTask(lambda options: load_har(), _perceptron(128)),
    "hpwren": KnownTask(
        lambda options: load_hpwren(hourly=options.interval == "hourly"), _series_lstm, frozenset({"interval"})
    ),
}
