"""One engine shared by several concurrent runs, whose waiting jobs are trained in one call.

Jobs are pure functions, so it does not matter to which run they belong. Each run simulates in its own thread until it
needs a result. When every active run needs one, the jobs of all are trained together, in the order of the runs. This
keeps an accelerator full if one run alone has too few jobs in flight. It is reproducible: the calls depend on the runs,
not on the speed of the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock
from typing import final

from async_hfl.core.errors import InternalError
from async_hfl.core.learner import Results, TrainingResult
from async_hfl.learning.engine.trainer import Request, Trainer


@dataclass(slots=True, eq=False)
class _Call:
    """The jobs for which one run waits."""

    key: Hashable
    requests: Sequence[Request]
    results: list[TrainingResult] = field(default_factory=list)
    error: BaseException | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class _Turn:
    """A function that is called when every run waits, one run after another."""

    ask: Callable[[], int | None]
    answer: int | None = None
    done: bool = False


@final
class SharedEngine:
    """Engines shared by `runs` runs, numbered from 0. Each run must call `leave` in the end, even after an error."""

    def __init__(self, runs: int) -> None:
        self._going = set(range(runs))
        self._waiting: dict[int, _Call | _Turn] = {}
        self._engines: dict[Hashable, Trainer] = {}
        self._making = Lock()
        self._changed = Condition()

    def trainer(self, run: int, key: Hashable, make: Callable[[], Trainer]) -> Trainer:
        """Return this run's access to the engine of this key, which the first run to ask creates."""
        with self._making:
            if key not in self._engines:
                self._engines[key] = make()
        return _RunTrainer(self, run, key)

    def leave(self, run: int) -> None:
        """Remove a run, so that the others do not wait for it."""
        with self._changed:
            self._going.discard(run)
            self._train_if_all_wait()

    def train(self, run: int, key: Hashable, requests: Sequence[Request]) -> list[TrainingResult]:
        if run not in self._going:
            raise InternalError(f"run {run} has left the shared engine and cannot train")
        call = _Call(key, requests)
        self._wait(run, call)
        if call.error is not None:
            raise call.error
        return call.results

    def in_turn(self, run: int, ask: Callable[[], int | None]) -> int | None:
        """Call a function when all runs wait, so that its answer does not depend on the speed of the threads."""
        turn = _Turn(ask)
        self._wait(run, turn)
        return turn.answer

    def _wait(self, run: int, call: _Call | _Turn) -> None:
        with self._changed:
            self._waiting[run] = call
            self._train_if_all_wait()
            self._changed.wait_for(lambda: call.done)

    def compile(self, key: Hashable, max_samples: int, jobs: int) -> None:
        self._engines[key].compile(max_samples, jobs)

    def _train_if_all_wait(self) -> None:
        """Train for all runs, in the thread of the run that came last or left; the others wait anyway."""
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
                results = iter(self._engines[key].begin([request for call in mine for request in call.requests])())
                for call in mine:
                    call.results = [next(results) for _ in call.requests]
            except BaseException as error:
                for call in mine:
                    call.error = error
        for one in waiting:
            one.done = True
        self._changed.notify_all()


@final
class _RunTrainer:
    """The `Trainer` of one run, which trains together with the others."""

    def __init__(self, shared: SharedEngine, run: int, key: Hashable) -> None:
        self._shared = shared
        self._run = run
        self._key = key

    def compile(self, max_samples: int, jobs: int) -> None:
        self._shared.compile(self._key, max_samples, jobs)

    @property
    def prefetch(self) -> None:
        """None: while the jobs of one run are trained, the other runs are simulated."""

    def begin(self, requests: Sequence[Request]) -> Results:
        return partial(self._shared.train, self._run, self._key, requests)
