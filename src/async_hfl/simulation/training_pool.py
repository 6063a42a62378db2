"""Lazy, batched training over the whole network.

A result depends only on (start weights, data, seed), all known when a device is triggered. So nothing is trained until
some device's result is due; then every job outstanding anywhere is trained in one call. On CPU each result is the same
to the bit as if trained alone, so the run is exactly that of one-by-one training.

Wasted work (trained, then superseded or cut off by the run's end) is at most what is in flight, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Learner, TrainingJob, TrainingResult
from async_hfl.core.plain import Plain, from_plain, plain, to_plain

_AT_ONCE = 2048


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


class TrainingPool:
    def __init__(self, learner: Learner, *, batching: bool) -> None:
        self.learner = learner
        self.batching = batching
        self.counts = PoolCounts()
        self._waiting: dict[JobId, TrainingJob] = {}
        self._results: dict[JobId, TrainingResult] = {}
        self._given = np.zeros(len(learner.samples), dtype=np.int32)
        """Jobs by device."""

    def next_generation(self, device: int) -> int:
        """How many jobs this device was given before; counts this one in."""
        generation = int(self._given[device])
        self._given[device] += 1
        return generation

    def expect(self, job: TrainingJob) -> None:
        self._waiting[job.job] = job

    def __contains__(self, job: JobId) -> bool:
        return job in self._results or job in self._waiting

    def forget(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._results.pop(job, None)

    def result(self, job: JobId) -> TrainingResult:
        found = self._results.pop(job, None)
        if found is None:
            if job not in self._waiting:
                raise InvariantViolation(f"the result of job {job} is due, but nobody announced it")
            if self.batching:
                self.flush()
            else:
                self._train([self._waiting.pop(job)])
            found = self._results.pop(job)
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
        self.counts.calls += 1
        self.counts.trained += len(jobs)
        self.counts.largest = max(self.counts.largest, len(jobs))

    def snapshot(self, chunk: int) -> Iterator[Plain]:
        """Flushes first: a checkpoint holds results, so the batches that follow do not depend on where a run broke.

        In parts of at most `chunk` jobs, at least one part."""
        if self.batching:
            self.flush()
        given = to_plain(self._given)
        yield {"counts": to_plain(self.counts), "given": given, "waiting": to_plain(self._waiting)}
        results = iter(self._results.items())
        while part := list(islice(results, chunk)):
            yield {"results": [[to_plain(job), to_plain(result)] for job, result in part]}

    def restore(self, parts: list[Plain]) -> None:
        first, *rest = parts
        self.counts, self._waiting = from_plain(first["counts"]), from_plain(first["waiting"])
        self._given = from_plain(first["given"]).copy()
        self._results = {from_plain(job): from_plain(result) for part in rest for job, result in part["results"]}
