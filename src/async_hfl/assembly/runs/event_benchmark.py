"""How many device updates a second the simulator carries when training costs nothing, and what a device takes.

The null task, random policies, journal on, on the `uniform` network: a hundred devices a gateway, three links a
device, bandwidth at half of the demand. The clock starts when the network is built and stops when the journal is on
disk.

Memory is measured in a shorter run of its own, since tracing slows a run down: the most that Python and numpy had
allocated at any moment, a checkpoint written while everything is in flight included, less what a run of 100 devices
needs (its buffers), for each further device. The growth of the largest resident size in the timed run stands beside it;
it has the buffers and the allocator's slack on top. Each measurement has a process of its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.loading import compose
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress, RecordedRun

_Z = 20
_TRACED_UPDATES = 2
"""A device, in the run whose memory is traced: by then as many are in flight as ever will be."""


class Size(NamedTuple):
    devices: int
    gateways: int
    updates_per_device: int


FULL = (Size(1_000, 10, 100), Size(10_000, 100, 24), Size(100_000, 1_000, 12))
QUICK = (Size(1_000, 10, 40), Size(10_000, 100, 12))
_SMALL = Size(100, 1, 20)


def bench_events(sizes: Sequence[Size], on_row: Callable[[dict[str, Any]], None] | None = None) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        row = {"devices": size.devices, "gateways": size.gateways, **_alone(_time, size), **_alone(_weigh, size)}
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def print_row(row: dict[str, Any]) -> None:
    sys.stdout.write(
        f"{row['devices']:>8,} devices  {row['gateways']:>6,} gateways  {row['updates_per_s']:>9,.0f} updates/s  "
        f"{row['bytes_per_device']:>6,.0f} bytes a device  ({row['resident_bytes_per_device']:,.0f} resident)\n"
    )
    sys.stdout.flush()


def _alone(measure: Callable[[Size], dict[str, float]], size: Size) -> dict[str, float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, size).result()


def _time(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="async-hfl-bench-") as folder:
        _session(_SMALL, Path(folder) / "small").run()  # pays for the libraries
        before = _largest_resident()
        result = _session(size, Path(folder) / "run").run()
        assert result is not None  # nobody pauses it
    return {
        "updates_per_s": result["device_updates"] / result["wall_s"],
        "updates": result["device_updates"],
        "wall_s": result["wall_s"],
        "resident_bytes_per_device": (_largest_resident() - before) / size.devices,
    }


def _weigh(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="async-hfl-bench-") as folder:
        _session(_SMALL, Path(folder) / "first").run()  # pays for the libraries
        small = _most_allocated(_SMALL, Path(folder) / "small")
        whole = _most_allocated(size, Path(folder) / "run")
    return {"bytes_per_device": (whole - small) / (size.devices - _SMALL.devices)}


def _most_allocated(size: Size, path: Path) -> int:
    """In bytes, at any moment of a run that saves a checkpoint at half-time."""
    tracemalloc.start()
    session = _session(size._replace(updates_per_device=_TRACED_UPDATES), path)
    halfway = size.devices * _TRACED_UPDATES // _Z // 2

    def at_half_time(progress: Progress) -> None:
        if progress.epoch == halfway:
            session.request_checkpoint()

    session.run(at_half_time)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def _session(size: Size, path: Path) -> RecordedRun:
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
    directory = RunDirectory.create(path, {"settings": {}})
    return RecordedRun(build(settings, 1).world, directory)


def _largest_resident() -> int:
    """In bytes, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
