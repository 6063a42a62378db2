"""A sweep over a plan: makes missing runs, resumes interrupted ones and retries failed ones.

All state is in the folder (`folder.py`). A sweep may be killed at any moment and started again, on this machine or on
another one that sees the folder, and several sweeps may work on one folder at the same time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, Literal, Protocol

from async_hfl.experiments.plans.planned_run import PlannedRun
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.work import Assignment
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, PoolShape, Worker, WorkerPool

_TRIES = 3
_POLL_S = 0.5
"""Interval between checks of the clock and of the runs that other sweeps work on."""
_PAUSE_LIMIT_S = 600.0
"""A worker that takes longer than this to pause is stopped; its runs keep their previous checkpoints."""


class Keeper(Protocol):
    """Keeps the results of runs apart from the folder."""

    def begin(self, runs: Sequence[PlannedRun]) -> None: ...
    def has(self, run: PlannedRun) -> bool: ...
    def done(self, run: PlannedRun) -> None: ...


class View(Protocol):
    """Shows the progress of a sweep."""

    def began(self, total: int, done: int, shape: PoolShape) -> None: ...
    def status(self, run: PlannedRun, data: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class SweepResult:
    """The outcome of a sweep."""

    folder: SweepFolder
    total: int
    already_complete: int = 0
    """Runs that were complete before the sweep."""
    done: int = 0
    resumed: int = 0
    """Those of the runs done now that were resumed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Run id -> the reason of the last failure."""
    users_fault: bool = False
    stopped: Literal["", "limit", "interrupted", "kept"] = ""
    """kept: nothing was to be made, the results are kept ones."""
    wall_s: float = 0.0

    @property
    def left(self) -> int:
        return self.total - self.already_complete - self.done - len(self.failed)

    @property
    def complete(self) -> bool:
        return self.left == 0 and not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "out": str(self.folder.path),
            "runs": self.total,
            "were_there": self.already_complete,
            "done": self.done,
            "resumed": self.resumed,
            "failed": self.failed,
            "left": self.left,
            "complete": self.complete,
            "stopped": self.stopped or None,
            "wall_s": self.wall_s,
        }


def sweep(
    runs: Sequence[PlannedRun],
    folder: SweepFolder,
    pool: WorkerPool,
    view: View,
    *,
    limit_s: float | None = None,
    keeper: Keeper | None = None,
) -> SweepResult:
    """Make the runs. `keeper` is told of each run that is complete; runs that it has are not made.

    Runs with the same id and different labels are one run, of which the keeper learns all labels.
    """
    folder.make()
    if keeper is not None:
        keeper.begin(runs)
    different = {run.id: run for run in runs}
    result = SweepResult(folder, len(different))
    began = time.monotonic()
    state = _Sweep(
        tuple(different.values()), result, folder, pool, view, None if limit_s is None else began + limit_s, keeper
    )
    try:
        while not state.finished():
            try:
                state.step()
            except KeyboardInterrupt:
                if result.stopped:
                    break  # interrupted a second time: stop at once
                state.pause("interrupted")
    finally:
        state.stop_workers()
        result.wall_s = time.monotonic() - began
    if keeper is not None and len(different) < len(runs):
        keeper.begin(runs)
    return result


class _Sweep:
    def __init__(
        self,
        runs: Sequence[PlannedRun],
        result: SweepResult,
        folder: SweepFolder,
        pool: WorkerPool,
        view: View,
        deadline: float | None,
        keeper: Keeper | None,
    ) -> None:
        self._runs = {run.id: run for run in runs}
        self._keeper = keeper
        self._result, self._folder, self._pool, self._view = result, folder, pool, view
        self._deadline = deadline
        self._paused_at = 0.0
        self._inbox: Inbox = Inbox()
        self._workers: dict[int, Worker] = {}
        self._busy: dict[int, set[str]] = {}
        """Worker -> its unfinished runs."""
        self._tries: dict[str, int] = {}
        self._elsewhere: set[str] = set()
        self._resumed: set[str] = set()
        self._next_poll = 0.0
        self._started = 0
        states = {name: "done" if self._kept(run) else folder.state(name) for name, run in self._runs.items()}
        result.already_complete = sum(state == "done" for state in states.values())
        # Interrupted runs come first: they need the least time to complete.
        wanted = ("interrupted", "damaged", "missing")
        self._pending = deque(run for state in wanted for run in self._runs if states[run] == state)
        self._shape = pool.shape(len(self._pending)) if self._pending else PoolShape(0, 1)
        view.began(len(self._runs), result.already_complete, self._shape)
        for run, found in states.items():
            if found == "damaged":
                view.note(folder.replacing(run))

    def finished(self) -> bool:
        if self._busy:
            return False
        return bool(self._result.stopped) or not (self._pending or self._elsewhere)

    def step(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline and not self._result.stopped:
            self.pause("limit")
        if self._result.stopped and now - self._paused_at > _PAUSE_LIMIT_S:
            for number in list(self._busy):
                self._workers.pop(number).stop()
                del self._busy[number]
            return
        if not self._result.stopped:
            self._check_other_sweeps(now)
            self._assign()
        try:
            message = self._inbox.get(timeout=_POLL_S)
        except Empty:
            return
        self._receive(message)

    def pause(self, why: Literal["limit", "interrupted"]) -> None:
        self._result.stopped = why
        self._paused_at = time.monotonic()
        for number in self._busy:
            self._workers[number].pause()
        if self._busy:
            self._view.note("stopping: every run is saving a checkpoint")

    def stop_workers(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._pool.close()

    def _kept(self, run: PlannedRun) -> bool:
        return self._keeper is not None and self._keeper.has(run)

    def _complete(self, run: str) -> None:
        self._result.done += 1
        if self._keeper is not None and not self._keeper.has(self._runs[run]):
            self._keeper.done(self._runs[run])

    def _assign(self) -> None:
        for run in [run for run in self._pending if self._kept(self._runs[run])]:  # by another sweep, meanwhile
            self._pending.remove(run)
            self._complete(run)
            self._view.status(self._runs[run], {"what": "done", "run": run})
        while self._pending:
            idle = next((number for number in self._workers if number not in self._busy), None)
            if idle is None:
                if len(self._workers) >= self._shape.workers:
                    return
                idle, self._started = self._started, self._started + 1
                self._workers[idle] = self._pool.start_worker(idle, self._shape, self._inbox)
            free = self._shape.workers - len(self._busy)
            share = 1 if self._shape.width == 1 else max(self._shape.width, -(-len(self._pending) // free))
            mine = [self._pending.popleft() for _ in range(min(share, len(self._pending)))]
            self._busy[idle] = set(mine)
            self._workers[idle].assign(
                [
                    Assignment(run, self._runs[run].arguments(), restart=self._tries.get(run, 0) == _TRIES - 1)
                    for run in mine
                ],
                self._shape.width,
            )

    def _receive(self, message: Message) -> None:
        data, number = message.data, message.worker
        if "idle" in data:
            self._busy.pop(number, None)
            return
        if "died" in data:
            self._workers.pop(number, None)
            for run in self._busy.pop(number, set()):
                if not self._result.stopped:
                    self._failed(run, data["died"], users_mistake=False, record=True)
            return
        run, what = data["run"], data["what"]
        if what in ("done", "paused", "failed", "elsewhere"):
            self._busy.get(number, set()).discard(run)
        match what:
            case "began":
                if data["resumed"]:
                    self._resumed.add(run)
            case "done":
                self._complete(run)
                self._result.resumed += run in self._resumed
            case "failed":
                self._failed(run, data["reason"], users_mistake=data["users_mistake"], record=False)
            case "elsewhere":
                self._elsewhere.add(run)
        self._view.status(self._runs[run], data)

    def _failed(self, run: str, reason: str, *, users_mistake: bool, record: bool) -> None:
        if record:
            self._folder.record_failure(run, reason)
        self._tries[run] = self._tries.get(run, 0) + 1
        if users_mistake or self._tries[run] >= _TRIES:
            if reason not in self._result.failed.values():  # many runs may fail for the same reason
                self._view.note(f"{self._runs[run].name}: failed: {reason}")
            self._result.failed[run] = reason
            self._result.users_fault |= users_mistake
        else:
            self._view.note(f"{self._runs[run].name}: {reason}; retrying")
            self._pending.append(run)

    def _check_other_sweeps(self, now: float) -> None:
        """Check the runs of other sweeps: they may be complete by now, or no longer claimed."""
        if now < self._next_poll:
            return
        self._next_poll = now + _POLL_S
        for run in list(self._elsewhere):
            if self._kept(self._runs[run]) or self._folder.state(run) == "done":
                self._complete(run)
                self._elsewhere.discard(run)
                self._view.status(self._runs[run], {"what": "done", "run": run})
                continue
            with self._folder.claimed(run) as free:
                pass
            if free:
                self._elsewhere.discard(run)
                self._pending.append(run)
