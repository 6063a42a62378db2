"""The tasks there are: which data, which model, which loss. Importing this does not import JAX."""

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
    """What may be chosen of a task; each task reads those it has a use for."""

    target: float
    partition: str
    partition_settings: Mapping[str, Any] = field(default_factory=dict)
    refresh: float = 0.0
    """Share of a device's samples renewed with each job, from its own classes."""
    layers: int = 1
    """Of the character LSTM."""
    normalisation: Normalisation = "batch"
    """Of the ResNet."""
    interval: Interval = "half-hourly"
    """Of the weather readings."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    load: Callable[[TaskOptions], Dataset]
    model: Callable[[Dataset, TaskOptions], Model]
    reads: frozenset[str] = frozenset()
    """Settings of [task] that matter to this task alone."""


def build_task(name: str, devices: int, seed: int, options: TaskOptions) -> Task:
    """The task dealt over the devices. The data and its split into training and test are the same for every seed."""
    # Here and not above: JAX takes a while to import, and a command line that only prints help should not wait for it.
    from async_hfl.learning.tasks.task_learner import Task

    data, owned = dealt(name, devices, seed, options)
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


def dealt(name: str, devices: int, seed: int, options: TaskOptions) -> tuple[Dataset, tuple[Rows, ...]]:
    """The data, and whose rows of the training set are whose; without a model, hence without JAX."""
    if name not in TASKS:
        raise SettingsError(f"task.name = {name!r}: `async-hfl tasks` lists them all")
    data = _loaded(name, options.layers, options.normalisation, options.interval)
    return data, partition(options.partition, data, devices, seed, options.partition_settings)


def _test_rows(how: str, data: Dataset, owned: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """Whose part of the test set each device is judged on, where devices are the data's own owners."""
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
    """Several runs of a process read their data once."""
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
    """Some models have a form for accelerators that computes the same by other products."""
    from async_hfl.learning.engine.backend import jax

    return bool(jax.default_backend() != "cpu")


_UNROLLED = 4
"""Steps of a recurrence in one turn of its loop: an accelerator starts fewer kernels, a processor only loses."""

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
