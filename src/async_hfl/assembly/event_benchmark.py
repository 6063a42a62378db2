"""How many device updates a second the simulator carries when training costs nothing.

The null task, random policies, journal on, on the `uniform` network: a hundred devices a gateway, three links a
device, bandwidth at half of the demand. The clock starts when the network is built and stops when the journal is on
disk. Each size runs in a process of its own after a small run has paid for the libraries, so that the growth of its
largest resident size is what the devices take, checkpoints and training batches included.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from async_hfl.assembly.build import build
from async_hfl.assembly.loading import compose
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.session import Session

_Z = 20


class Size(NamedTuple):
    devices: int
    gateways: int
    updates_per_device: int


FULL = (Size(1_000, 10, 100), Size(10_000, 100, 20), Size(100_000, 1_000, 6))
QUICK = (Size(1_000, 10, 50), Size(10_000, 100, 10))


def bench_events(sizes: Sequence[Size], on_row: Callable[[dict[str, Any]], None] | None = None) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            row = pool.submit(_measure, size).result()
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def print_row(row: dict[str, Any]) -> None:
    sys.stdout.write(
        f"{row['devices']:>8,} devices  {row['gateways']:>6,} gateways  {row['updates_per_s']:>9,.0f} updates/s  "
        f"{row['bytes_per_device']:>6,.0f} bytes a device\n"
    )
    sys.stdout.flush()


def _measure(size: Size) -> dict[str, Any]:
    _simulate(Size(100, 1, 20))
    gc.collect()
    before = _memory()
    result = _simulate(size)
    return {
        "devices": size.devices,
        "gateways": size.gateways,
        "updates_per_s": result["device_updates"] / result["wall_s"],
        "bytes_per_device": (_memory() - before) / size.devices,
        "updates": result["device_updates"],
        "wall_s": result["wall_s"],
    }


def _simulate(size: Size) -> dict[str, Any]:
    settings = compose(
        task="null",
        method="async-random",
        network="uniform",
        seed=1,
        overrides=[
            f"task.devices={size.devices}",
            f"network.gateways={size.gateways}",
            f"cloud.epochs={size.devices * size.updates_per_device // _Z}",
            f"gateway.epochs={_Z}",
        ],
    ).settings
    built = build(settings, 1)
    with tempfile.TemporaryDirectory(prefix="async-hfl-bench-") as folder:
        directory = RunDirectory.create(Path(folder) / "run", {"settings": {}})
        return Session(built.world, directory, checkpoint_epochs=settings.simulation.checkpoint_epochs).run()


def _memory() -> int:
    """Largest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
