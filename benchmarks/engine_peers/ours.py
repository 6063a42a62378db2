"""The library's engine, called as a run calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.weights import frozen
from async_hfl.learning.datasets.samples import Dataset, Samples, Scaling
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.engine import Engine
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, Request
from async_hfl.learning.evaluation.objectives import classification, regression
from async_hfl.learning.tasks.catalogue import TASKS
from engine_peers.prepare import OPTIONS
from engine_peers.protocol import Channel, serve
from engine_peers.work import Work


def run(channel: Channel, options: dict[str, Any]) -> None:
    serve(channel, Ours, jax=jax.__version__, devices=jax.local_device_count())


class Ours:
    def __init__(self, work: Work, options: dict[str, Any]) -> None:
        size = work.size
        samples = stored_samples(work)
        model = TASKS[size.task].model(Dataset(size.task, samples, samples, work.classes), OPTIONS)
        objective = classification(work.classes) if work.classes else regression(samples.targets.shape[1])
        recipe = Recipe(
            size.epochs, size.batch_size, size.learning_rate, size.momentum, size.weight_decay, size.proximal_weight
        )
        memory = {"memory": options["memory"]} if options.get("memory") else {}
        chosen = EngineOptions(precision=options.get("precision", "float32"), **memory)
        self._engine = Engine(model, objective, samples, recipe.static, chosen)
        start = frozen(work.array("start"))
        self._requests = [
            Request(start, rows, seed, recipe.coefficients, size.samples)
            for rows, seed in zip(work.array("rows"), work.seeds, strict=True)
        ]

    def train(self, clients: int) -> None:
        self._engine.begin(self._requests[:clients])()

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        return np.stack([result.weights for result in self._engine.begin(self._requests[:clients])()])

    def device_bytes(self) -> int | None:
        devices = jax.local_devices()
        if devices[0].platform == "cpu":
            return None
        return sum(device.memory_stats()["peak_bytes_in_use"] for device in devices)

    def close(self) -> None:
        del self._engine, self._requests
        jax.clear_caches()


def stored_samples(work: Work) -> Samples:
    """Return the samples of the workload as the library stores them: images as bytes, windows as one series."""
    stored = {path.stem for path in work.folder.glob("stored_*.npy")}
    starts = work.array("stored_starts") if "stored_starts" in stored else None
    scaling = Scaling(*work.array("stored_scaling")) if "stored_scaling" in stored else None
    return Samples(work.array("stored_inputs"), work.array("targets"), starts, work.window, scaling)
