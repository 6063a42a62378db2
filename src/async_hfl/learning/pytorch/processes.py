"""A few processes that answer requests, one at a time each. They live exactly as long as their owner.

Each has its own pipe, whose other end only the owner holds. If the owner ends, however it does, the process reads the
end of file and exits. If a process dies, that is detected and reported at once.
"""

from __future__ import annotations

import multiprocessing
import signal
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, final

from async_hfl.core.errors import TaskError

_PATIENCE_S = 5.0
"""Seconds that a process has to exit before it is killed."""

Handler = Callable[[Any], Any]


@final
class Processes:
    """`make()` is called in each process and returns the function that answers requests."""

    def __init__(self, count: int, make: Callable[[], Handler], name: str) -> None:
        """`make` and requests are sent to another interpreter: functions by name, arrays by value."""
        self._count = count
        self._make = make
        self._name = name
        self._running: list[tuple[BaseProcess, Connection]] = []
        # Processes are stopped when the owner is garbage-collected or the program ends.
        self._end = weakref.finalize(self, _stop, self._running)

    def close(self) -> None:
        _stop(self._running)

    def answers(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers in the order of the requests. The first error is raised here."""
        self._start()
        try:
            return self._exchange(requests)
        except BaseException:
            self.close()  # pending answers have no receiver any more; a later call starts new processes
            raise

    def _start(self) -> None:
        if self._running:
            return
        context = multiprocessing.get_context("spawn")
        for number in range(self._count):
            parent_end, child_end = context.Pipe()
            process = context.Process(
                target=_serve, args=(child_end, self._make), name=f"async-hfl trainer {number}", daemon=True
            )
            process.start()
            child_end.close()
            self._running.append((process, parent_end))

    def _exchange(self, requests: Sequence[Any]) -> list[Any]:
        found: dict[int, Any] = {}
        idle = list(range(len(self._running)))
        at_work: dict[int, int] = {}
        following = 0
        while len(found) < len(requests):
            while idle and following < len(requests):
                worker = idle.pop(0)
                self._tell(worker, requests[following])
                at_work[worker] = following
                following += 1
            by_end = {self._running[worker][1]: worker for worker in at_work}
            for end in wait(list(by_end)):
                worker = by_end[end]  # type: ignore[index]  # all of them are connections
                found[at_work.pop(worker)] = self._hear(worker)
                idle.append(worker)
        return [found[number] for number in range(len(requests))]

    def _tell(self, worker: int, request: Any) -> None:
        try:
            self._running[worker][1].send(request)
        except OSError as error:
            raise self._died(worker) from error

    def _hear(self, worker: int) -> Any:
        try:
            good, answer = self._running[worker][1].recv()
        except (EOFError, OSError) as error:
            raise self._died(worker) from error
        if not good:
            raise answer
        return answer

    def _died(self, worker: int) -> TaskError:
        process = self._running[worker][0]
        process.join(_PATIENCE_S)
        killed = " (out of memory?)" if process.exitcode == -signal.SIGKILL else ""
        return TaskError(f"{self._name}: a training process ended with exit code {process.exitcode}{killed}")


def _stop(running: list[tuple[BaseProcess, Connection]]) -> None:
    for _, parent_end in running:
        parent_end.close()
    for process, _ in running:
        process.terminate()
    for process, _ in running:
        process.join(_PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
    running.clear()


def _serve(child_end: Connection, make: Callable[[], Handler]) -> None:
    """Main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the owner decides
    handler: Handler | None = None
    while True:
        try:
            request = child_end.recv()
        except (EOFError, OSError):
            return
        try:
            handler = handler or make()
            answer = (True, handler(request))
        except Exception as error:
            # As text: an exception class of the user's own may not be importable by the owner.
            answer = (False, error if type(error).__module__.startswith("async_hfl.") else _portable(error))
        try:
            child_end.send(answer)
        except OSError:
            return


def _portable(error: Exception) -> TaskError:
    return TaskError(f"a training process failed: {type(error).__name__}: {error}")
