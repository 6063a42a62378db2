"""The number of samples per pass of an evaluation on an accelerator."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.device_data import samples_to_device
from async_hfl.learning.evaluation import evaluator
from async_hfl.learning.models.mlp import mlp


@pytest.mark.parametrize(
    ("samples", "largest", "rows"),
    [
        (5000, 1 << 28, 5000),
        (5000, 1 << 19, 1667),  # 64 numbers a sample: 2,048 of them fit, so three passes of the same length
        (5000, 1, 1000),  # too large even for 1,024, but these are asked for: five passes
        (700, 1, 700),
    ],
)
def test_passes_are_few_and_of_the_same_length(
    samples: int, largest: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "_LARGEST", largest)
    test = Samples(np.zeros((samples, 64), np.float32), np.zeros(samples, np.int32))
    assert evaluator.rows_per_pass(mlp(64, 64, 10), test, samples_to_device(test, jax.local_devices()[0])) == rows
