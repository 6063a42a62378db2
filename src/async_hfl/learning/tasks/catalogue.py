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
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.partition.natural import owners_test_rows
from async_hfl.learning.partition.registry import partition

if TYPE_CHECKING:
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

    load: Callable[[Interval], Dataset]
    model: Callable[[Dataset, TaskOptions], Model]
    reads: frozenset[str] = frozenset()
    """Settings of [task] that only this task reads."""
    metric: str = "accuracy"
    """The name of its metric, which is known without loading the task."""


def build_task(name: str, devices: int, seed: int, options: TaskOptions) -> Task:
    """Return the task with its data distributed over the devices. The split into training and test sets does not depend
    on the seed."""
    # Imported here because JAX takes a while to import, and a command that only prints help should not wait for it.
    from async_hfl.learning.evaluation.objectives import classification, regression
    from async_hfl.learning.tasks.task_learner import Task

    data, owned = distributed_data(name, devices, seed, options)
    objective = classification(data.classes) if data.classes else regression(data.train.targets.shape[1])
    test_owned: tuple[Rows, ...] = ()
    if options.partition == "natural_id" and data.owner is not None and data.test_owner is not None:
        test_owned = owners_test_rows(owned, data.owner, data.test_owner)
    return Task(
        name=name,
        model=TASKS[name].model(data, options),
        objective=objective,
        train=data.train,
        test=data.test,
        owned=owned,
        target=Target(objective.metric, options.target, "at_least" if data.classes else "at_most"),
        refresh=options.refresh,
        seed=seed,
        test_owned=test_owned,
        classes=data.classes,
        class_names=data.class_names,
    )


def distributed_data(name: str, devices: int, seed: int, options: TaskOptions) -> tuple[Dataset, tuple[Rows, ...]]:
    """Return the data and each device's rows of the training set; without a model, and hence without JAX."""
    if name not in TASKS:
        raise SettingsError(f"task.name = {name!r}: `async-hfl tasks` lists them all")
    data = _loaded(name, options.interval)
    return data, partition(options.partition, data, devices, seed, options.partition_settings)


@lru_cache(maxsize=2)
def _loaded(name: str, interval: Interval) -> Dataset:
    """Load the data once for all runs of a process."""
    return TASKS[name].load(interval)


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
    "digits": KnownTask(lambda interval: load_digits(), _perceptron(64)),
    "mnist": KnownTask(lambda interval: load_mnist(), _small_cnn),
    "fashion-mnist": KnownTask(lambda interval: load_fashion_mnist(), _small_cnn),
    "cifar10": KnownTask(lambda interval: load_cifar10(), _resnet, frozenset({"normalisation"})),
    "shakespeare": KnownTask(lambda interval: load_shakespeare(), _character_lstm, frozenset({"layers"})),
    "har": KnownTask(lambda interval: load_har(), _perceptron(128)),
    "hpwren": KnownTask(
        lambda interval: load_hpwren(hourly=interval == "hourly"), _series_lstm, frozenset({"interval"}), "mse"
    ),
}
