"""The interface of worker pools: workers are assigned runs and report their status.

Implementations: processes of this machine (process_workers.py) and Ray actors (ray_workers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import Queue
from typing import Any, Protocol

from async_hfl.experiments.sweeps.work import Assignment


@dataclass(frozen=True, slots=True)
class Message:
    """From a worker: the status of a run (`work.RunStatus` as a dictionary), {"idle": true}, or {"died": reason}."""

    worker: int
    data: dict[str, Any]


Inbox = Queue[Message]


@dataclass(frozen=True, slots=True)
class PoolShape:
    """The number of workers, and the number of runs that each has in progress at once, on a shared engine."""

    workers: int
    width: int


class Worker(Protocol):
    def assign(self, assignments: Sequence[Assignment], width: int) -> None: ...
    def pause(self) -> None:
        """Checkpoint all runs in progress soon."""

    def stop(self) -> None:
        """Stop at once, whatever is in progress."""


class WorkerPool(Protocol):
    def shape(self, runs: int) -> PoolShape:
        """Return the shape of the pool for this many runs."""

    def start_worker(self, number: int, shape: PoolShape, inbox: Inbox) -> Worker:
        """Start a worker whose messages go to `inbox` under this number."""

    def close(self) -> None: ...
