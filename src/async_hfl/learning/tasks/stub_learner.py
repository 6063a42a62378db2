"""A fast learner that learns nothing, to measure the simulator and to simulate faults without training.

As in real training, a result depends on the job's start weights and seed alone, so that replay, batching and
checkpoints are tested. Weights stay bounded and the target cannot be reached, so that a run lasts as long as its
settings say.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import final

import numpy as np

from async_hfl.core.learner import Evaluation, TrainingJob, TrainingResult
from async_hfl.core.maths.targets import Target
from async_hfl.core.randomness import scramble_many, stream
from async_hfl.core.weights import Layout, Weights

_NOISE_SHARE = np.float32(0.125)
"""Share of a result that is noise; a power of two, so that results can be computed by hand."""
_BLOCK_VALUES = 1 << 14
"""Values hashed at a time, so that a large call fits into the cache."""


@final
class StubLearner:
    """`core.learner.Learner` without JAX: final = 7/8 start + 1/8 noise(seed), noise uniform in [-1, 1)."""

    def __init__(
        self, devices: int, size: int, gradient: bool = False, threshold: float = 2.0, *, statistics: int = 0
    ) -> None:
        """Make a model of `size` numbers. The last `statistics` of them are no part of a gradient."""
        self.layout = Layout(("noise",), ((size,),))
        self.gradient_size = size - statistics
        self.model_bytes = 4 * size
        self.target = Target("calm", threshold)
        self.learning_rate = 1.0
        self.samples = np.ones(devices, dtype=np.int64)
        self.samples.flags.writeable = False
        self._gradient = gradient
        # Counter 0 determines the losses; each weight has a counter of its own.
        self._counters = np.arange(size + 1, dtype=np.uint64)

    def initial_weights(self, seed: int) -> Weights:
        return self.layout.flatten({"noise": stream(seed, "initial").uniform(-1, 1, self.layout.size)})

    def compile(self) -> None:
        return

    def train_many(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        block = max(1, _BLOCK_VALUES // len(self._counters))
        if len(jobs) <= block:
            return self._train(jobs) if jobs else []
        return [result for first in range(0, len(jobs), block) for result in self._train(jobs[first : first + block])]

    def evaluate(self, weights: Weights) -> Evaluation:
        """Return a metric that is 1 at the origin and falls towards 0 far from it; the target of 2 is never reached."""
        distance = float(np.dot(weights, weights)) / max(1, len(weights))
        return Evaluation(metric=1.0 / (1.0 + distance), loss=distance)

    def evaluate_by_device(self, weights: Weights) -> list[Evaluation | None]:
        """Return an empty list: there is no data."""
        return []

    def _train(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult]:
        seeds = np.array([job.seed for job in jobs], dtype=np.uint64)
        hashes = scramble_many(scramble_many(seeds)[:, None] ^ self._counters)
        # The top 24 bits fill a float32 exactly.
        noise = (hashes[:, 1:] >> np.uint64(40)).astype(np.float32)
        noise *= np.float32(2.0**-23)
        noise -= np.float32(1.0)
        # A concatenation is faster than stacking, which reads the shape of every array first.
        weights = np.concatenate([job.weights for job in jobs]).reshape(len(jobs), -1)
        weights += _NOISE_SHARE * (noise - weights)
        losses = (hashes[:, 0] >> np.uint64(11)) * 2.0**-53
        squares = losses * losses
        # Rows of a read-only matrix are read-only.
        weights.flags.writeable = False
        noise.flags.writeable = False
        gradients = iter(noise[:, : self.gradient_size]) if self._gradient else repeat(None)
        return list(map(TrainingResult, weights, repeat(1), repeat(1), losses.tolist(), squares.tolist(), gradients))
