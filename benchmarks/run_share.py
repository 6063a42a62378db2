"""Share of the engine's speed that a whole simulated run reaches, with decisions, aggregation, journal and evaluation.

    python benchmarks/run_share.py --task har                  # needs the task's data, as `async-hfl run` does
    python benchmarks/run_share.py --task mnist --epochs 60 --json
    python benchmarks/run_share.py --set transfer.encoding=float32 --against transfer.encoding=int8       # in turns

The run is that of `async-hfl run`, with the jobs of each call to the engine recorded. The same calls are then made to
the engine alone, one after another. Runs and replays alternate, after compilation. At the end of a run some jobs have
been trained whose results are not used, so a run has two rates: of trained and of used jobs. The benchmark waits for
the jobs that are still in training when a run ends, and the wait counts.

A run may continue while jobs are trained (`engine.prefetch`). "Training" is then the time that it spent on starting
calls and on waiting for them.

Two shares are printed: of wall time, and of the CPU time of all threads of this process. On a processor the latter
depends much less on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.build.task import EngineSharing
from async_hfl.assembly.runs.simulated_run import recorded_run_for
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import UserError
from async_hfl.core.learner import (
    Accelerated,
    AsyncLearner,
    Evaluation,
    Learner,
    PrefetchPolicy,
    Results,
    TrainingJob,
    TrainingResult,
)
from async_hfl.core.vectors import HostVector, Vector
from async_hfl.core.weights import Weights
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.learning.engine.trainer import Request, Trainer


@dataclass
class Watched:
    """An engine that records the calls made to it."""

    engine: Trainer
    calls: list[list[Request]] = field(default_factory=list)
    watching: bool = True

    def compile(self, max_samples: int, jobs: int) -> None:
        self.engine.compile(max_samples, jobs)

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        return self.engine.prefetch

    def begin(self, requests: Sequence[Request]) -> Results:
        if self.watching:
            self.calls.append(list(requests))
        return self.engine.begin(requests)


class Timed:
    """A learner whose calls are timed."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._begun: list[Results] = []
        self.training_s = self.evaluation_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    @property
    def prefetch(self) -> PrefetchPolicy | None:
        """Defined here because the check for an `AsyncLearner` does not call `__getattr__`."""
        return self._learner.prefetch if isinstance(self._learner, AsyncLearner) else None

    @property
    def on_accelerator(self) -> bool:
        return isinstance(self._learner, Accelerated) and self._learner.on_accelerator

    def to_device(self, vector: HostVector) -> Vector:
        return self._learner.to_device(vector) if isinstance(self._learner, Accelerated) else vector

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        began = time.perf_counter()
        results = self._learner.train_many(jobs)
        self.training_s += time.perf_counter() - began
        return results

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        assert isinstance(self._learner, AsyncLearner)
        began = time.perf_counter()
        results = self._learner.begin(jobs)
        self.training_s += time.perf_counter() - began

        def timed() -> list[TrainingResult]:
            began = time.perf_counter()
            self._begun.remove(timed)
            found = results()
            self.training_s += time.perf_counter() - began
            return found

        self._begun.append(timed)
        return timed

    def finish(self) -> None:
        """Wait for the calls that were not collected."""
        for results in list(self._begun):
            results()

    def evaluate(self, weights: Weights) -> Evaluation:
        began = time.perf_counter()
        found = self._learner.evaluate(weights)
        self.evaluation_s += time.perf_counter() - began
        return found

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        assert isinstance(self._learner, AsyncLearner)
        began = time.perf_counter()
        answer = self._learner.begin_evaluation(weights)
        self.evaluation_s += time.perf_counter() - began

        def timed() -> Evaluation:
            began = time.perf_counter()
            found = answer()
            self.evaluation_s += time.perf_counter() - began
            return found

        return timed


@dataclass
class Ran:
    """The measurements of one run."""

    seconds: float
    cpu_s: float
    training_s: float
    evaluation_s: float
    used: int
    evaluations: int
    metric: float
    digest: str


class Share:
    """Runs that share one engine, so that programs are compiled once."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._watched: Watched | None = None

    @property
    def devices(self) -> int:
        return self._settings.task.devices

    @property
    def watched(self) -> Watched:
        assert self._watched is not None, "the task has no engine"
        return self._watched

    def run(self) -> Ran:
        def given(key: Hashable, make: Callable[[], Trainer]) -> Trainer:
            if self._watched is None:
                self._watched = Watched(make())
            return self._watched

        world = build(self._settings, self._seed, sharing=EngineSharing(given)).world
        world.learner.compile()
        timed = Timed(world.learner)
        world = replace(world, learner=timed)
        with tempfile.TemporaryDirectory(prefix="async-hfl-share-") as folder:
            directory = RunDirectory.create(Path(folder) / "run", {"settings": {}})
            session = recorded_run_for(world, directory, self._settings)
            began, cpu = time.perf_counter(), time.process_time()
            try:
                result = session.run()
                timed.finish()
            finally:
                session.close()
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            evaluations = sum(1 for _ in directory.read_epochs())
        return Ran(
            seconds,
            cpu,
            timed.training_s,
            timed.evaluation_s,
            result["device_updates"],
            evaluations,
            result["final_metric"],
            result["digest"],
        )

    def replay(self) -> tuple[float, float]:
        """Return the wall time and the CPU time of the engine alone."""
        began, cpu = time.perf_counter(), time.process_time()
        for requests in self.watched.calls:
            self.watched.engine.begin(requests)()
        return time.perf_counter() - began, time.process_time() - cpu


class Measured:
    """One configuration, and what was measured of it."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.share = Share(settings, seed)
        self.first = self.share.run()  # compiles the programs, and its calls are recorded
        self.share.watched.watching = False
        self.share.replay()
        self.runs: list[Ran] = []
        self.replays: list[tuple[float, float]] = []

    def turn(self, *, run_first: bool) -> None:
        for part in ("run", "replay") if run_first else ("replay", "run"):
            if part == "run":
                again = self.share.run()
                if again.digest != self.first.digest:
                    sys.stderr.write("the run was not reproduced: its calls may differ from the recorded ones\n")
                self.runs.append(again)
            else:
                self.replays.append(self.share.replay())

    def summary(self) -> dict[str, Any]:
        return summarize(self.share, self.first, self.runs, self.replays)


def summarize(share: Share, first: Ran, runs: Sequence[Ran], replays: Sequence[tuple[float, float]]) -> dict[str, Any]:
    calls = share.watched.calls
    trained = sum(len(call) for call in calls)
    replay_s, replay_cpu_s = (statistics.median(part) for part in zip(*replays, strict=True))
    run_s, run_cpu_s, training_s, evaluation_s = (
        statistics.median(getattr(each, part) for each in runs)
        for part in ("seconds", "cpu_s", "training_s", "evaluation_s")
    )
    return {
        "calls": len(calls),
        "jobs_per_call": trained / len(calls),
        "largest_call": max(len(call) for call in calls),
        "trained": trained,
        "used": first.used,
        "evaluations": first.evaluations,
        "final_metric": first.metric,
        "run_s": run_s,
        "run_training_s": training_s,
        "run_evaluation_s": evaluation_s,
        "engine_s": replay_s,
        "engine_updates_per_s": trained / replay_s,
        "run_trained_per_s": trained / run_s,
        "run_used_per_s": first.used / run_s,
        "share": replay_s / run_s,
        "share_used": replay_s / run_s * first.used / trained,
        "engine_cpu_ms": 1000 * replay_cpu_s / trained,
        "run_cpu_ms": 1000 * run_cpu_s / trained,
        "share_cpu": replay_cpu_s / run_cpu_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--task", default="har")
    parser.add_argument("--method", default="async-hfl")
    parser.add_argument("--network")
    parser.add_argument("--preset")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40, help="epochs of the cloud; the run continues past its target")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of the run and of the bare engine")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="measure a second configuration as well, which has these settings in addition, in turns with the first",
    )
    arguments = parser.parse_args()
    try:
        measured = [Measured(settings, arguments.seed) for settings in configurations(arguments)]
    except UserError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    for turn in range(arguments.rounds):
        for one in measured:
            one.turn(run_first=turn % 2 == 0)
    for number, one in enumerate(measured):
        found = {
            "task": arguments.task,
            "method": arguments.method,
            "settings": [*arguments.overrides, *(arguments.against if number else [])],
            "devices": one.share.devices,
            "cloud_epochs": arguments.epochs,
            **one.summary(),
        }
        if arguments.json:
            sys.stdout.write(json.dumps(found) + "\n")
        else:
            report(found)
    return 0


def configurations(arguments: argparse.Namespace) -> list[Settings]:
    """Return the settings to measure, one or two."""
    epochs = (f"cloud.epochs={arguments.epochs}", f"cloud.epochs_after_target={arguments.epochs}")
    return [
        compose(
            task=arguments.task,
            method=arguments.method,
            network=arguments.network,
            preset=arguments.preset,
            seed=arguments.seed,
            overrides=[*epochs, *arguments.overrides, *more],
        ).settings
        for more in ([], arguments.against)[: 2 if arguments.against else 1]
    ]


def report(found: dict[str, Any]) -> None:
    """Print a summary."""
    print(
        f"{', '.join([found['task'], found['method'], *found['settings']])}: {found['devices']} devices, "
        f"{found['cloud_epochs']} cloud epochs"
    )
    print(
        f"  {found['trained']:,} jobs trained in {found['calls']:,} calls of {found['jobs_per_call']:.1f} "
        f"(most {found['largest_call']}), {found['used']:,} used, {found['evaluations']:,} evaluations"
    )
    print(f"  the engine alone   {found['engine_updates_per_s']:10,.1f} updates/s")
    print(f"  the run, trained   {found['run_trained_per_s']:10,.1f} updates/s   {found['share']:6.1%}")
    print(f"  the run, used      {found['run_used_per_s']:10,.1f} updates/s   {found['share_used']:6.1%}")
    rest = found["run_s"] - found["run_training_s"] - found["run_evaluation_s"]
    print(
        f"  the run took {found['run_s']:.2f} s: {found['run_training_s']:.2f} training, "
        f"{found['run_evaluation_s']:.2f} evaluating, {rest:.2f} the rest; the engine alone {found['engine_s']:.2f} s"
    )
    print(
        f"  CPU time per trained job: {found['run_cpu_ms']:.2f} ms in the run, {found['engine_cpu_ms']:.2f} ms by the "
        f"engine alone   {found['share_cpu']:6.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
