"""The simulator's speed without training, in device updates per second, and its memory (`async-hfl bench events`).

The runs have the null task, random policies and a journal, on the `uniform` network with 100 devices per gateway, three
links per device and bandwidth for half the demand. The clock starts when the network is built, and stops when the
journal is on disk.

Memory per device is measured in a separate, shorter run, since tracing is slow. It is the peak of the memory allocated
by Python and numpy, including a checkpoint with all jobs in flight, minus that of a run of 100 devices (its buffers),
divided by the number of further devices. The growth of the peak resident size in the timed run is reported as well; it
includes buffers and the allocator's overhead. Each measurement has its own process.
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
"""Updates per device in the run whose memory is traced: enough to have all jobs in flight."""


class Size(NamedTuple):
    devices: int
    gateways: int
    updates_per_device: int


FULL = (Size(1_000, 10, 100), Size(10_000, 100, 24), Size(100_000, 1_000, 12))
QUICK = (Size(1_000, 10, 40), Size(10_000, 100, 12))
_SMALL = Size(100, 1, 20)


def bench_events(sizes: Sequence[Size], on_row: Callable[[dict[str, Any]], None] | None = None) -> list[dict[str, Any]]:
    """Measure each size; `on_row` is called with each result as soon as it is known."""
    rows = []
    for size in sizes:
        measured = {**_in_a_process(_speed, size), **_in_a_process(_memory, size)}
        row = {"devices": size.devices, "gateways": size.gateways, **measured}
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


def _in_a_process(measure: Callable[[Size], dict[str, float]], size: Size) -> dict[str, float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, size).result()


def _speed(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="async-hfl-bench-") as folder:
        _recorded_run(_SMALL, Path(folder) / "small").run()  # loads the libraries
        before = _peak_resident_size()
        result = _recorded_run(size, Path(folder) / "run").run()
        assert result is not None  # nothing pauses the run
    return {
        "updates_per_s": result["device_updates"] / result["wall_s"],
        "updates": result["device_updates"],
        "wall_s": result["wall_s"],
        "resident_bytes_per_device": (_peak_resident_size() - before) / size.devices,
    }


def _memory(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="async-hfl-bench-") as folder:
        _recorded_run(_SMALL, Path(folder) / "first").run()  # loads the libraries
        small = _peak_allocation(_SMALL, Path(folder) / "small")
        whole = _peak_allocation(size, Path(folder) / "run")
    return {"bytes_per_device": (whole - small) / (size.devices - _SMALL.devices)}


def _peak_allocation(size: Size, path: Path) -> int:
    """Return the peak memory in bytes of a run that writes a checkpoint at half-time."""
    tracemalloc.start()
    recorded = _recorded_run(size._replace(updates_per_device=_TRACED_UPDATES), path)
    halfway = size.devices * _TRACED_UPDATES // _Z // 2

    def at_half_time(progress: Progress) -> None:
        if progress.epoch >= halfway and not recorded.directory.checkpoint.exists():
            recorded.request_checkpoint()

    recorded.run(at_half_time)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _recorded_run(size: Size, path: Path) -> RecordedRun:
    overrides = [
        f"task.devices={size.devices}",
        f"network.gateways={size.gateways}",
        f"cloud.epochs={size.devices * size.updates_per_device // _Z}",
        f"gateway.epochs={_Z}",
    ]
    settings = compose(task="null", method="async-random", network="uniform", seed=1, overrides=overrides).settings
    directory = RunDirectory.create(path, {"settings": {}})
    return RecordedRun(build(settings, 1).world, directory)


def _peak_resident_size() -> int:
    """Return the peak resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
