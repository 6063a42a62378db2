"""The library's learner for tasks in PyTorch, called as a run calls it: one single-threaded process per core, or a few
that share a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.own.task import TorchTask
from async_hfl.learning.pytorch.learner import TorchLearner
from engine_peers.protocol import Channel, serve
from engine_peers.torch_models import from_state, module_of, tensors_of, to_state
from engine_peers.work import Work, load_work


def run(channel: Channel, options: dict[str, Any]) -> None:
    serve(channel, Learner, torch=torch.__version__)


def task_of(folder: str) -> TorchTask:
    """The workload as a user's task; every process of the learner calls this."""
    work = load_work(folder)
    inputs, targets = (tensor.numpy() for tensor in tensors_of(work))
    return TorchTask(
        model=partial(module_of, work),
        loss="cross-entropy" if work.classes else "squared-error",
        metric="loss",
        target=0.0,
        shards=[(inputs[rows], targets[rows]) for rows in work.array("rows")],
        test=(inputs[:8], targets[:8]),
    )


class Learner:
    def __init__(self, work: Work, options: dict[str, Any]) -> None:
        size = work.size
        recipe = Recipe(
            size.epochs,
            size.batch_size,
            size.learning_rate,
            size.momentum,
            size.weight_decay,
            size.proximal_weight,
        )
        self._work = work
        self._learner = TorchLearner(partial(task_of, str(work.folder)), "work.py:task", size.clients, 0, recipe)
        start = to_state(size.task, work.layout, work.array("start"))
        layout = self._learner.layout
        self._start = frozen(layout.flatten({name: start[name].numpy() for name in layout.names}))

    def train(self, clients: int) -> None:
        self._trained(clients)

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        task, layout = self._work.size.task, self._work.layout
        states = [self._learner.layout.unflatten(np.array(result.weights)) for result in self._trained(clients)]
        tensors = [{name: torch.from_numpy(array) for name, array in state.items()} for state in states]
        return np.stack([from_state(task, layout, state) for state in tensors])

    def _trained(self, clients: int) -> list[TrainingResult]:
        jobs = [
            TrainingJob(JobId(0, 0, client), client, self._start, self._work.seeds[client]) for client in range(clients)
        ]
        return self._learner.train_many(jobs)

    def device_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._learner.close()
