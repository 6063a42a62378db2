"""Light updates: time and bytes to a target with models in float16, int8 and int4, relative to float32.

    python benchmarks/light_updates.py run ROWS.jsonl --task digits --seeds 5 --workers 2
    python benchmarks/light_updates.py table ROWS.jsonl [MORE.jsonl ...]

`run` appends one row for each run as it ends, and leaves out runs that have a row. `table` writes the tables of
docs/results/light-updates.md. Runs of the same task, method and seed differ in nothing but the encoding. A level of the
metric is reached when the mean over a window of time passes it; the tables show the highest level that every run of the
task has reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, NamedTuple

from async_hfl import api
from async_hfl.experiments.comparison.outcome import read_outcome
from async_hfl.experiments.comparison.statistics import Ratio, average, paired_ratio
from async_hfl.journal.run_directory import RunDirectory

Row = dict[str, Any]
METHODS = ("semi-async", "async-random", "async-hfl", "async-hfl-plus")
PLAIN = ("float32", "float32")
ENCODINGS = (
    PLAIN,
    ("float16", "float32"),
    ("float16", "float16"),
    ("int8", "float32"),
    ("int8", "int8"),
    ("int4", "float32"),
    ("int4", "int4"),
)
"""Encodings up and down."""
LEVELS = {
    "digits": (0.85, 0.88, 0.9),
    "har": (0.9, 0.92, 0.93, 0.94, 0.95),
    "mnist": (0.85, 0.9, 0.92, 0.93, 0.94, 0.95),
}
OF_TASK = {
    "digits": (),
    # With the paper's rate (0.003), steps are so small that their number alone decides.
    "har": ("device.learning_rate=0.03", "cloud.epochs=300"),
    "mnist": ("engine.precision=tf32", "cloud.epochs=500"),
}
OF_METHOD = {"semi-async": ("gateway.period=50",)}


class Run(NamedTuple):
    task: str
    method: str
    up: str
    down: str
    seed: int


def simulate(run: Run) -> Row:
    """Simulate a run and return its row."""
    settings = (
        *OF_TASK[run.task],
        *OF_METHOD.get(run.method, ()),
        f"transfer.up={run.up}",
        f"transfer.down={run.down}",
    )
    with tempfile.TemporaryDirectory(prefix="async-hfl-light-") as folder:
        path = Path(folder) / "run"
        made = api.run(task=run.task, method=run.method, seed=run.seed, overrides=settings, out=path)
        summary, directory = made.summary, RunDirectory(path)
        reached = {}
        for level in LEVELS[run.task]:
            held = read_outcome(directory, level).held
            if held is not None:
                reached[str(level)] = [round(held.at, 3), int(held.bytes_total)]
    return {
        **run._asdict(),
        "reached": reached,
        "final": summary["final_metric"],
        "updates": summary["device_updates"],
        "bytes": summary["bytes_total"],
        "bound": round(summary["bandwidth_bound_share"], 4),
        "digest": summary["digest"],
    }


def read_rows(files: Iterable[Path]) -> dict[Run, Row]:
    rows = {}
    for file in files:
        for line in file.read_text().splitlines() if file.exists() else ():
            row = json.loads(line)
            rows[Run(*(row[field] for field in Run._fields))] = row
    return rows


def run_all(options: argparse.Namespace) -> None:
    wanted = [
        Run(options.task, method, up, down, seed)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for up, down in (pair.split(":") for pair in options.encodings.split(","))
        for method in options.methods.split(",")
    ]
    append_rows(options.rows, wanted, simulate, options.workers)


def append_rows(path: Path, wanted: Iterable[Run], simulate: Callable[[Run], Row], workers: int) -> None:
    """Append a row for each run that has none yet, as it ends."""
    known = read_rows([path])
    missing = [run for run in wanted if run not in known]
    with path.open("a") as file:
        for done, (run, row) in enumerate(_simulated(missing, simulate, workers), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            sys.stderr.write(f"{done} of {len(missing)}: {' '.join(map(str, run))}\n")


def _simulated(runs: Sequence[Run], simulate: Callable[[Run], Row], workers: int) -> Iterator[tuple[Run, Row]]:
    """Yield each run with its row as it ends: by processes with a core each, or here, so that runs share compiled
    programs."""
    if workers == 1:
        yield from ((run, simulate(run)) for run in runs)
        return
    context = get_context("spawn")
    cores = context.Queue()
    for number in range(workers):
        cores.put(sorted(os.sched_getaffinity(0))[number % len(os.sched_getaffinity(0))])
    with ProcessPoolExecutor(workers, context, initializer=_use_core, initargs=(cores,)) as executor:
        futures = {executor.submit(simulate, run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _use_core(cores: Queue[int]) -> None:
    os.sched_setaffinity(0, {cores.get()})


def table(options: argparse.Namespace) -> None:
    rows = read_rows(options.rows)
    for task in LEVELS:
        found = {run: row for run, row in rows.items() if run.task == task}
        if found:
            print("\n".join(_table(task, found)))


def _table(task: str, rows: Mapping[Run, Row]) -> Iterator[str]:
    level = highest_common_level(task, rows.values())
    yield f"\n### {task}, to {level or 'no level that all runs reached'}\n"
    yield "| method | up | down | seeds | faster | fewer bytes | fewer per update | final metric | bandwidth bound |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for method in METHODS:
        for up, down in ENCODINGS:
            mine = {run.seed: row for run, row in rows.items() if run[1:4] == (method, up, down)}
            base = {run.seed: row for run, row in rows.items() if run[1:4] == (method, *PLAIN)}
            if mine and base:
                yield " | ".join((f"| {method}", up, down, str(len(mine)), *_cells(mine, base, level))) + " |"


def highest_common_level(task: str, rows: Iterable[Row]) -> str:
    """Return the highest level of the task that all these runs reached, or an empty string."""
    rows = list(rows)
    levels = [level for level in LEVELS[task] if all(str(level) in row["reached"] for row in rows)]
    return str(max(levels)) if levels else ""


def time_and_bytes(base: Mapping[int, Row], other: Mapping[int, Row], level: str) -> Iterator[str]:
    """Yield the ratios of the times and of the bytes to a level, base over other, paired by seed."""

    def quantity(rows: Mapping[int, Row], place: int) -> dict[int, float]:
        return {seed: row["reached"][level][place] for seed, row in rows.items() if level in row["reached"]}

    for place in (0, 1):
        yield _shown(paired_ratio(quantity(base, place), quantity(other, place), min(len(base), len(other))))


def _cells(mine: Mapping[int, Row], base: Mapping[int, Row], level: str) -> Iterator[str]:
    yield from time_and_bytes(base, mine, level)
    per_update = [{seed: row["bytes"] / row["updates"] for seed, row in rows.items()} for rows in (base, mine)]
    yield _shown(paired_ratio(*per_update, len(mine)))
    final = average([row["final"] for row in mine.values()])
    assert final is not None
    yield f"{final.mean:.4f}" + (f" ± {final.deviation:.4f}" if final.deviation is not None else "")
    bound = average([row["bound"] for row in mine.values()])
    assert bound is not None
    yield f"{bound.mean:.0%}"


def _shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    interval = "" if ratio.low is None or ratio.low == ratio.high else f" ({ratio.low:.2f}-{ratio.high:.2f})"
    return f"{ratio.value:.2f}{interval}" + (f" of {ratio.pairs}" if ratio.pairs < ratio.seeds else "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="simulate the runs that have no row yet")
    running.add_argument("rows", type=Path)
    running.add_argument("--task", choices=tuple(LEVELS), default="digits")
    running.add_argument("--methods", default=",".join(METHODS))
    running.add_argument("--encodings", default=",".join(map(":".join, ENCODINGS)), help="UP:DOWN, ...")
    running.add_argument("--seeds", type=int, default=5)
    running.add_argument("--first-seed", type=int, default=1)
    running.add_argument("--workers", type=int, default=2, help="processes; 1: one after another in this process")
    running.set_defaults(command=run_all)
    tabling = commands.add_parser("table", help="print the tables of all rows")
    tabling.add_argument("rows", type=Path, nargs="+")
    tabling.set_defaults(command=table)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    main()
