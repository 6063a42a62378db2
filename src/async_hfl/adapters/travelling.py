"""The part of a task with clients that a cloud tells its devices, so that a device needs the client code alone
(`async-hfl device --client FILE.py:NAME`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from async_hfl.adapters.arrays import Arrangement
from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.clients import Model
from async_hfl.adapters.flower import flower
from async_hfl.core.errors import SettingsError
from async_hfl.core.maths.targets import Target


def told(task: ClientTask, arrangement: Arrangement) -> dict[str, Any]:
    """Return it as plain data: the arrays of the model, the configurations, the name of the loss."""
    config = getattr(task.clients, "config", {})
    return {
        "arrays": [[one.name, list(one.shape), one.dtype, one.trained] for one in arrangement.arrays],
        "config": None if callable(config) else dict(config),
        "run_config": dict(getattr(task.clients, "run_config", {})),
        "loss": task.loss,
    }


def task_of(client: Any, facts: Mapping[str, Any], target: Target) -> ClientTask:
    """Return the task of a device whose client is the user's and whose model is the cloud's."""
    if not facts:
        raise SettingsError("--client: the cloud's task has no clients; give --task or --data as for any other task")
    if facts["config"] is None:
        raise SettingsError(
            "--client: the config of the cloud's task is a function, which cannot travel; install the task's file on "
            "this machine and name it with --task"
        )
    arrays = facts["arrays"]

    def model() -> Model:
        """Zeros: a device gets its first model from its gateway, and only the form of the arrays matters."""
        zeros = [np.zeros(shape, dtype) for _, shape, dtype, _ in arrays]
        return Model([one[0] for one in arrays], zeros, [one[3] for one in arrays])

    return flower(
        client,
        target=target.threshold,
        metric=target.metric,
        direction=target.direction,
        model=model,
        loss=facts["loss"],
        config=facts["config"],
        run_config=facts["run_config"],
    )
