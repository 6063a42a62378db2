"""Robust and private aggregation: accuracy under sign-flipping devices, and accuracy against epsilon.

    python benchmarks/robust.py attack ROWS.jsonl --task digits --seeds 3
    python benchmarks/robust.py privacy ROWS.jsonl --task digits --seeds 3 --clip 1 --noise 0 0.5 1 2
    python benchmarks/robust.py table ROWS.jsonl

Every run lasts the same virtual time and is not ended by its target. The accuracy is the mean of its last ten
evaluations. A sign-flipping device trains as it should and returns w_sent - F (w_i - w_sent): its result is turned
round where the simulation trains it, before it is encoded; the share of such devices is drawn by seed among all. Rows
that are there already are not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from async_hfl.assembly.runs.simulated_run import begin, simulate
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.learner import Learner, Results, TrainingJob, TrainingResult
from async_hfl.core.randomness import stream
from async_hfl.core.weights import frozen
from async_hfl.journal.run_directory import RunDirectory

RULES = ("none", "clip", "trimmed-mean", "median")
SHARES = (0.0, 0.1, 0.3)
_EVALUATIONS = 10


class Run(NamedTuple):
    task: str
    method: str
    seconds: float
    """Virtual time."""
    rule: str
    flipped: float
    """Share of the devices that flip the sign."""
    factor: float
    clip: float
    """0: none."""
    noise: float
    seed: int


class Flipping:
    """A learner some of whose devices return the opposite of what they have learnt."""

    def __init__(self, learner: Learner, flipped: Iterable[int], factor: float) -> None:
        self._learner, self._flipped, self._factor = learner, frozenset(flipped), np.float32(factor)
        self.turned = 0
        """Number of results turned round."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        return self._turned(jobs, self._learner.train_many(jobs))

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        results = self._learner.begin(jobs)
        return lambda: self._turned(jobs, results())

    def _turned(self, jobs: Sequence[TrainingJob], results: Sequence[TrainingResult]) -> list[TrainingResult]:
        return [self._returned(job, result) for job, result in zip(jobs, results, strict=True)]

    def _returned(self, job: TrainingJob, result: TrainingResult) -> TrainingResult:
        if job.device not in self._flipped:
            return result
        self.turned += 1
        sent, new = np.asarray(job.weights), np.asarray(result.weights)
        return replace(result, weights=frozen(sent - self._factor * (new - sent)))


def flipped_devices(run: Run, devices: int) -> list[int]:
    return stream(run.seed, "attack").permutation(devices)[: round(run.flipped * devices)].tolist()


def row_of(run: Run) -> dict[str, Any]:
    """Simulate a run, and return its row."""
    overrides = ["task.target=1.0", f"cloud.time_limit={run.seconds}", "cloud.epochs=1000000"]
    overrides += [f"gateway.robust={run.rule}", "engine.vectors=host"]
    if run.clip:
        overrides += [f"privacy.clip={run.clip}", f"privacy.noise={run.noise}"]
    composed = compose(task=run.task, method=run.method, seed=run.seed, overrides=overrides)
    with tempfile.TemporaryDirectory() as folder:
        prepared = begin(composed, out=Path(folder) / "run")
        world = prepared.world
        assert world is not None
        learner = Flipping(world.learner, flipped_devices(run, len(world.devices)), run.factor)
        simulate(replace(prepared, world=replace(world, learner=learner)))
        return {**run._asdict(), **_results(prepared.directory), "turned": learner.turned}


def _results(directory: RunDirectory) -> dict[str, Any]:
    summary = directory.read_summary()
    assert summary is not None
    metrics = [float(line.split(",")[3]) for line in directory.epochs.read_text().splitlines()[1:]]
    kept = ("device_updates", "cloud_epochs", "bytes_total", "wall_s")
    found = {"accuracy": statistics.mean(metrics[-_EVALUATIONS:]), **{key: summary[key] for key in kept}}
    return found | {"privacy": summary.get("privacy"), "refused": summary["job_ends"].get("refused", 0)}


def read_rows(file: Path) -> dict[Run, dict[str, Any]]:
    lines = file.read_text().splitlines() if file.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {Run(*(row[name] for name in Run._fields)): row for row in rows}


def append_rows(file: Path, wanted: Sequence[Run], workers: int) -> None:
    """Make the rows that are missing."""
    known = read_rows(file)
    missing = [run for run in wanted if run not in known]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, file.open("a") as rows:
        for row in pool.map(row_of, missing):
            rows.write(json.dumps(row) + "\n")
            rows.flush()


def attack(options: argparse.Namespace) -> None:
    wanted = [
        Run(
            options.task, options.method, options.seconds, rule, share, options.factor if share else 0.0, 0.0, 0.0, seed
        )
        for seed in range(1, options.seeds + 1)
        for share in SHARES
        for rule in RULES
    ]
    append_rows(options.rows, wanted, options.workers)


def privacy(options: argparse.Namespace) -> None:
    wanted = [
        Run(options.task, options.method, options.seconds, "none", 0.0, 0.0, clip, noise, seed)
        for seed in range(1, options.seeds + 1)
        for clip in options.clip
        for noise in options.noise
    ]
    append_rows(options.rows, wanted, options.workers)


def table(options: argparse.Namespace) -> None:
    rows = read_rows(options.rows)
    groups: dict[Run, list[dict[str, Any]]] = {}
    for run, row in rows.items():
        groups.setdefault(run._replace(seed=0), []).append(row)
    attacks = {run: found for run, found in groups.items() if not run.clip}
    print("| task | method | flipped | factor | rule | accuracy by seed | mean | updates | wall, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run, found in sorted(attacks.items(), key=lambda pair: (pair[0][:2], pair[0][4:6], RULES.index(pair[0].rule))):
        head = f"| {run.task} | {run.method} | {run.flipped:.0%} | {run.factor:g} | {run.rule}"
        print(f"{head} | {_accuracies(found)} | {_mean(found, 'device_updates'):.0f} | {_mean(found, 'wall_s'):.0f} |")
    print(
        "\n| task | method | seconds | clip | noise | epsilon (device of most updates) | its updates | median epsilon "
        "| accuracy by seed | mean |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for run, found in sorted((run, found) for run, found in groups.items() if run.clip):
        spent = [row["privacy"] for row in found]
        cells = ("-", "-", "-")
        if all(spent):
            epsilon, middle = (max(one[key] for one in spent) for key in ("epsilon", "median_epsilon"))
            cells = (f"{epsilon:.3g}", str(max(one["participations"] for one in spent)), f"{middle:.3g}")
        head = f"| {run.task} | {run.method} | {run.seconds:g} | {run.clip:g} | {run.noise:g}"
        print(" | ".join((head, *cells, _accuracies(found))) + " |")


def _accuracies(rows: Sequence[dict[str, Any]]) -> str:
    values = [row["accuracy"] for row in sorted(rows, key=lambda row: row["seed"])]
    return " / ".join(f"{value:.3f}" for value in values) + f" | {statistics.mean(values):.3f}"


def _mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.mean(row[key] for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, command in (("attack", attack), ("privacy", privacy), ("table", table)):
        part = commands.add_parser(name)
        part.add_argument("rows", type=Path)
        part.set_defaults(command=command)
        if command is table:
            continue
        part.add_argument("--task", default="digits")
        part.add_argument("--method", default="async-hfl-plus")
        part.add_argument("--seconds", type=float, default=3600.0)
        part.add_argument("--seeds", type=int, default=3)
        part.add_argument("--workers", type=int, default=1)
        if command is attack:
            part.add_argument("--factor", type=float, default=1.0)
        else:
            part.add_argument("--clip", type=float, nargs="+", default=[1.0])
            part.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0])
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    sys.exit(main())
