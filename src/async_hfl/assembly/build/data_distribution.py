"""Who holds what under given settings: the data dealt as a run would deal it, without a model or JAX."""

from __future__ import annotations

from async_hfl.assembly.build.simulation import task_options
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_class_names, own_data
from async_hfl.core.data_distribution import DataDistribution, data_distribution
from async_hfl.core.errors import SettingsError
from async_hfl.learning.tasks.catalogue import distributed_data


def who_holds_what(settings: Settings, seed: int) -> DataDistribution:
    task = settings.task
    if task.name == "null":
        raise SettingsError("the task null has no data to show")
    if is_user_code(task.name):
        own = own_data(task.name, task.devices, seed)
        names = own_class_names(task.name, task.devices, seed)
        return data_distribution(task.name, "its own partition", seed, own.owned, own.train.targets, own.classes, names)
    data, owned = distributed_data(task.name, task.devices, seed, task_options(settings))
    return data_distribution(task.name, task.partition, seed, owned, data.train.targets, data.classes, data.class_names)
