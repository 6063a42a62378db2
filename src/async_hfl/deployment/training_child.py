"""Training in a process of its own: a parent that computes would miss its heartbeats.

The child is spawned (never forked: gRPC and JAX have threads), lives exactly as long as its parent (it reads the end of
its pipe, and the kernel ends it besides) and trains one job after the other. Jobs and results cross the pipe as
MessagePack and raw arrays.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import msgspec
import numpy as np

from async_hfl.core.errors import AsyncHflError, UserError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.weights import Weights, frozen
from async_hfl.deployment.lifetime import die_with_parent

_READY, _FAILED, _TRAINED = "ready", "failed", "trained"
_TRAIN, _STOP, _LEAVE = "train", "stop", "leave"
_LEAVING_S = 5.0


class LocalLearner(Protocol):
    """A device's part of a task, made trainable."""

    def samples(self, device: int) -> int: ...

    def train(self, job: TrainingJob) -> TrainingResult:
        """`job.device` counts the devices of this process."""
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """What a child says when it has loaded and compiled everything."""

    samples: tuple[int, ...]
    """By device."""
    compute_s: tuple[float, ...]
    """One training each, timed."""


class TrainingFailed(UserError):
    """The child could not begin, or is gone."""


class TrainingChild:
    def __init__(
        self,
        make: Callable[[], tuple[LocalLearner, Ready]],
        trained: Callable[[int, JobId, TrainingResult, float], None],
        gone: Callable[[], None],
    ) -> None:
        """`make` is called in the child. `trained` and `gone` are called on a thread of the parent's."""
        self._make = make
        self._trained = trained
        self._gone = gone
        self._closing = False
        self._process: Any = None
        self._pipe: Connection | None = None

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
        self._pipe = ours
        try:
            kind, *rest = msgspec.msgpack.decode(ours.recv_bytes())
        except (EOFError, OSError):
            ready.set_exception(
                TrainingFailed("the training process ended before it was ready; its own words are above")
            )
            return
        if kind == _FAILED:
            ready.set_exception(TrainingFailed(rest[0]))
            return
        ready.set_result(Ready(tuple(rest[0]), tuple(rest[1])))
        self._listen(ours)

    def train(self, job: TrainingJob) -> None:
        self._say([_TRAIN, job.device, list(job.job), job.seed, job.generation], job.weights)

    def stop(self, job: JobId) -> None:
        self._say([_STOP, list(job)])

    def close(self) -> None:
        self._closing = True
        if self._pipe is not None:
            # A thread of ours is reading: closing our end would not reach the child before that thread has let go.
            self._say([_LEAVE])
        if self._process is not None:
            self._process.join(_LEAVING_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()

    def _say(self, head: list[Any], weights: Weights | None = None) -> None:
        assert self._pipe is not None
        with contextlib.suppress(OSError):  # gone: the listener tells
            self._pipe.send_bytes(msgspec.msgpack.encode(head))
            if weights is not None:
                self._pipe.send_bytes(np.ascontiguousarray(weights).data)

    def _listen(self, pipe: Connection) -> None:
        try:
            while True:
                head = msgspec.msgpack.decode(pipe.recv_bytes())
                if head[0] == _FAILED:
                    print(head[1], file=sys.stderr)  # noqa: T201  (the child's own words, for a person)
                    continue
                _, device, job, samples, steps, loss, squared_loss, has_gradient, seconds = head
                weights = _array(pipe)
                gradient = _array(pipe) if has_gradient else None
                result = TrainingResult(weights, samples, steps, loss, squared_loss, gradient)
                self._trained(device, JobId(*job), result, seconds)
        except (EOFError, OSError):
            if not self._closing:
                self._gone()


def _array(pipe: Connection) -> Weights:
    return frozen(np.frombuffer(pipe.recv_bytes(), np.float32))


# In the child ---------------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, make: Callable[[], tuple[LocalLearner, Ready]]) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        learner, ready = make()
    except AsyncHflError as error:
        pipe.send_bytes(msgspec.msgpack.encode([_FAILED, str(error)]))
        return
    pipe.send_bytes(msgspec.msgpack.encode([_READY, ready.samples, ready.compute_s]))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _train_for_ever(pipe, learner)


def _train_for_ever(pipe: Connection, learner: LocalLearner) -> None:
    waiting: list[TrainingJob] = []
    while True:
        while not waiting or pipe.poll():
            _take(pipe, waiting)
        job = waiting.pop(0)
        begun = time.perf_counter()
        result = learner.train(job)
        seconds = time.perf_counter() - begun
        arrays = [result.weights] if result.gradient is None else [result.weights, result.gradient]
        head = [
            _TRAINED,
            job.device,
            list(job.job),
            result.samples,
            result.steps,
            result.loss,
            result.squared_loss,
            result.gradient is not None,
            seconds,
        ]
        _answer(pipe, head, arrays)


def _take(pipe: Connection, waiting: list[TrainingJob]) -> None:
    kind, *rest = msgspec.msgpack.decode(pipe.recv_bytes())
    if kind == _LEAVE:
        raise EOFError
    if kind == _STOP:
        stopped = JobId(*rest[0])
        waiting[:] = [job for job in waiting if job.job != stopped]
        return
    device, job, seed, generation = rest
    waiting.append(TrainingJob(JobId(*job), device, _array(pipe), seed, generation))


def _answer(pipe: Connection, head: list[Any], arrays: Sequence[Any]) -> None:
    pipe.send_bytes(msgspec.msgpack.encode(head))
    for array in arrays:
        pipe.send_bytes(np.ascontiguousarray(array, np.float32).data)
