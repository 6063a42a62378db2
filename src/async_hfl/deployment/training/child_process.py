"""Training in a child process, so that the parent's event loop is free for heartbeats.

The child is spawned (never forked, since gRPC and JAX have threads) and handles one job at a time. It ends with its
parent: it reads the end of its pipe, and the kernel kills it. Jobs and results cross the pipe as MessagePack and raw
arrays. A thread of the parent writes to the pipe, since writing blocks while the child trains.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Protocol

import msgspec
import numpy as np

from async_hfl.core.errors import AsyncHflError, UserError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.weights import Weights, frozen
from async_hfl.deployment.processes.parent_death import die_with_parent

_READY, _FAILED, _TRAINED, _BROKE, _EVALUATED = "ready", "failed", "trained", "broke", "evaluated"
_TRAIN, _STOP, _EVALUATE, _LEAVE = "train", "stop", "evaluate", "leave"
_LEAVING_S = 5.0


class LocalLearner(Protocol):
    """The learner of the devices of one process, which are numbered from 0."""

    def train(self, job: TrainingJob) -> TrainingResult: ...

    def evaluate(self, device: int, weights: Weights) -> Evaluation | None:
        """Evaluate a model on samples of the device; return None if it has none for that."""
        ...


@dataclass(frozen=True, slots=True)
class Spent:
    """The time that one training job took."""

    seconds: float
    busy_s: float
    """Processor time, at most `seconds`: an estimate of the duration on an idle machine."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The first message of a child, sent when it has loaded and compiled everything."""

    samples: tuple[int, ...]
    """Number of samples of each device."""
    spent: tuple[Spent, ...]
    """Time that one training job of each device takes."""
    model_bytes: int = 0


class TrainingFailed(UserError):
    """The child could not start, or has ended."""


class Listener(Protocol):
    """The receiver of a child's results.

    broke: training raised an error, and the child continues. gone: the child has ended unexpectedly."""

    def trained(self, device: int, job: JobId, result: TrainingResult, spent: Spent) -> None: ...
    def broke(self, device: int, job: JobId, why: str) -> None: ...
    def evaluated(self, device: int, epoch: int, evaluation: Evaluation | None) -> None: ...
    def gone(self) -> None: ...


class TrainingChild:
    def __init__(
        self,
        make: Callable[[], tuple[LocalLearner, Ready]],
        listener: Listener,
        call: Callable[..., Any] = lambda act, *arguments: act(*arguments),
    ) -> None:
        """`make` is called in the child. `call` calls a method of the listener, by default on the reading thread."""
        self._make = make
        self._listener = listener
        self._call = call
        self._closing = False
        self._process: Any = None
        self._outgoing: SimpleQueue[tuple[list[Any], Weights | None] | None] = SimpleQueue()
        """Requests for the child; None ends the writing thread."""

    def start(self) -> Ready:
        """Start the child, and block until it is ready. Raises TrainingFailed with the child's error."""
        ready: Future[Ready] = Future()
        threading.Thread(target=self._own_child, args=(ready,), name="trainer", daemon=True).start()
        try:
            return ready.result()
        except TrainingFailed:
            self.close()
            raise

    def _own_child(self, ready: Future[Ready]) -> None:
        """Start the child and read its results on one thread: the kernel kills a child with the thread that made it."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._make), name="async-hfl trainer", daemon=True)
        self._process.start()
        theirs.close()
        threading.Thread(target=self._write, args=(ours,), name="to the trainer", daemon=True).start()
        try:
            kind, *rest = msgspec.msgpack.decode(ours.recv_bytes())
        except (EOFError, OSError):
            ready.set_exception(TrainingFailed("the training process ended before it was ready; see its output above"))
            return
        if kind == _FAILED:
            ready.set_exception(TrainingFailed(rest[0]))
            return
        ready.set_result(Ready(tuple(rest[0]), tuple(Spent(*each) for each in rest[1]), rest[2]))
        self._listen(ours)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def train(self, job: TrainingJob) -> None:
        self._outgoing.put(([_TRAIN, job.device, list(job.job), job.seed, job.generation], job.weights))

    def stop(self, job: JobId) -> None:
        self._outgoing.put(([_STOP, list(job)], None))

    def evaluate(self, device: int, epoch: int, weights: Weights) -> None:
        self._outgoing.put(([_EVALUATE, device, epoch], weights))

    def close(self) -> None:
        self._closing = True
        # The reading thread keeps this end of the pipe open, so the child must be asked to leave.
        self._outgoing.put(([_LEAVE], None))
        self._outgoing.put(None)
        if self._process is not None:
            self._process.join(_LEAVING_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    def _write(self, pipe: Connection) -> None:
        with contextlib.suppress(OSError):  # the child has ended, which the reading thread reports
            while (request := self._outgoing.get()) is not None:
                head, weights = request
                pipe.send_bytes(msgspec.msgpack.encode(head))
                if weights is not None:
                    pipe.send_bytes(np.ascontiguousarray(weights).data)

    def _listen(self, pipe: Connection) -> None:
        listener, call = self._listener, self._call
        try:
            while True:
                kind, device, *rest = msgspec.msgpack.decode(pipe.recv_bytes())
                if kind == _BROKE:
                    call(listener.broke, device, JobId(*rest[0]), rest[1])
                elif kind == _EVALUATED:
                    epoch, found = rest
                    call(listener.evaluated, device, epoch, None if found is None else Evaluation(*found))
                else:
                    job, samples, steps, loss, squared_loss, has_gradient, spent = rest
                    weights = _array(pipe)
                    gradient = _array(pipe) if has_gradient else None
                    result = TrainingResult(weights, samples, steps, loss, squared_loss, gradient)
                    call(listener.trained, device, JobId(*job), result, Spent(*spent))
        except (EOFError, OSError):
            self._outgoing.put(None)
            if not self._closing:
                call(listener.gone)


def _array(pipe: Connection) -> Weights:
    return frozen(np.frombuffer(pipe.recv_bytes(), np.float32))


# In the child ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Evaluation:
    device: int
    epoch: int
    weights: Weights


_Work = TrainingJob | _Evaluation


def _serve(pipe: Connection, make: Callable[[], tuple[LocalLearner, Ready]]) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        learner, ready = make()
    except AsyncHflError as error:
        pipe.send_bytes(msgspec.msgpack.encode([_FAILED, str(error)]))
        return
    spent = [astuple(each) for each in ready.spent]
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        pipe.send_bytes(msgspec.msgpack.encode([_READY, ready.samples, spent, ready.model_bytes]))
        _work(pipe, learner)


def _work(pipe: Connection, learner: LocalLearner) -> None:
    waiting: list[_Work] = []
    while True:
        while not waiting or pipe.poll():
            _take(pipe, waiting)
        work = waiting.pop(0)
        if not isinstance(work, TrainingJob):
            found = learner.evaluate(work.device, work.weights)
            result = None if found is None else [found.metric, found.loss, dict(found.details)]
            _answer(pipe, [_EVALUATED, work.device, work.epoch, result])
            continue
        job = list(work.job)
        try:
            trained, spent = timed(learner, work)
        except Exception as error:  # the task may be the user's own
            _answer(pipe, [_BROKE, work.device, job, f"{type(error).__name__}: {error}"])
            continue
        arrays = [trained.weights] if trained.gradient is None else [trained.weights, trained.gradient]
        numbers = [trained.samples, trained.steps, trained.loss, trained.squared_loss, trained.gradient is not None]
        _answer(pipe, [_TRAINED, work.device, job, *numbers, astuple(spent)], arrays)


def timed(learner: LocalLearner, job: TrainingJob) -> tuple[TrainingResult, Spent]:
    begun, busy = time.perf_counter(), time.process_time()
    result = learner.train(job)
    seconds = time.perf_counter() - begun
    return result, Spent(seconds, min(seconds, time.process_time() - busy))


def _take(pipe: Connection, waiting: list[_Work]) -> None:
    kind, *rest = msgspec.msgpack.decode(pipe.recv_bytes())
    if kind == _LEAVE:
        raise EOFError
    if kind == _STOP:
        stopped = JobId(*rest[0])
        waiting[:] = [work for work in waiting if not (isinstance(work, TrainingJob) and work.job == stopped)]
    elif kind == _EVALUATE:
        device, epoch = rest
        waiting.append(_Evaluation(device, epoch, _array(pipe)))
    else:
        device, job, seed, generation = rest
        waiting.append(TrainingJob(JobId(*job), device, _array(pipe), seed, generation))


def _answer(pipe: Connection, head: list[Any], arrays: Sequence[Any] = ()) -> None:
    pipe.send_bytes(msgspec.msgpack.encode(head))
    for array in arrays:
        pipe.send_bytes(np.ascontiguousarray(array, np.float32).data)
