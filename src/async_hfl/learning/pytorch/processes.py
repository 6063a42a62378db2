"""Worker processes that answer requests, each one at a time. None of them outlives its owner. Or this process instead.

Each process has its own pipe, whose other end only the owner holds. If the owner ends, even by SIGKILL, the process
reads the end of file and exits. If a process dies, the owner notices at once and raises an error.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar, final

from async_hfl.core.errors import TaskError

_EXIT_S = 5.0
"""Seconds that a process has to exit before it is killed."""

W = TypeVar("W")
R = TypeVar("R")


@final
class Processes(Generic[W]):
    """Processes that hold a worker each. A request is a function of the worker, and its result is the answer."""

    def __init__(self, count: int, make: Callable[[], W], name: str) -> None:
        """`make` creates the worker. It and the requests are pickled: functions by name, arrays by value."""
        self._count = count
        self._make = make
        self._name = name
        self._running: list[tuple[BaseProcess, Connection]] = []
        # Processes are stopped when the owner is garbage-collected or the program ends.
        self._end = weakref.finalize(self, _stop, self._running)

    def close(self) -> None:
        _stop(self._running)

    def grow(self, count: int) -> None:
        """Use this many processes, if that is more, from the next request on."""
        self._count = max(self._count, count)

    def answers(self, requests: Sequence[Callable[[W], R]]) -> list[R]:
        """Return the answers in the order of the requests. The first error is raised here."""
        self._start()
        try:
            return self._exchange(requests)
        except BaseException:
            self.close()  # pending answers have no receiver any more; a later call starts new processes
            raise

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for number in range(len(self._running), self._count):
            parent_end, child_end = context.Pipe()
            process = context.Process(
                target=_serve, args=(child_end, self._make), name=f"async-hfl trainer {number}", daemon=True
            )
            process.start()
            child_end.close()
            self._running.append((process, parent_end))

    def _exchange(self, requests: Sequence[Callable[[W], R]]) -> list[R]:
        found: dict[int, R] = {}
        idle = list(range(len(self._running)))
        busy: dict[int, int] = {}
        """Number of the request, by process."""
        upcoming = 0
        while len(found) < len(requests):
            while idle and upcoming < len(requests):
                worker = idle.pop(0)
                try:
                    self._running[worker][1].send(requests[upcoming])
                except OSError as error:
                    raise self._died(worker) from error
                busy[worker] = upcoming
                upcoming += 1
            by_connection = {self._running[worker][1]: worker for worker in busy}
            for end in wait(list(by_connection)):
                worker = by_connection[end]  # type: ignore[index]  # all of them are connections
                found[busy.pop(worker)] = self._receive(worker)
                idle.append(worker)
        return [found[number] for number in range(len(requests))]

    def _receive(self, worker: int) -> Any:
        try:
            good, answer = self._running[worker][1].recv()
        except (EOFError, OSError) as error:
            raise self._died(worker) from error
        if not good:
            raise answer
        return answer

    def _died(self, worker: int) -> TaskError:
        process = self._running[worker][0]
        process.join(_EXIT_S)
        killed = " (out of memory?)" if process.exitcode == -signal.SIGKILL else ""
        return TaskError(f"{self._name}: a training process ended with exit code {process.exitcode}{killed}")


@final
class ThisProcess(Generic[W]):
    """One worker in this process, for owners that may not start others, such as the training child of a device, and for
    tasks that only this process has. PyTorch's threads and its generators (that of a GPU in use, too) are the caller's
    again after each call."""

    def __init__(self, make: Callable[[], W]) -> None:
        self._make = make
        self._worker: W | None = None

    def close(self) -> None:
        self._worker = None

    def answers(self, requests: Sequence[Callable[[W], R]]) -> list[R]:
        """Return the answers in the order of the requests."""
        with _torch_kept():
            worker = self._worker = self._worker or self._make()
            return [request(worker) for request in requests]


@contextmanager
def _torch_kept() -> Iterator[None]:
    """Use one thread of PyTorch, and restore its number of threads and its generators; without effect before PyTorch is
    imported, by whoever needs it."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        torch.set_num_threads(threads)


def _stop(running: list[tuple[BaseProcess, Connection]]) -> None:
    for _, parent_end in running:
        parent_end.close()
    for process, _ in running:
        process.terminate()
    for process, _ in running:
        process.join(_EXIT_S)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
    running.clear()


def _serve(child_end: Connection, make: Callable[[], Any]) -> None:
    """Run in a process: create the worker at the first request, and answer until the owner ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the owner decides
    worker = None
    while True:
        try:
            request = child_end.recv()
        except (EOFError, OSError):
            return
        try:
            worker = worker or make()
            answer = (True, request(worker))
        except Exception as error:
            # As text: an exception class of the user's own may not be importable by the owner.
            text = f"a training process failed: {type(error).__name__}: {error}"
            answer = (False, error if type(error).__module__.startswith("async_hfl.") else TaskError(text))
        try:
            child_end.send(answer)
        except OSError:
            return
