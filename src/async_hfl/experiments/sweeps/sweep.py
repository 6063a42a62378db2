"""Runs what is missing of a plan, goes on with what was cut off, tries again what failed.

The folder alone remembers (`folder.py`), so a sweep may be killed at any moment and started again, on this machine or
on another one that sees the folder, and two of them may work on one folder at the same time.
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
from async_hfl.experiments.sweeps.worker_pool import Inbox, Member, Message, Shape, WorkerPool

_TRIES = 3
_LOOK_S = 0.5
"""How often to look at the clock, and at runs that another sweep works on."""
_FAREWELL_S = 600.0
"""After which a member that should pause is stopped: a run has its last checkpoint all the same."""


class View(Protocol):
    """Who watches."""

    def began(self, total: int, done: int, shape: Shape) -> None: ...
    def news(self, run: PlannedRun, data: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class Swept:
    """What became of a plan."""

    folder: SweepFolder
    total: int
    there: int = 0
    """Were done before."""
    done: int = 0
    resumed: int = 0
    """Of those done now: had been begun before."""
    failed: dict[str, str] = field(default_factory=dict)
    """Id -> the last reason."""
    users_fault: bool = False
    stopped: Literal["", "limit", "interrupted"] = ""
    wall_s: float = 0.0

    @property
    def left(self) -> int:
        return self.total - self.there - self.done - len(self.failed)

    @property
    def complete(self) -> bool:
        return self.left == 0 and not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "out": str(self.folder.path),
            "runs": self.total,
            "were_there": self.there,
            "done": self.done,
            "resumed": self.resumed,
            "failed": self.failed,
            "left": self.left,
            "complete": self.complete,
            "stopped": self.stopped or None,
            "wall_s": self.wall_s,
        }


def sweep(
    runs: Sequence[PlannedRun], folder: SweepFolder, crew: WorkerPool, view: View, *, limit_s: float | None = None
) -> Swept:
    folder.make()
    swept = Swept(folder, len(runs))
    began = time.monotonic()
    work = _Work(runs, swept, folder, crew, view, None if limit_s is None else began + limit_s)
    try:
        while not work.finished():
            try:
                work.turn()
            except KeyboardInterrupt:
                if swept.stopped:
                    break  # a second time: at once
                work.pause("interrupted")
    finally:
        work.dismiss()
        swept.wall_s = time.monotonic() - began
    return swept


class _Work:
    def __init__(
        self,
        runs: Sequence[PlannedRun],
        swept: Swept,
        folder: SweepFolder,
        crew: WorkerPool,
        view: View,
        deadline: float | None,
    ) -> None:
        self._runs = {run.id: run for run in runs}
        self._swept, self._folder, self._crew, self._view = swept, folder, crew, view
        self._deadline = deadline
        self._paused_at = 0.0
        self._inbox: Inbox = Inbox()
        self._members: dict[int, Member] = {}
        self._busy: dict[int, set[str]] = {}
        """Member -> its runs that have not ended."""
        self._tries: dict[str, int] = {}
        self._elsewhere: set[str] = set()
        self._went_on: set[str] = set()
        self._next_look = 0.0
        self._hired = 0
        states = {run: folder.state(run) for run in self._runs}
        swept.there = sum(state == "done" for state in states.values())
        # What was cut off comes first: it is nearest to its end.
        self._pending = deque(run for wanted in ("cut", "missing") for run in self._runs if states[run] == wanted)
        self._shape = crew.shape(len(self._pending)) if self._pending else Shape(0, 1)
        view.began(len(self._runs), swept.there, self._shape)

    def finished(self) -> bool:
        if self._busy:
            return False
        return bool(self._swept.stopped) or not (self._pending or self._elsewhere)

    def turn(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline and not self._swept.stopped:
            self.pause("limit")
        if self._swept.stopped and now - self._paused_at > _FAREWELL_S:
            for number in list(self._busy):
                self._members.pop(number).stop()
                del self._busy[number]
            return
        if not self._swept.stopped:
            self._look_elsewhere(now)
            self._give_out()
        try:
            message = self._inbox.get(timeout=_LOOK_S)
        except Empty:
            return
        self._hear(message)

    def pause(self, why: Literal["limit", "interrupted"]) -> None:
        self._swept.stopped = why
        self._paused_at = time.monotonic()
        for number in self._busy:
            self._members[number].pause()
        if self._busy:
            self._view.note("stopping: every run saves a checkpoint")

    def dismiss(self) -> None:
        for member in self._members.values():
            member.stop()
        self._crew.close()

    def _give_out(self) -> None:
        while self._pending:
            idle = next((number for number in self._members if number not in self._busy), None)
            if idle is None:
                if len(self._members) >= self._shape.members:
                    return
                idle, self._hired = self._hired, self._hired + 1
                self._members[idle] = self._crew.hire(idle, self._shape, self._inbox)
            free = self._shape.members - len(self._busy)
            share = 1 if self._shape.width == 1 else max(self._shape.width, -(-len(self._pending) // free))
            mine = [self._pending.popleft() for _ in range(min(share, len(self._pending)))]
            self._busy[idle] = set(mine)
            self._members[idle].give(
                [
                    Assignment(run, self._runs[run].arguments(), anew=self._tries.get(run, 0) == _TRIES - 1)
                    for run in mine
                ],
                self._shape.width,
            )

    def _hear(self, message: Message) -> None:
        data, number = message.data, message.member
        if "idle" in data:
            self._busy.pop(number, None)
            return
        if "died" in data:
            self._members.pop(number, None)
            for run in self._busy.pop(number, set()):
                if not self._swept.stopped:
                    self._failed(run, data["died"], users=False, record=True)
            return
        run, what = data["run"], data["what"]
        if what in ("done", "paused", "failed", "elsewhere"):
            self._busy.get(number, set()).discard(run)
        match what:
            case "began":
                if data["resumed"]:
                    self._went_on.add(run)
            case "done":
                self._swept.done += 1
                self._swept.resumed += run in self._went_on
            case "failed":
                self._failed(run, data["reason"], users=data["users"], record=False)
            case "elsewhere":
                self._elsewhere.add(run)
        self._view.news(self._runs[run], data)

    def _failed(self, run: str, reason: str, *, users: bool, record: bool) -> None:
        if record:
            self._folder.failed(run, reason)
        self._tries[run] = self._tries.get(run, 0) + 1
        if users or self._tries[run] >= _TRIES:
            if reason not in self._swept.failed.values():  # a hundred runs may fail for one reason
                self._view.note(f"{self._runs[run].name}: failed: {reason}")
            self._swept.failed[run] = reason
            self._swept.users_fault |= users
        else:
            self._view.note(f"{self._runs[run].name}: {reason}; trying again")
            self._pending.append(run)

    def _look_elsewhere(self, now: float) -> None:
        """Another sweep has them: are they done by now, or has it given up?"""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        for run in list(self._elsewhere):
            if self._folder.state(run) == "done":
                self._swept.done += 1
                self._elsewhere.discard(run)
                self._view.news(self._runs[run], {"what": "done", "run": run})
                continue
            with self._folder.claimed(run) as free:
                pass
            if free:
                self._elsewhere.discard(run)
                self._pending.append(run)
