"""Evaluation of a model for each device."""

from __future__ import annotations

import numpy as np
import pytest
from learning_cases import SIZES, uneven_task, with_noise

from async_hfl.core.maths.quantiles import spread
from async_hfl.core.weights import Weights
from async_hfl.learning.evaluation.evaluator import Evaluator
from async_hfl.learning.evaluation.per_device import PerDeviceEvaluation
from async_hfl.learning.partition.natural import owners_test_rows
from async_hfl.learning.tasks.task_learner import Task

TASK = uneven_task((*SIZES, 150))


def weights_of(task: Task) -> Weights:
    return with_noise(task.model.init(np.random.default_rng(1)), seed=1)


def test_it_agrees_with_evaluating_each_device_alone() -> None:
    weights = weights_of(TASK)
    found = PerDeviceEvaluation(TASK.model, TASK.objective, TASK.train, TASK.owned).evaluate(weights)
    for evaluation, rows in zip(found, TASK.owned, strict=True):
        assert evaluation is not None
        alone = Evaluator(TASK.model, TASK.objective, TASK.train.rows(rows)).begin(weights)()
        assert evaluation.metric == alone.metric
        assert evaluation.loss == pytest.approx(alone.loss, rel=1e-5)
        assert evaluation.details == pytest.approx(dict(alone.details))


def test_a_large_device_is_evaluated_on_some_of_its_samples() -> None:
    task = uneven_task((30, 1000))
    weights = weights_of(task)
    small, large = PerDeviceEvaluation(task.model, task.objective, task.train, task.owned).evaluate(weights)
    assert small is not None
    assert large is not None
    assert (large.metric * 200) % 1 == pytest.approx(0, abs=1e-9)
    whole = Evaluator(task.model, task.objective, task.train.rows(task.owned[1])).begin(weights)()
    assert large.metric == pytest.approx(whole.metric, abs=0.1)


def test_it_is_reproducible_to_the_bit() -> None:
    weights = weights_of(TASK)
    evaluator = PerDeviceEvaluation(TASK.model, TASK.objective, TASK.train, TASK.owned)
    again = PerDeviceEvaluation(TASK.model, TASK.objective, TASK.train, TASK.owned[::-1])
    assert evaluator.evaluate(weights) == evaluator.evaluate(weights) == again.evaluate(weights)[::-1]


def test_a_device_without_samples_has_no_value() -> None:
    owned = (TASK.owned[0], np.zeros(0, dtype=np.int64))
    one, nothing = PerDeviceEvaluation(TASK.model, TASK.objective, TASK.train, owned).evaluate(weights_of(TASK))
    assert one is not None
    assert nothing is None


def test_natural_owners_are_evaluated_on_their_own_part_of_the_test_set() -> None:
    owner = np.array([2, 2, 0, 0, 0, 5], dtype=np.int32)
    test_owner = np.array([0, 2, 2, 0], dtype=np.int32)
    owned = [np.array(rows) for rows in ([2, 4], [3], [0, 1], [5])]
    found = owners_test_rows(owned, owner, test_owner)
    assert [rows.tolist() for rows in found] == [[0, 3], [0, 3], [1, 2], []]


def test_spread() -> None:
    values = [0.9, None, 0.2, 0.5, 0.7, float("nan")]
    assert spread(values) == {
        "devices": 4,
        "worst": 0.2,
        "worst_device": 2,
        "worst_tenth": 0.2,
        "median": 0.6,
        "best": 0.9,
    }
    errors = spread(values, "at_most")
    assert (errors["worst"], errors["worst_device"], errors["best"]) == (0.9, 0, 0.2)
    assert spread([None])["worst"] is None
    assert spread([float(n) for n in range(40)])["worst_tenth"] == 1.5
