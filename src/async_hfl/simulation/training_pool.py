"""Lazy, batched training over the whole network.

A result depends only on (start weights, data, seed), all known when a device is triggered. So nothing is trained until
some device's result is due; then every job outstanding anywhere is trained in one call. On CPU each result is the same
to the bit as if trained alone, so the run is exactly that of one-by-one training.

Wasted work (trained, then superseded or cut off by the run's end) is at most what is in flight, and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Learner, TrainingJob, TrainingResult
from async_hfl.core.plain import Plain, from_plain, plain, to_plain
from async_hfl.core.weights import frozen

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
        weights=frozen(result.weights.copy()),
        gradient=None if gradient is None else frozen(gradient.copy()),
    )


class TrainingPool:
    def __init__(self, learner: Learner, *, batching: bool) -> None:
        self.learner = learner
        self.batching = batching
        self.counts = PoolCounts()
        self._waiting: dict[JobId, TrainingJob] = {}
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

    def __contains__(self, job: JobId) -> bool:
        return job in self._results or job in self._waiting

    def forget(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._take(job)

    def result(self, job: JobId) -> TrainingResult:
        found = self._take(job)
        if found is None:
            if job not in self._waiting:
                raise InvariantViolation(f"the result of job {job} is due, but nobody announced it")
            if self.batching:
                self.flush()
            else:
                self._train([self._waiting.pop(job)])
            found = self._take(job)
            assert found is not None
        self.counts.used += 1
        return found

    def flush(self) -> None:
        """Train everything outstanding, in the order it was announced."""
        while self._waiting:
            # More than any learner takes at a time, and few enough that jobs and results never all exist at once.
            names = list(islice(self._waiting, _AT_ONCE))
            self._train([self._waiting.pop(name) for name in names])

    def _train(self, jobs: list[TrainingJob]) -> None:
        results = self.learner.train_many(jobs)
        for job, result in zip(jobs, results, strict=True):
            self._results[job.job] = result
        if results and results[0].weights.base is not None and results[0].weights.nbytes >= _LARGE:
            company = _Company(len(jobs), {job.job for job in jobs})
            self._company.update(dict.fromkeys(company.left, company))
        self.counts.calls += 1
        self.counts.trained += len(jobs)
        self.counts.largest = max(self.counts.largest, len(jobs))

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
        """Flushes first: a checkpoint holds results, so the batches that follow do not depend on where a run broke.

        In parts of at most `chunk` jobs, at least one part."""
        if self.batching:
            self.flush()
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
