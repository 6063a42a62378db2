"""Time and bytes to the target of every method on handwritten digits, paired by seed with async-random.

    python benchmarks/methods.py                        all methods, seeds 1 to 5, as a table in Markdown
    python benchmarks/methods.py --seeds 1 2 --methods async-hfl semi-async --json
    python benchmarks/methods.py --set association.policy=even --set association.max_latency_ratio=2.0

Times are virtual, so the speed of the machine does not matter; results repeat to the bit on one kind of machine.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import async_hfl
from async_hfl.assembly.settings.loading import available

BASE = "async-random"
PERIODS = (50, 150)
"""Periods of semi-async, besides its default of 100 s."""


def rows_of(methods: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Return the method and the settings of each row."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for method in methods:
        rows[method] = (method, [])
        if method == "semi-async":
            rows |= {f"semi-async, P = {p} s": (method, [f"gateway.period={p}"]) for p in PERIODS}
    return rows


def one_run(method: str, overrides: list[str], seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = async_hfl.run(task="digits", method=method, seed=seed, overrides=overrides, out=Path(folder) / "run")
        kept = ("time_to_target_s", "bytes_to_target", "models_uplink_bytes_to_target", "final_metric", "cloud_epochs")
        return {name: run.summary[name] for name in kept}


def ratio(times: list[float | None], base: list[float | None]) -> tuple[float, float, int] | None:
    """Return the geometric mean of base / time over common seeds, the standard error of its logarithm, the count."""
    logs = [math.log(b / t) for b, t in zip(base, times, strict=True) if b is not None and t is not None]
    if not logs:
        return None
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return math.exp(mean(logs)), error, len(logs)


def markdown(results: dict[str, list[dict[str, Any]]], seeds: list[int]) -> str:
    lines = [
        f"| method | minutes to 90 %, seeds {', '.join(map(str, seeds))} | speed-up | s.e. (log) | MB, all bytes | "
        "MB, models uplink |",
        "|---|---|---|---|---|---|",
    ]
    base = [run["time_to_target_s"] for run in results[BASE]]
    for name, runs in results.items():
        found = ratio([run["time_to_target_s"] for run in runs], base)
        speed = "- | -" if found is None else f"{found[0]:.2f} | {found[1]:.2f}"
        if found is not None and found[2] < len(seeds):
            speed = speed.replace(" |", f" ({found[2]} seeds) |", 1)
        cells = [
            " / ".join(_number(run["time_to_target_s"], 60) for run in runs),
            "1 | -" if name == BASE else speed,
            " / ".join(_number(run["bytes_to_target"], 1e6) for run in runs),
            " / ".join(_number(run["models_uplink_bytes_to_target"], 1e6) for run in runs),
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |" if "," not in name else f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None, unit: float) -> str:
    return "never" if value is None else f"{value / unit:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--methods", nargs="+", default=sorted(available("method")))
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="SECTION.KEY=VALUE")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print only one JSON object on stdout")
    given = parser.parse_args()
    rows = rows_of(list(dict.fromkeys([BASE, *given.methods])))
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        asked = {
            name: [pool.submit(one_run, method, [*own, *given.overrides], seed) for seed in given.seeds]
            for name, (method, own) in rows.items()
        }
        results = {name: [future.result() for future in futures] for name, futures in asked.items()}
    print(json.dumps(results) if given.json else markdown(results, given.seeds))


if __name__ == "__main__":
    main()
