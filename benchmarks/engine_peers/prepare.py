"""Preparation of the workload: real samples if they are on this machine, else synthetic ones of the same shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset, Samples, Scaling
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.tasks.catalogue import TASKS, TaskOptions
from engine_peers.protocol import Channel
from engine_peers.sizes import Size
from engine_peers.work import Layout, Work

OPTIONS = TaskOptions(target=0.0, partition="")
_SYNTHETIC_ROWS = {"har": 9_270, "mnist": 60_000, "cifar10": 50_000, "shakespeare": 419_853, "hpwren": 292_838}


def run(channel: Channel, options: dict[str, Any]) -> None:
    from async_hfl.learning.engine.backend import jax
    from engine_peers.jax_peak import matmul_peak

    first = jax.local_devices()[0]
    channel.send(
        ready=True, platform=first.platform, device=getattr(first, "device_kind", ""), devices=jax.local_device_count()
    )
    while (request := channel.receive()) is not None:
        if request["do"] == "peak":
            channel.send(**matmul_peak(request["seconds"]))
        else:
            work = prepare(Size(**request["size"]), request["data"], Path(request["folder"]))
            channel.send(data=work.data, parameters=int(np.load(work.folder / "start.npy", mmap_mode="r").size))


def prepare(size: Size, data: str, folder: Path) -> Work:
    """Write the workload to a folder. `data`: real, synthetic or auto."""
    origin = "synthetic"
    dataset = None
    if data != "synthetic" or size.task == "digits":  # the library includes them
        try:
            dataset = TASKS[size.task].load(OPTIONS.interval)
            origin = "real"
        except DataError:
            if data == "real":
                raise
    if dataset is None:
        dataset = _synthetic(size)
    random = stream(0, "benchmark", "rows", size.name)
    rows = np.stack([random.choice(len(dataset.train), size.samples, replace=False) for _ in range(size.clients)])
    used, places = np.unique(rows, return_inverse=True)
    samples = dataset.train.rows(used)
    rows = places.reshape(rows.shape).astype(np.int32)
    model = TASKS[size.task].model(dataset, OPTIONS)
    seeds = [int(seed) for seed in random.integers(0, 2**63, size.clients)]
    work = Work(
        folder,
        size,
        Layout(list(model.layout.names), [list(shape) for shape in model.layout.shapes], len(model.trained)),
        dataset.classes,
        origin,
        samples.window,
        seeds,
    )
    stored = {"stored_inputs": samples.inputs}
    if samples.starts is not None:
        stored["stored_starts"] = samples.starts
    if samples.scaling is not None:
        stored["stored_scaling"] = np.stack([samples.scaling.offset, samples.scaling.factor])
    work.save(
        inputs=samples.read(np.arange(len(samples))),
        targets=samples.targets,
        rows=rows,
        orders=_orders(size, seeds),
        start=model.init(stream(0, "benchmark", "weights", size.name)),
        **stored,
    )
    return work


def _orders(size: Size, seeds: list[int]) -> np.ndarray[Any, Any]:
    """Return the orders of the library's engine (clients, epochs, samples)."""
    shape = StaticHyperparameters(size.epochs, size.batch_size, gradient=False)
    places = np.arange(size.samples, dtype=np.int32)
    orders = BatchOrders([places] * size.clients, np.array(seeds, dtype=np.uint64), shape).draw()
    return orders.reshape(size.clients, size.epochs, -1)[:, :, : size.samples]


def _synthetic(size: Size) -> Dataset:
    """Return as many rows as the real set has, or as all clients together can use."""
    random = stream(0, "benchmark", "synthetic", size.task)
    rows = min(_SYNTHETIC_ROWS[size.task], size.clients * size.samples)

    def labels(classes: int) -> np.ndarray[Any, Any]:
        return random.integers(0, classes, rows).astype(np.int32)

    def images(shape: tuple[int, ...], mean: float, deviation: float) -> Samples:
        pixels = random.integers(0, 256, (rows, *shape), dtype=np.uint8)
        channels = shape[-1]
        scaling = Scaling(
            np.full(channels, 255 * mean, np.float32), np.full(channels, 1 / (255 * deviation), np.float32)
        )
        return Samples(pixels, labels(10), scaling=scaling)

    if size.task == "har":
        train, classes = Samples(random.standard_normal((rows, 561), dtype=np.float32), labels(6)), 6
    elif size.task == "mnist":
        train, classes = images((28, 28, 1), 0.5, 0.29), 10
    elif size.task == "cifar10":
        train, classes = images((32, 32, 3), 0.5, 0.29), 10
    elif size.task == "shakespeare":
        text = random.integers(0, 80, rows + 80, dtype=np.uint8)
        starts = np.arange(rows, dtype=np.int32)
        train, classes = Samples(text, text[starts + 80].astype(np.int32), starts, 80), 80
    else:
        series = random.standard_normal((rows + 48, 12), dtype=np.float32)
        starts = np.arange(rows, dtype=np.int32)
        train, classes = Samples(series, series[starts + 48], starts, 48), 0
    return Dataset(size.task, train, train, classes)
