"""The work of an experiment: who makes its runs, where, for how long, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from async_hfl import api
from async_hfl.assembly.user_code.objects import check_no_objects
from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.comparison import check_reference
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.results.keeper import Keeper
from async_hfl.experiments.results.rows_file import read_rows
from async_hfl.experiments.results.sources import FolderResults, KeptResults, Results
from async_hfl.experiments.sweeps.cluster_runs import make_cluster_runs
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.process_workers import ProcessPool
from async_hfl.experiments.sweeps.sweep import SweepResult, sweep
from async_hfl.experiments.sweeps.this_process import ThisProcessPool
from async_hfl.experiments.sweeps.view import SweepView
from async_hfl.experiments.sweeps.worker_pool import WorkerPool
from async_hfl.simulation.recorded_run import Progress

HERE = "here"


@dataclass(frozen=True, slots=True)
class Work:
    """The options of every command that makes runs, named as on the command line."""

    out: Path | None = None
    """The folder of runs and tables; by default one under runs/."""
    on: str | None = None
    """processes, here (in this process), ray or ray://HOST:PORT. None: processes, or here for objects."""
    processes: int | None = None
    together: int | None = None
    """Runs at once in a worker, on one engine."""
    limit_minutes: float | None = None
    rows: Path | None = None
    """A file that keeps the result of each run as a line."""
    discard_runs: bool = False
    from_results: Sequence[Path] = ()
    """Files of kept results: no run is made."""

    @classmethod
    def of(
        cls,
        out: str | Path | None,
        on: str | None,
        processes: int | None,
        together: int | None,
        limit_minutes: float | None,
        rows: str | Path | None,
        discard_runs: bool,
        from_results: str | Path | Sequence[str | Path],
    ) -> Work:
        folder, file = (None if path is None else Path(path) for path in (out, rows))
        results = [from_results] if isinstance(from_results, str | Path) else from_results
        return cls(folder, on, processes, together, limit_minutes, file, discard_runs, tuple(map(Path, results)))

    @property
    def limit_s(self) -> float | None:
        minutes = self.limit_minutes
        if minutes is not None and not minutes > 0:
            raise UserError(f"--limit-minutes {minutes:g}: must be more than 0")
        return None if minutes is None else minutes * 60

    def folder(self, default: str) -> SweepFolder:
        return SweepFolder(self.out or Path("runs") / default)

    def pool(self, folder: SweepFolder, runs: Sequence[PlannedRun]) -> WorkerPool:
        """Return the workers. Objects made in Python are known in this process only."""
        objects = {setting: name for run in runs for setting, name in run.objects.items()}
        on = self.on or (HERE if objects and self.processes in (None, 1) else "processes")
        if on == HERE:
            if self.processes not in (None, 1):
                raise UserError(
                    f"processes = {self.processes}: here is one process; leave it out, or give on=processes"
                )
            return ThisProcessPool(folder, self.together)
        check_no_objects(objects, f"the workers (on = {on}) are other processes")
        if on == "processes":
            return ProcessPool(folder.path, self.processes, self.together)
        if on == "ray" or on.startswith("ray://"):
            from async_hfl.experiments.sweeps.ray_workers import RayPool

            return RayPool(folder.path, None if on == "ray" else on, self.processes, self.together)
        raise UserError(f"--on {on}: must be processes, here, ray (on this machine) or ray://HOST:PORT")

    def keeper(self, folder: SweepFolder) -> Keeper | None:
        """Return the keeper of `rows`."""
        if self.rows is not None and self.from_results:
            raise UserError("--from-results makes no runs whose results --rows could keep; give one of them")
        if self.discard_runs and self.rows is None:
            raise UserError("--discard-runs: give --rows FILE as well, which keeps the results")
        return None if self.rows is None else Keeper(self.rows, folder, discard=self.discard_runs)


def make_plan_runs(
    plan: Plan,
    folder: SweepFolder,
    work: Work,
    *,
    reference: str | None = None,
    quiet: bool = True,
    real: Callable[[PlannedRun, Path, Callable[[Progress], None]], api.Run] | None = None,
) -> tuple[SweepResult, Results]:
    """Make the missing runs of a plan and return all results. `real` makes a run with real processes."""
    check_reference(plan.runs, reference)
    keeper = work.keeper(folder)
    if work.from_results:
        return _kept(work.from_results, plan, folder)
    limit = work.limit_s
    with SweepView(plan.name, quiet=quiet, panels=len({run.panel for run in plan.runs}) > 1) as view:
        if real is not None:
            made = make_cluster_runs(plan.runs, folder, real, view, limit_s=limit)
            return made, FolderResults(folder)
        pool = work.pool(folder, plan.runs)
        swept = sweep(plan.runs, folder, pool, view, limit_s=limit, keeper=keeper)
    # Without `rows` pages show all details of the runs, which kept results do not have.
    return swept, FolderResults(folder) if keeper is None else keeper.results


def _kept(files: Sequence[Path], plan: Plan, folder: SweepFolder) -> tuple[SweepResult, Results]:
    """Return the kept results of a plan."""
    results = KeptResults(read_rows(files))
    results.check_any(plan.runs, files)
    known = sum(results.row(run) is not None for run in plan.runs)
    return SweepResult(folder, len(plan.runs), already_complete=known, stopped="kept"), results
