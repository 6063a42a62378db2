"""The contract that every selection policy fulfils for any problem."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decision_problems import random_selection_problem, selection_problem

from async_hfl.core.policies import Selection, SelectionPolicy, SelectionProblem
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.decisions.selection.divfl import DivFl
from async_hfl.decisions.selection.high_loss import HighLoss
from async_hfl.decisions.selection.longest_idle import LongestIdle
from async_hfl.decisions.selection.oort import Oort
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.short_latency import ShortLatency
from async_hfl.decisions.selection.tifl import Tifl
from async_hfl.decisions.selection.user_policy import OwnSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack


def fastest_first(problem: SelectionProblem) -> Sequence[int]:
    """A policy as a user might write it."""
    chosen: list[int] = []
    left = problem.capacity
    for place in problem.round_latency.argsort(kind="stable"):
        if problem.data_rate[place] <= left * (1.0 - 1e-12) or (not chosen and problem.data_rate[place] <= left):
            chosen.append(problem.candidates[place])
            left -= problem.data_rate[place]
    return chosen


FILLING: list[SelectionPolicy] = [
    UtilityKnapsack(),
    RandomSelection(),
    HighLoss(),
    ShortLatency(),
    LongestIdle(),
    DivFl(),
    OwnSelection(fastest_first, "mine.py"),
]
POLICIES: list[SelectionPolicy] = [*FILLING, Oort(), Tifl(), Tifl("high-loss")]
"""Oort takes no device below its cut-off, so it may leave bandwidth free. TiFL does so if it is told tiers."""


def name_of(policy: SelectionPolicy) -> str:
    return type(policy).__name__


@pytest.fixture(params=POLICIES, ids=name_of)
def policy(request: pytest.FixtureRequest) -> SelectionPolicy:
    chosen: SelectionPolicy = request.param
    return chosen


@pytest.fixture(params=FILLING, ids=name_of)
def filling(request: pytest.FixtureRequest) -> SelectionPolicy:
    chosen: SelectionPolicy = request.param
    return chosen


COLUMNS = ("candidates", "data_rate", "learning_utility", "loss", "samples", "round_latency", "gradients", "last_seen")


def same(one: Selection, other: Selection) -> bool:
    memories = [
        None if found.memory is None else json.dumps(to_plain(found.memory), default=repr) for found in (one, other)
    ]
    return (one.devices, one.objective, one.bound) == (other.devices, other.objective, other.bound) and (
        memories[0] == memories[1]
    )


def test_contract(policy: SelectionPolicy) -> None:
    """Only candidates; within the bandwidth; never empty while a device fits; the same answer for the same problem;
    memory that can be stored in a checkpoint; an unchanged problem."""
    rng = np.random.default_rng(11)
    memory: Mapping[str, Any] = {}
    for _ in range(300):
        problem = replace(random_selection_problem(rng), memory=memory if rng.random() < 0.8 else {})
        before = [getattr(problem, name).copy() for name in COLUMNS]
        remembered = to_plain(problem.memory)
        selection = policy.choose(problem)
        assert type(selection.devices) is tuple
        assert all(type(device) is int for device in selection.devices)
        assert len(set(selection.devices)) == len(selection.devices)
        places = np.searchsorted(problem.candidates, selection.devices)
        assert (problem.candidates[places] == selection.devices).all()
        if selection.devices:
            assert math.fsum(problem.data_rate[places].tolist()) <= problem.capacity
        elif problem.capacity > 0.0:
            assert not (problem.data_rate <= problem.capacity).any(), "nobody chosen although somebody fits"
        assert selection.bound is None or selection.bound >= selection.objective
        assert same(policy.choose(problem), selection), "the same problem has the same answer"
        for name, copy in zip(COLUMNS, before, strict=True):
            assert np.array_equal(getattr(problem, name), copy, equal_nan=copy.dtype.kind == "f"), "nothing is changed"
        assert repr(to_plain(problem.memory)) == repr(remembered)
        memory = from_plain(to_plain(selection.memory or {}))


@pytest.mark.parametrize("policy", [HighLoss(), ShortLatency(), LongestIdle(), DivFl(), Oort(), Tifl()], ids=name_of)
def test_a_number_of_devices_is_a_limit_beside_the_bandwidth(policy: SelectionPolicy) -> None:
    """Of those that fit, as many as are asked for; Oort also counts those that explore and exploit."""
    rng = np.random.default_rng(17)
    for _ in range(100):
        problem = replace(random_selection_problem(rng), most=int(rng.integers(1, 12)))
        chosen = policy.choose(problem).devices
        assert len(chosen) <= (problem.most or 0)
        roomy = replace(problem, capacity=1e12)
        assert len(policy.choose(roomy).devices) == min(problem.most or 0, len(problem.candidates))


@pytest.mark.parametrize("capacity", [-1.0, 0.0, 0.5])
def test_empty_if_no_device_fits(policy: SelectionPolicy, capacity: float) -> None:
    assert policy.choose(selection_problem(np.array([1.0, 2.0]), capacity)).devices == ()


def test_empty_without_candidates(policy: SelectionPolicy) -> None:
    assert policy.choose(selection_problem(np.empty(0), 100.0)).devices == ()


def test_the_one_candidate_that_fits_exactly(policy: SelectionPolicy) -> None:
    assert policy.choose(selection_problem(np.array([1.7]), 1.7)).devices == (10,)


def test_all_devices_if_all_fit(filling: SelectionPolicy) -> None:
    rates = np.random.default_rng(0).uniform(1.0, 2.0, 50)
    assert sorted(filling.choose(selection_problem(rates, 1e3)).devices) == (10 + 2 * np.arange(50)).tolist()


def test_no_policy_leaves_usable_capacity(filling: SelectionPolicy) -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        problem = random_selection_problem(rng)
        places = np.searchsorted(problem.candidates, filling.choose(problem).devices)
        left = problem.capacity - math.fsum(problem.data_rate[places].tolist())
        others = np.delete(problem.data_rate, places)
        assert not (others <= left * (1.0 - 1e-9)).any() or left <= 0.0


class TestUtilityKnapsack:
    def test_needs_utility(self) -> None:
        assert UtilityKnapsack().needs == {"utility"}

    @pytest.mark.parametrize(
        ("kappa", "devices", "objective"),
        # By hand: u = 0.9, 0.5, 0.4; tau = 50, 10, 20; capacity for the first one or for the last two.
        [(0.0, (10,), 0.9), (1.0, (12, 14), 0.5 / 10 + 0.4 / 20), (2.0, (12, 14), 0.5 / 100 + 0.4 / 400)],
    )
    def test_by_hand(self, kappa: float, devices: tuple[int, ...], objective: float) -> None:
        problem = selection_problem(
            np.array([4.0, 2.5, 1.5]),
            4.0,
            utility=np.array([0.9, 0.5, 0.39999 if kappa == 0.0 else 0.4]),
            latency=np.array([50.0, 10.0, 20.0]),
            kappa=kappa,
        )
        selection = UtilityKnapsack().choose(problem)
        assert selection.devices == devices
        assert selection.objective == pytest.approx(objective)
        assert selection.bound == selection.objective

    def test_a_utility_of_zero_is_better_than_idling(self) -> None:
        problem = selection_problem(
            np.array([1.0, 1.0, 9.0]), 5.0, utility=np.array([0.0, 0.0, 1.0]), latency=np.array([30.0, 20.0, 10.0])
        )
        selection = UtilityKnapsack().choose(problem)
        assert (selection.devices, selection.objective, selection.bound) == ((12,), 0.0, 0.0)


class TestRandomSelection:
    def test_needs_nothing(self) -> None:
        assert RandomSelection().needs == frozenset()

    def test_every_device_comes_first_equally_often(self) -> None:
        problem = selection_problem(np.ones(10), 1.0)
        rng = np.random.default_rng(0)
        seeds = rng.integers(0, 2**63, 4000).tolist()
        first = [RandomSelection().choose(replace(problem, seed=seed)).devices[0] for seed in seeds]
        counts = np.bincount(np.array(first), minlength=30)[problem.candidates]
        assert counts.sum() == 4000
        # 400 expected each, standard deviation 19.
        assert abs(counts - 400).max() < 4.5 * 19

    def test_pairs_are_as_likely_as_each_other(self) -> None:
        problem = selection_problem(np.ones(5), 2.0)
        seeds = np.random.default_rng(1).integers(0, 2**63, 4000).tolist()
        pairs = [RandomSelection().choose(replace(problem, seed=seed)).devices for seed in seeds]
        _, counts = np.unique(np.array(pairs), axis=0, return_counts=True)
        # 20 ordered pairs, 200 expected each, standard deviation 14.
        assert len(counts) == 20
        assert abs(counts - 200).max() < 4.5 * 14

    def test_larger_devices_are_skipped(self) -> None:
        problem = selection_problem(np.array([1.0, 1.0, 1.0, 50.0, 2.5]), 3.0)
        for seed in range(50):
            chosen = RandomSelection().choose(replace(problem, seed=seed)).devices
            assert sorted(chosen) in ([10, 12, 14], [18])

    def test_rates_that_fill_the_capacity_exactly_are_all_taken(self) -> None:
        """In some orders these sums exceed their exact value: rounding must not matter."""
        rates = np.array([0.1, 0.2, 0.3, 0.4, 0.7, 0.6])
        capacity = math.fsum(rates.tolist())
        for seed in range(50):
            assert len(RandomSelection().choose(selection_problem(rates, capacity, seed=seed)).devices) == 6

    def test_a_negative_or_long_seed_is_a_seed(self) -> None:
        problem = selection_problem(np.ones(10), 3.0)
        for seed in (-1, 2**64 - 1, 2**80):
            assert len(RandomSelection().choose(replace(problem, seed=seed)).devices) == 3
