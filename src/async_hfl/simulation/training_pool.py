"""Lazy, batched training for the whole simulated network.

A result depends only on the job's start weights, data and seed, which are all known when the job is announced. So no
job is trained until a result is due; then all jobs that wait anywhere in the network are trained in one call. On CPU
every result is the same to the bit as if its job had been trained alone, so the run is exactly that of one-by-one
training.

A learner that works in the background (`AsyncLearner`) may be given a call earlier: as soon as enough jobs wait, while
the simulation still has results to go on with.

The pool also numbers the jobs of each device (their generation) and derives their seeds. Work that is trained and then
not used (superseded, or cut off by the end of the run) is at most what is in flight; it is counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import (
    AsyncLearner,
    Evaluation,
    Learner,
    Remembering,
    ResultEncoding,
    Results,
    TrainingJob,
    TrainingResult,
)
from async_hfl.core.randomness import stream_seed, training_seed
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.core.weights import Weights, frozen

_MAX_CALL = 2048
"""Jobs in one call: more than any learner trains at a time, but not all jobs of a large network, whose results would
exist at once."""
_LARGE = 1 << 14
"""Bytes from which on a model is worth copying out of the memory that the results of a call share."""
_COPY_BELOW = 4
"""Results are copied once no more than one in this many of their call are left."""


@plain
@dataclass(slots=True)
class PoolCounts:
    calls: int = 0
    trained: int = 0
    used: int = 0
    largest: int = 0

    @property
    def wasted(self) -> int:
        """Results trained and not used (yet)."""
        return self.trained - self.used


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Jobs whose training has begun."""

    jobs: Sequence[TrainingJob]
    results: Results


@dataclass(slots=True)
class _SharedMemory:
    """The memory of one call, of which its results are views."""

    size: int
    """Results that the call returned."""
    left: set[JobId]
    """Jobs whose results have not been taken yet."""


class TrainingPool:
    def __init__(self, learner: Learner, seed: int, *, batching: bool) -> None:
        self.learner = learner
        self.batching = batching
        self.counts = PoolCounts()
        self.waiting: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered while `result` waits for training. It may raise GaveUpWaiting, which leaves the pool as it was."""
        self._seed = stream_seed(seed, "training")
        self._async = learner if batching and isinstance(learner, AsyncLearner) else None
        self._prefetch = None if self._async is None else self._async.prefetch
        self._waiting: dict[JobId, TrainingJob] = {}
        self._calls: list[_Call] = []
        """Calls that have begun and have not been collected."""
        self._begun: dict[JobId, _Call] = {}
        """The jobs of those calls, without the ones that were forgotten."""
        self._results: dict[JobId, TrainingResult] = {}
        self._shared: dict[JobId, _SharedMemory] = {}
        self._generations = array("i", bytes(4 * len(learner.samples)))
        """Number of jobs announced so far, by device."""

    def expect(self, job: JobId, device: int, weights: Weights, encoding: ResultEncoding | None = None) -> None:
        """Announce a job. Its result will be asked for, unless the job is forgotten."""
        generation = self._generations[device]
        self._generations[device] = generation + 1
        seed = training_seed(self._seed, job)
        self._waiting[job] = TrainingJob(job, device, weights, seed, generation, encoding)
        if self._prefetch is not None:
            self._begin_early()

    def __contains__(self, job: JobId) -> bool:
        return job in self._results or job in self._waiting or job in self._begun

    def forget(self, job: JobId) -> None:
        """Drop a job whose result will not be used."""
        self._waiting.pop(job, None)
        self._begun.pop(job, None)
        if job in self._results:
            self._take(job)

    def result(self, job: JobId) -> TrainingResult:
        """Return the result of a job that was announced, and drop it from the pool."""
        if job not in self._results:
            self._train(job)
            found = self._take(job)
            if self._prefetch is not None:
                self._begin_early()
        else:
            found = self._take(job)
        self.counts.used += 1
        return found

    def _train(self, job: JobId) -> None:
        """Wait for the results of a job and, if jobs are trained together, of all others that wait."""
        if job in self._begun:
            self._collect(self._begun[job], self.waiting)
        elif job not in self._waiting:
            raise InvariantViolation(f"the result of job {job} is due, but the job was never announced")
        elif self.batching:
            while self._waiting:
                self._collect(self._begin(), self.waiting)
        else:
            self._collect(self._begin([job]), self.waiting)

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        """Begin to evaluate a model; the function returned waits for the answer and is called once."""
        if self._async is None or self._prefetch is None or not self._prefetch.in_order:
            return partial(self.learner.evaluate, weights)
        answer, earlier = self._async.begin_evaluation(weights), list(self._calls)

        def evaluated() -> Evaluation:
            evaluation = answer()
            # The learner works in order, so these calls are complete and collecting them does not wait.
            for call in earlier:
                if call in self._calls:
                    self._collect(call)
            self._begin_early()
            return evaluation

        return evaluated

    def _begin_early(self) -> None:
        policy, waiting = self._prefetch, len(self._waiting)
        assert policy is not None
        if (
            waiting >= policy.min_jobs
            and self._results  # otherwise the next result is due from this very call, and a larger call is better
            and len(self._calls) < policy.max_calls
            and waiting >= policy.min_share * (waiting + len(self._begun) + len(self._results))
        ):
            self._begin()

    def _begin(self, names: Sequence[JobId] | None = None) -> _Call:
        """Begin to train these jobs; None: those that wait, in the order in which they were announced."""
        if names is None:
            names = list(islice(self._waiting, _MAX_CALL))
        jobs = [self._waiting.pop(name) for name in names]
        # A learner that does not work in the background trains when the call is collected, which is at once.
        results = partial(self.learner.train_many, jobs) if self._async is None else self._async.begin(jobs)
        call = _Call(jobs, results)
        self._calls.append(call)
        self._begun.update(dict.fromkeys(names, call))
        self.counts.calls += 1
        self.counts.trained += len(jobs)
        self.counts.largest = max(self.counts.largest, len(jobs))
        return call

    def _collect(self, call: _Call, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        with waiting():
            results = call.results()
        self._calls.remove(call)
        found = {
            job.job: result
            for job, result in zip(call.jobs, results, strict=True)
            if self._begun.pop(job.job, None) is not None
        }
        self._results.update(found)
        first = results[0].weights
        if found and isinstance(first, np.ndarray) and first.base is not None and first.nbytes >= _LARGE:
            self._shared.update(dict.fromkeys(found, _SharedMemory(len(results), set(found))))

    def _take(self, job: JobId) -> TrainingResult:
        """Remove a result. The few that are then left of its call are copied, so that one slow device does not keep the
        models of all others in memory."""
        shared = self._shared.pop(job, None) if self._shared else None
        if shared is not None:
            shared.left.discard(job)
            if len(shared.left) * _COPY_BELOW <= shared.size:
                for other in shared.left:
                    self._results[other] = _copied(self._results[other])
                    del self._shared[other]
                shared.left.clear()
        return self._results.pop(job)

    def snapshot(self, chunk: int, *, train: bool) -> Iterator[Plain]:
        """Yield the state in parts of at most `chunk` results, at least one part.

        `train`: train all jobs first. A checkpoint then holds results instead of jobs, so the calls after it are the
        same in a run that was resumed. Otherwise jobs that have begun are stored as if they had not."""
        if self.batching and train:
            for call in list(self._calls):
                self._collect(call)
            while self._waiting:
                self._collect(self._begin())
        begun = {job.job: job for call in self._calls for job in call.jobs}
        waiting = {**{name: job for name, job in begun.items() if name in self._begun}, **self._waiting}
        counts = replace(
            self.counts, calls=self.counts.calls - len(self._calls), trained=self.counts.trained - len(begun)
        )
        generations = np.array(self._generations)
        memory = {"memory": self.learner.memory()} if isinstance(self.learner, Remembering) else {}
        yield {"counts": to_plain(counts), "generations": generations, "waiting": to_plain(waiting), **memory}
        results = iter(self._results.items())
        while part := list(islice(results, chunk)):
            yield {"results": [[to_plain(job), to_plain(result)] for job, result in part]}

    def restore(self, parts: list[Plain]) -> None:
        first, *rest = parts
        self.counts, self._waiting = from_plain(first["counts"]), from_plain(first["waiting"])
        self._generations = array("i", np.ascontiguousarray(first["generations"], np.intc).tobytes())
        if isinstance(self.learner, Remembering) and "memory" in first:
            self.learner.remember(first["memory"])
        self._results = {from_plain(job): from_plain(result) for part in rest for job, result in part["results"]}


def _copied(result: TrainingResult) -> TrainingResult:
    gradient = result.gradient
    return replace(
        result,
        weights=frozen(np.array(result.weights)),
        gradient=None if gradient is None else frozen(np.array(gradient)),
    )
