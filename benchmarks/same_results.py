"""Compares what two checkouts simulate: every record of every run, in order, to the bit.

    python benchmarks/same_results.py ../before . --task digits --seeds 1 2 3
    python benchmarks/same_results.py ../before . --task har --methods async-hfl semi-async

Runs that are already in --out are not made again. Kinds of records and messages that were renamed since the first
release are compared under their present names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

RENAMED = {
    "life": "lifecycle",
    "Assess": "EvaluateRequest",
    "Assessed": "EvaluateResult",
    "Granted": "LeaseGranted",
    "Noted": "SettledAck",
    "Released": "LeaseReleased",
    "Revoked": "LeasesRevoked",
}


def methods(root: Path) -> list[str]:
    return sorted(file.stem for file in (root / "src").rglob("methods/*.toml"))


def simulate(root: Path, python: str, folder: Path, task: str, method: str, seed: int, settings: list[str]) -> Path:
    run = folder / f"{task}-{method}-{seed}"
    if not (run / "summary.json").exists():
        command = [python, "-m", "async_hfl.cli", "run", "--task", task, "--method", method, "--seed", str(seed)]
        overrides = [word for setting in settings for word in ("--set", setting)]
        environment = {**os.environ, "PYTHONPATH": str(root.resolve() / "src")}
        subprocess.run(
            [*command, *overrides, "--out", str(run)], env=environment, check=True, stdout=subprocess.DEVNULL
        )
    return run


def records(run: Path) -> Iterator[Any]:
    """Records of a run, renamed kinds mapped; the header, which names the columns, is left out."""
    with (run / "events.jsonl").open() as lines:
        next(lines)
        for line in lines:
            kind, *fields = json.loads(line)
            if kind == "sent":
                fields[0] = [RENAMED.get(value, value) if isinstance(value, str) else value for value in fields[0]]
            yield [RENAMED.get(kind, kind), *fields]


def first_difference(before: Path, after: Path) -> str | None:
    for number, (old, new) in enumerate(zip_longest(records(before), records(after)), start=2):
        if old != new:
            return f"line {number}: {json.dumps(old)[:300]} became {json.dumps(new)[:300]}"
    if (before / "epochs.csv").read_text().split("\n")[1:] != (after / "epochs.csv").read_text().split("\n")[1:]:
        return "epochs.csv"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare what two checkouts simulate.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--methods", nargs="+", help="all, unless given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path("build/same_results"), help="where the runs are kept")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the dependencies installed")
    options = parser.parse_args()
    different = count = 0
    for method in options.methods or methods(options.after):
        for seed in options.seeds:
            runs = [
                simulate(root, options.python, options.out / name, options.task, method, seed, options.settings)
                for root, name in ((options.before, "before"), (options.after, "after"))
            ]
            difference = first_difference(*runs)
            count += 1
            different += difference is not None
            print(f"{options.task} {method} seed {seed}: {difference or 'the same'}", flush=True)
    print(f"{count} pairs of runs, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
