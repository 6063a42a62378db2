"""Training in a process of its own: a parent that computes would miss its heartbeats.

The child is spawned (never forked: gRPC and JAX have threads), lives exactly as long as its parent (it reads the end of
its pipe, and the kernel ends it besides) and does one thing after the other. Jobs and results cross the pipe as
MessagePack and raw arrays. A child that trains does not read, and a pipe holds little: so a thread of the parent's does
the writing, and nobody waits for it.
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
    """The devices of a process, made trainable; they are counted from 0."""

    def train(self, job: TrainingJob) -> TrainingResult: ...

    def evaluate(self, device: int, weights: Weights) -> Evaluation | None:
        """On samples of the device's own; None where it has none to judge by."""
        ...


@dataclass(frozen=True, slots=True)
class Spent:
    """What a training took."""

    seconds: float
    busy_s: float
    """Of a processor, at most `seconds`: what it would have taken had nobody else wanted the machine."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What a child says when it has loaded and compiled everything."""

    samples: tuple[int, ...]
    """By device."""
    spent: tuple[Spent, ...]
    """One training each."""
    model_bytes: int = 0


class TrainingFailed(UserError):
    """The child could not begin, or is gone."""


class Listener(Protocol):
    """Who hears what a child has done. Called on a thread."""

    def trained(self, device: int, job: JobId, result: TrainingResult, spent: Spent) -> None: ...

    def broke(self, device: int, job: JobId, why: str) -> None:
        """Training raised an error; the child goes on."""
        ...

    def evaluated(self, device: int, epoch: int, evaluation: Evaluation | None) -> None: ...

    def gone(self) -> None:
        """The child ended unasked."""
        ...


class TrainingChild:
    def __init__(self, make: Callable[[], tuple[LocalLearner, Ready]], listener: Listener) -> None:
        """`make` is called in the child."""
        self._make = make
        self._listener = listener
        self._closing = False
        self._process: Any = None
        self._words: SimpleQueue[tuple[list[Any], Weights | None] | None] = SimpleQueue()
        """For the child; None: nothing more."""

    def start(self) -> Ready:
        """Blocks until everything is compiled; raises what went wrong there."""
        ready: Future[Ready] = Future()
        threading.Thread(target=self._live, args=(ready,), name="trainer", daemon=True).start()
        try:
            return ready.result()
        except TrainingFailed:
            self.close()
            raise

    def _live(self, ready: Future[Ready]) -> None:
        """One thread for the child's whole life: the kernel would end it with the thread that it came from."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._make), name="async-hfl trainer", daemon=True)
        self._process.start()
        theirs.close()
        threading.Thread(target=self._write, args=(ours,), name="to the trainer", daemon=True).start()
        try:
            kind, *rest = msgspec.msgpack.decode(ours.recv_bytes())
        except (EOFError, OSError):
            ready.set_exception(TrainingFailed("the training process ended before it was ready; see its words above"))
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
        self._words.put(([_TRAIN, job.device, list(job.job), job.seed, job.generation], job.weights))

    def stop(self, job: JobId) -> None:
        self._words.put(([_STOP, list(job)], None))

    def evaluate(self, device: int, epoch: int, weights: Weights) -> None:
        self._words.put(([_EVALUATE, device, epoch], weights))

    def close(self) -> None:
        self._closing = True
        # A thread of ours is reading: closing our end would not reach the child before that thread has let go.
        self._words.put(([_LEAVE], None))
        self._words.put(None)
        if self._process is not None:
            self._process.join(_LEAVING_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    def _write(self, pipe: Connection) -> None:
        with contextlib.suppress(OSError):  # gone: the listener tells
            while (words := self._words.get()) is not None:
                head, weights = words
                pipe.send_bytes(msgspec.msgpack.encode(head))
                if weights is not None:
                    pipe.send_bytes(np.ascontiguousarray(weights).data)

    def _listen(self, pipe: Connection) -> None:
        heard = self._listener
        try:
            while True:
                kind, device, *rest = msgspec.msgpack.decode(pipe.recv_bytes())
                if kind == _BROKE:
                    heard.broke(device, JobId(*rest[0]), rest[1])
                elif kind == _EVALUATED:
                    epoch, found = rest
                    heard.evaluated(device, epoch, None if found is None else Evaluation(*found))
                else:
                    job, samples, steps, loss, squared_loss, has_gradient, spent = rest
                    weights = _array(pipe)
                    gradient = _array(pipe) if has_gradient else None
                    result = TrainingResult(weights, samples, steps, loss, squared_loss, gradient)
                    heard.trained(device, JobId(*job), result, Spent(*spent))
        except (EOFError, OSError):
            self._words.put(None)
            if not self._closing:
                heard.gone()


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        learner, ready = make()
    except AsyncHflError as error:
        pipe.send_bytes(msgspec.msgpack.encode([_FAILED, str(error)]))
        return
    spent = [astuple(each) for each in ready.spent]
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # its parent is gone
        pipe.send_bytes(msgspec.msgpack.encode([_READY, ready.samples, spent, ready.model_bytes]))
        _work_for_ever(pipe, learner)


def _work_for_ever(pipe: Connection, learner: LocalLearner) -> None:
    waiting: list[_Work] = []
    while True:
        while not waiting or pipe.poll():
            _take(pipe, waiting)
        work = waiting.pop(0)
        if isinstance(work, TrainingJob):
            _train(pipe, learner, work)
        else:
            found = learner.evaluate(work.device, work.weights)
            told = None if found is None else [found.metric, found.loss, dict(found.details)]
            _answer(pipe, [_EVALUATED, work.device, work.epoch, told])


def _train(pipe: Connection, learner: LocalLearner, job: TrainingJob) -> None:
    try:
        result, spent = timed(learner, job)
    except Exception as error:  # the task may be the user's own
        _answer(pipe, [_BROKE, job.device, list(job.job), f"{type(error).__name__}: {error}"])
        return
    arrays = [result.weights] if result.gradient is None else [result.weights, result.gradient]
    numbers = [result.samples, result.steps, result.loss, result.squared_loss, result.gradient is not None]
    _answer(pipe, [_TRAINED, job.device, list(job.job), *numbers, astuple(spent)], arrays)


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
