from __future__ import annotations

import numpy as np
import pytest

from async_hfl.learning.evaluation.objectives import regression

OUTPUTS = np.array([[1.0, 2.0], [0.0, 0.0], [9.0, 9.0]], dtype=np.float32)
TARGETS = np.array([[0.0, 4.0], [0.0, 2.0], [0.0, 0.0]], dtype=np.float32)


def test_squared_error_of_each_sample() -> None:
    assert regression(2).loss(OUTPUTS, TARGETS).tolist() == [2.5, 2.0, 81.0]


def test_summary_over_batches() -> None:
    """The last sample is padding; the sums of several batches are added up."""
    objective = regression(2)
    sums = np.asarray(objective.count(OUTPUTS, TARGETS, np.array([1.0, 1.0, 0.0], dtype=np.float32)), np.float64)
    more = np.asarray(objective.count(OUTPUTS[:1], TARGETS[:1], np.ones(1, dtype=np.float32)), np.float64)
    evaluation = objective.summarise(sums + more)
    assert objective.metric == "mse"
    assert evaluation.metric == evaluation.loss == pytest.approx((2.5 + 2.0 + 2.5) / 3)
    assert evaluation.details == pytest.approx({"value_0": 2 / 3, "value_1": 4.0})


def test_padding_that_is_not_finite_has_no_effect() -> None:
    outputs = OUTPUTS.copy()
    outputs[2] = np.nan
    sums = np.asarray(regression(2).count(outputs, TARGETS, np.array([1.0, 1.0, 0.0], dtype=np.float32)))
    assert np.isfinite(sums).all()
