"""A worker in this process, for runs of objects that no other process has. It simulates on a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict

from async_hfl.core.errors import UserError
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.work import Assignment, make_runs
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, PoolShape
from async_hfl.learning.engine.runtime import accelerator_installed

_WIDTH = 6


class ThisProcessPool:
    def __init__(self, folder: SweepFolder, width: int | None = None) -> None:
        if width is not None and width < 1:
            raise UserError(f"--together {width}: must be at least 1")
        self._folder, self._width = folder, width or (_WIDTH if accelerator_installed() else 1)

    def shape(self, runs: int) -> PoolShape:
        return PoolShape(1, min(self._width, runs))

    def start_worker(self, number: int, shape: PoolShape, inbox: Inbox) -> ThisProcessWorker:
        return ThisProcessWorker(number, self._folder, inbox)

    def close(self) -> None:
        """Do nothing: the worker has ended its last run."""


class ThisProcessWorker:
    def __init__(self, number: int, folder: SweepFolder, inbox: Inbox) -> None:
        self._number, self._folder, self._inbox = number, folder, inbox
        self._paused = threading.Event()
        self._thread: threading.Thread | None = None

    def assign(self, assignments: Sequence[Assignment], width: int) -> None:
        self._thread = threading.Thread(target=self._make, args=(assignments, width), name="sweep", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        self._paused.set()

    def stop(self) -> None:
        """Pause: a thread cannot be stopped. It ends after the evaluation in progress."""
        self.pause()
        if self._thread is not None:
            self._thread.join()

    def _make(self, assignments: Sequence[Assignment], width: int) -> None:
        try:
            make_runs(assignments, self._folder, lambda status: self._put(asdict(status)), self._paused.is_set, width)
        except BaseException as error:
            self._put({"died": f"{type(error).__name__}: {error}"})
        else:
            self._put({"idle": True})

    def _put(self, data: dict[str, object]) -> None:
        self._inbox.put(Message(self._number, data))
