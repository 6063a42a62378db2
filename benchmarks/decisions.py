"""Time and proven gap of the two decisions by problem size, compared with other solvers if they are installed.

    python benchmarks/decisions.py              everything, rivals 10 s each (about ten minutes)
    python benchmarks/decisions.py --quick      up to 10,000 devices, rivals up to 184 with half a second each
    python benchmarks/decisions.py --json       one line of JSON, last on stdout

Selection N = 30 ... 100,000; association N x G = 30 x 3 ... 100,000 x 1,000 (beyond 1,000 devices at most ten links
each). Our solver is the policy that runs use, on one core, best of a few repeats. All times are CPU seconds of that
core, so that other work on the machine hardly matters (the limit of the rivals is wall-clock time). The gap is
(bound - objective) / |bound| with the bound that the same solver proved; `short` is the distance of an objective from
the best one found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.solvers.highs import load_solver
from async_hfl.decisions.solvers.knapsack import knapsack
from decision_instances import association, selection

Row = dict[str, Any]
RIVALS = {"highs": "HiGHS", "ortools": "OR-tools CP-SAT", "gurobi": "Gurobi"}
RIVALS_UP_TO, QUICK_RIVALS_UP_TO = 10_000, 184
"""The most devices for which rivals are run; beyond that they find nothing in reasonable time."""
SELECTIONS = (30, 60, 184, 1_000, 10_000, 100_000)
ASSOCIATIONS = (
    ("nycmesh", 30, 3),
    ("nycmesh", 60, 6),
    ("nycmesh", 184, 6),
    ("nycmesh-pareto", 184, 6),
    ("uniform", 184, 6),
    ("uniform", 1_000, 20),
    ("uniform-pareto", 1_000, 20),
    ("near", 1_000, 20),
    ("uniform", 10_000, 100),
    ("uniform-pareto", 10_000, 100),
    ("near", 10_000, 100),
    ("uniform", 100_000, 1_000),
    ("uniform-pareto", 100_000, 1_000),
    ("near", 100_000, 1_000),
)
QUICK_UP_TO = 10_000


def timed(solve: Callable[[], Any], quick: bool) -> tuple[Any, float]:
    """Return the answer and the shortest of several times."""
    started = time.process_time()
    answer = solve()
    first = time.process_time() - started
    repeats = 0 if first > 2.0 else 2 if first > 0.1 or quick else 5
    best = first
    for _ in range(repeats):
        started = time.process_time()
        answer = solve()
        best = min(best, time.process_time() - started)
    return answer, best


def ours_selection(kind: str, count: int, seed: int, quick: bool) -> Row:
    values, rates, capacity = selection(kind, count, seed)
    packing, seconds = timed(lambda: knapsack(values, rates, capacity), quick)
    return {"objective": packing.objective, "bound": packing.bound, "seconds": seconds}


def ours_association(kind: str, devices: int, gateways: int, seed: int, quick: bool) -> Row:
    problem = association(kind, devices, gateways, seed)
    answer, seconds = timed(lambda: BalancedUtility().solve(problem), quick)
    return {"objective": answer.objective, "bound": answer.bound, "seconds": seconds}


def rival(name: str, *arguments: object, limit: float) -> Row:
    """Run a rival; one that exceeds its limit is killed and counts as having found nothing."""
    script = Path(__file__).with_name("decision_rivals.py")
    call = [sys.executable, str(script), name, *map(str, arguments), str(limit)]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=4 * limit + 30, check=True)
    except subprocess.TimeoutExpired:
        return {"missing": f"ended after {4 * limit + 30:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"missing": error.stderr.strip().splitlines()[-1][:80]}
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer


def compared(what: str, arguments: tuple[object, ...], ours: Row, limit: float | None) -> list[Row]:
    """Return one row per solver; without a limit, rivals are left out."""
    answers = {"ours": ours}
    if limit is not None:
        answers |= {title: rival(name, what, *arguments, limit=limit) for name, title in RIVALS.items()}
    found = [answer["objective"] for answer in answers.values() if answer.get("objective") is not None]
    rows = []
    for solver, answer in answers.items():
        objective, bound = answer.get("objective"), answer.get("bound")
        row = {"decision": what, "problem": " ".join(map(str, arguments)), "solver": solver, **answer}
        if objective is not None and bound is not None:
            row["gap"] = (bound - objective) / max(abs(bound), 1e-9)
            row["short"] = (max(found) - objective) / max(abs(max(found)), 1e-9)
        rows.append(row)
    return rows


def shown(row: Row) -> str:
    cells = [row["decision"], row["problem"], row["solver"]]
    if "missing" in row:
        return " | ".join([*cells, row["missing"], "", ""])
    seconds = row["seconds"]
    cells.append(f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.1f} s")
    cells += [f"{100 * row[key]:.2g} %" if row.get(key) is not None else "none found" for key in ("gap", "short")]
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="time and proven gap of selection and association over their size")
    parser.add_argument("--quick", action="store_true", help="up to 10,000 devices, rivals up to 184")
    parser.add_argument("--json", action="store_true", help="print one line of JSON, last on stdout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rival-seconds", type=float, metavar="S", help="limit of each rival (10; with --quick 0.5)")
    options = parser.parse_args()
    seconds = options.rival_seconds or (0.5 if options.quick else 10.0)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, and the rivals inherit it
    load_solver()
    ours_association("uniform", 30, 3, 0, True)
    rows: list[Row] = []

    def add(new: list[Row]) -> None:
        rows.extend(new)
        if not options.json:
            print(*(f"| {shown(row)} |" for row in new), sep="\n", flush=True)

    if not options.json:
        print("| decision | problem | solver | time | gap | short |\n|---|---|---|---|---|---|")

    def limit(size: int) -> float | None:
        return seconds if size <= (QUICK_RIVALS_UP_TO if options.quick else RIVALS_UP_TO) else None

    for count in SELECTIONS:
        for kind in ("learnt", "equal"):
            if not options.quick or count <= QUICK_UP_TO:
                ours = ours_selection(kind, count, options.seed, options.quick)
                add(compared("selection", (kind, count, options.seed), ours, limit(count)))
    for kind, devices, gateways in ASSOCIATIONS:
        if not options.quick or devices <= QUICK_UP_TO:
            ours = ours_association(kind, devices, gateways, options.seed, options.quick)
            add(compared("association", (kind, devices, gateways, options.seed), ours, limit(devices)))
    if options.json:
        print(json.dumps({"python": platform.python_version(), "rows": rows}))


if __name__ == "__main__":
    main()
