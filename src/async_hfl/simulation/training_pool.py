"""Lazy, batched training over the whole network.

A result depends only on (start weights, data, seed), all known when a device is triggered. So nothing is trained until
some device's result is due; then every job outstanding anywhere is trained in one call. On CPU each result is the same
to the bit as if trained alone, so the run is exactly that of one-by-one training.

Where a learner can train while something else is done, a call may begin sooner: as soon as enough jobs wait, while
there are results left to go on with.

Wasted work (trained, then superseded or cut off by the run's end) is at most what is in flight, and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import AsyncLearner, Evaluation, Learner, Results, TrainingJob, TrainingResult
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.core.weights import Weights, frozen

_AT_ONCE = 2048
_LARGE = 1 << 14
"""Bytes of a model from which it matters how long a result keeps those alive that were trained with it."""
_FEW = 4
"""One in so many: the results of a call that are still waiting are then copied out of its memory."""


@plain
@dataclass(slots=True)
class PoolCounts:
    calls: int = 0
    trained: int = 0
    used: int = 0
    largest: int = 0

    @property
    def wasted(self) -> int:
        """Trained and not used (yet)."""
        return self.trained - self.used


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Jobs whose training has begun."""

    jobs: list[JobId]
    results: Results


@dataclass(slots=True)
class _Company:
    """Jobs that were trained in one call."""

    size: int
    left: set[JobId]
    """Whose results nobody has asked for yet."""


def _copied(result: TrainingResult) -> TrainingResult:
    gradient = result.gradient
    return replace(
        result,
        weights=frozen(np.array(result.weights)),
        gradient=None if gradient is None else frozen(np.array(gradient)),
    )


def _is_large_view(weights: Weights) -> bool:
    return isinstance(weights, np.ndarray) and weights.base is not None and weights.nbytes >= _LARGE


class TrainingPool:
    def __init__(self, learner: Learner, *, batching: bool) -> None:
        self.learner = learner
        self.batching = batching
        self.counts = PoolCounts()
        self._early = learner if batching and isinstance(learner, AsyncLearner) else None
        self._ahead = None if self._early is None else self._early.prefetch
        self._waiting: dict[JobId, TrainingJob] = {}
        self._calls: list[_Call] = []
        """Begun and not collected."""
        self._begun: dict[JobId, _Call] = {}
        """The jobs in them that have not been forgotten."""
        self._results: dict[JobId, TrainingResult] = {}
        self._company: dict[JobId, _Company] = {}
        self._given = array("i", bytes(4 * len(learner.samples)))
        """Jobs by device."""

    def next_generation(self, device: int) -> int:
        """How many jobs this device was given before; counts this one in."""
        generation = self._given[device]
        self._given[device] = generation + 1
        return generation

    def expect(self, job: TrainingJob) -> None:
        self._waiting[job.job] = job
        if self._ahead is not None:
            self._begin_ahead()

    def __contains__(self, job: JobId) -> bool:
        return job in self._results or job in self._waiting or job in self._begun

    def forget(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._begun.pop(job, None)
        self._take(job)

    def result(self, job: JobId) -> TrainingResult:
        found = self._take(job)
        if found is None:
            self._have_trained(job)
            found = self._take(job)
            assert found is not None
            if self._ahead is not None:
                self._begin_ahead()
        self.counts.used += 1
        return found

    def _have_trained(self, job: JobId) -> None:
        if job in self._begun:
            self._collect(self._begun[job])
        elif job not in self._waiting:
            raise InvariantViolation(f"the result of job {job} is due, but nobody announced it")
        elif self.batching:
            self._flush()
        else:
            self._collect(self._begin([job]))

    @property
    def evaluates_aside(self) -> bool:
        """Does the learner evaluate while something else is done?"""
        return self._ahead is not None and self._ahead.in_turn

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        """What gives the answer, to be called once. Calls that were begun before are done by then."""
        if self._early is None or not self.evaluates_aside:
            return partial(self.learner.evaluate, weights)
        answer, before = self._early.begin_evaluation(weights), list(self._calls)

        def evaluated() -> Evaluation:
            evaluation = answer()
            for call in before:
                if call in self._calls:
                    self._collect(call)
            self._begin_ahead()
            return evaluation

        return evaluated

    def _begin_ahead(self) -> None:
        ahead, waiting = self._ahead, len(self._waiting)
        assert ahead is not None
        if (
            waiting >= ahead.jobs
            and self._results  # else somebody is about to wait for this call, and the larger it is the better
            and len(self._calls) < ahead.calls
            and waiting >= ahead.share * (waiting + len(self._begun) + len(self._results))
        ):
            self._begin_waiting()

    def _flush(self) -> None:
        """Train everything that waits, in the order it was announced."""
        while self._waiting:
            self._collect(self._begin_waiting())

    def _begin_waiting(self) -> _Call:
        # More than any learner takes at a time, and few enough that jobs and results never all exist at once.
        return self._begin(list(islice(self._waiting, _AT_ONCE)))

    def _begin(self, names: list[JobId]) -> _Call:
        jobs = [self._waiting.pop(name) for name in names]
        # A learner that cannot begin trains when it is collected, which is at once.
        results = partial(self.learner.train_many, jobs) if self._early is None else self._early.begin(jobs)
        call = _Call(names, results)
        self._calls.append(call)
        self._begun.update(dict.fromkeys(names, call))
        self.counts.calls += 1
        self.counts.trained += len(jobs)
        self.counts.largest = max(self.counts.largest, len(jobs))
        return call

    def _collect(self, call: _Call) -> None:
        self._calls.remove(call)
        results = call.results()
        wanted = [name for name in call.jobs if self._begun.pop(name, None) is not None]
        found = dict(zip(call.jobs, results, strict=True))
        self._results.update((name, found[name]) for name in wanted)
        if wanted and _is_large_view(results[0].weights):
            company = _Company(len(call.jobs), set(wanted))
            self._company.update(dict.fromkeys(wanted, company))

    def _take(self, job: JobId) -> TrainingResult | None:
        """Results are views of what a call gave. A slow device's must not keep the models of all others in memory."""
        company = self._company.pop(job, None) if self._company else None
        if company is not None:
            company.left.discard(job)
            if len(company.left) * _FEW <= company.size:
                for other in company.left:
                    self._results[other] = _copied(self._results[other])
                    del self._company[other]
                company.left.clear()
        return self._results.pop(job, None)

    def snapshot(self, chunk: int) -> Iterator[Plain]:
        """Trains all first: a checkpoint holds results, so the batches that follow do not depend on where a run broke.

        In parts of at most `chunk` jobs, at least one part."""
        if self.batching:
            for call in list(self._calls):
                self._collect(call)
            self._flush()
        given = np.array(self._given)
        yield {"counts": to_plain(self.counts), "given": given, "waiting": to_plain(self._waiting)}
        results = iter(self._results.items())
        while part := list(islice(results, chunk)):
            yield {"results": [[to_plain(job), to_plain(result)] for job, result in part]}

    def restore(self, parts: list[Plain]) -> None:
        first, *rest = parts
        self.counts, self._waiting = from_plain(first["counts"]), from_plain(first["waiting"])
        self._given = array("i", np.ascontiguousarray(first["given"], np.intc).tobytes())
        self._results = {from_plain(job): from_plain(result) for part in rest for job, result in part["results"]}
