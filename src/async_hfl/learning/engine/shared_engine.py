"""Several runs at once, one engine: what all of them are waiting for is trained in one call.

Jobs are pure, so it does not matter whose they are. Each run simulates in a thread of its own until it needs a result;
when every run that is still going needs one, the jobs of all are trained together, in the order of the runs. That
keeps an accelerator full where one run alone has too few devices in flight, and it repeats: who meets whom depends on
the runs, not on how fast the threads happen to be.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import Condition, Lock
from typing import final

from async_hfl.core.errors import InternalError
from async_hfl.core.learner import Results, TrainingResult
from async_hfl.learning.engine.trainer import Request, Trainer


class _Call:
    """What one run waits for."""

    __slots__ = ("done", "error", "key", "requests", "results")

    def __init__(self, key: Hashable, requests: Sequence[Request]) -> None:
        self.key = key
        self.requests = requests
        self.results: list[TrainingResult] = []
        self.error: BaseException | None = None
        self.done = False


class _Turn:
    """A question that is asked when everybody waits, run after run."""

    __slots__ = ("answer", "ask", "done")

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self.ask = ask
        self.answer: int | None = None
        self.done = False


@final
class SharedEngine:
    """Meeting place of `runs` runs, numbered from 0. Each must `leave` in the end, whatever became of it."""

    def __init__(self, runs: int) -> None:
        self._going = set(range(runs))
        self._waiting: dict[int, _Call | _Turn] = {}
        self._engines: dict[Hashable, Trainer] = {}
        self._making = Lock()
        self._changed = Condition()

    def trainer(self, run: int, key: Hashable, make: Callable[[], Trainer]) -> Trainer:
        """This run's door to the engine of that key, which the first to ask for it makes."""
        with self._making:
            if key not in self._engines:
                self._engines[key] = make()
        return _Door(self, run, key)

    def leave(self, run: int) -> None:
        """The run needs nothing more; the others need not wait for it."""
        with self._changed:
            self._going.discard(run)
            self._train_if_all_wait()

    def train(self, run: int, key: Hashable, requests: Sequence[Request]) -> list[TrainingResult]:
        if run not in self._going:
            raise InternalError(f"run {run} has left and wants something trained")
        call = _Call(key, requests)
        self._wait(run, call)
        if call.error is not None:
            raise call.error
        return call.results

    def in_turn(self, run: int, ask: Callable[[], int | None]) -> int | None:
        """Ask when all the others wait: who gets which answer does not depend on how fast the threads are."""
        turn = _Turn(ask)
        self._wait(run, turn)
        return turn.answer

    def _wait(self, run: int, call: _Call | _Turn) -> None:
        with self._changed:
            self._waiting[run] = call
            self._train_if_all_wait()
            self._changed.wait_for(lambda: call.done)

    def compile(self, key: Hashable, room: int, jobs: int) -> None:
        self._engines[key].compile(room, jobs)

    def _train_if_all_wait(self) -> None:
        """The last to come (or a run that leaves) trains for all; nobody else has anything to do meanwhile."""
        if not self._waiting or set(self._waiting) != self._going:
            return
        waiting = [self._waiting[run] for run in sorted(self._waiting)]
        self._waiting.clear()
        calls = [call for call in waiting if isinstance(call, _Call)]
        for turn in waiting:
            if isinstance(turn, _Turn):
                turn.answer = turn.ask()
        for key in dict.fromkeys(call.key for call in calls):
            mine = [call for call in calls if call.key == key]
            try:
                results = iter(self._engines[key].train([request for call in mine for request in call.requests]))
                for call in mine:
                    call.results = [next(results) for _ in call.requests]
            except BaseException as error:
                for call in mine:
                    call.error = error
        for one in waiting:
            one.done = True
        self._changed.notify_all()


@final
class _Door:
    """A `Trainer` that meets the other runs."""

    def __init__(self, together: SharedEngine, run: int, key: Hashable) -> None:
        self._together = together
        self._run = run
        self._key = key

    def compile(self, room: int, jobs: int) -> None:
        self._together.compile(self._key, room, jobs)

    def train(self, requests: Sequence[Request]) -> list[TrainingResult]:
        return self._together.train(self._run, self._key, requests)

    @property
    def ahead(self) -> None:
        """While one run's jobs are trained there are the other runs to be simulated."""
        return None

    def begin(self, requests: Sequence[Request]) -> Results:
        return partial(self.train, requests)
