"""Associations against brute force, and what each policy promises."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from decision_problems import association_problem, random_association_problem

from async_hfl.core.errors import SolverError
from async_hfl.core.policies import (
    Association,
    AssociationPolicy,
    AssociationProblem,
    Ints,
    association_objective,
)
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.solver import LinearProgramme, solve_linear

POLICIES: list[AssociationPolicy] = [BalancedUtility(), RandomAssociation(), RandomAssociation(redraw=True)]


def check(problem: AssociationProblem, association: Association) -> None:
    gateway_of = association.gateway_of
    assert gateway_of.shape == problem.learning_utility.shape
    assert gateway_of.dtype == np.int64
    links = set(zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True))
    linked = set(problem.link_device.tolist())
    for device, gateway in enumerate(gateway_of.tolist()):
        assert gateway == -1 or (device, gateway) in links
        if problem.every_device and device in linked:
            assert gateway != -1
    assert association.objective == association_objective(problem, gateway_of)
    assert association.bound >= association.objective


def best_objective(problem: AssociationProblem) -> float:
    """Every association there is."""
    choices = []
    for device in range(len(problem.learning_utility)):
        own = problem.link_gateway[problem.link_device == device].tolist()
        choices.append(own + [-1] * (not own or not problem.every_device))
    return max(association_objective(problem, np.array(one)) for one in itertools.product(*choices))


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_contract(policy: AssociationPolicy) -> None:
    rng = np.random.default_rng(5)
    for number in range(40):
        problem = random_association_problem(
            rng, int(rng.integers(1, 25)), int(rng.integers(1, 6)), every_device=number % 2 == 0
        )
        association = policy.solve(problem)
        check(problem, association)
        assert (policy.solve(problem).gateway_of == association.gateway_of).all()


@pytest.mark.parametrize("every_device", [True, False])
def test_balanced_utility_against_brute_force(every_device: bool) -> None:
    rng = np.random.default_rng(1 + every_device)
    optimal = 0
    for _ in range(60):
        problem = random_association_problem(
            rng, int(rng.integers(1, 6)), int(rng.integers(1, 4)), every_device=every_device
        )
        association = BalancedUtility().solve(problem)
        check(problem, association)
        best = best_objective(problem)
        assert association.objective <= best + 1e-9
        assert association.bound >= best - 1e-9
        optimal += association.objective >= best - 1e-9
    assert optimal >= 58


@pytest.mark.parametrize(("devices", "gateways"), [(60, 6), (184, 6)])
def test_balanced_utility_closes_the_gap(devices: int, gateways: int) -> None:
    rng = np.random.default_rng(devices)
    links = [(i, j) for i in range(devices) for j in range(gateways)]
    problem = association_problem(
        rng.lognormal(0.0, 0.6, devices),
        np.full(gateways, 3e4),
        links,
        1e5 / rng.lognormal(4.0, 0.6, len(links)),
    )
    association = BalancedUtility().solve(problem)
    check(problem, association)
    assert association.gap <= 0.008


@pytest.mark.parametrize(("utility_power", "load_power"), [(-40, 0), (0, 30), (-30, 20), (25, -25)])
def test_the_scale_of_the_numbers_does_not_matter(utility_power: int, load_power: int) -> None:
    """Raw utilities are squared gradient norms: they may be minute, and the solver's tolerances are absolute."""
    rng = np.random.default_rng(8)
    links = [(i, j) for i in range(80) for j in range(4)]
    utility, rate = rng.lognormal(0.0, 0.6, 80), rng.uniform(0.01, 0.1, len(links))
    plain = BalancedUtility().solve(association_problem(utility, np.ones(4), links, rate, phi=0.5))
    scaled = BalancedUtility().solve(
        association_problem(
            np.ldexp(utility, utility_power),
            np.ones(4),
            links,
            np.ldexp(rate, load_power),
            phi=math.ldexp(0.5, utility_power - load_power),
        )
    )
    assert plain.gap <= 0.008
    assert scaled.gateway_of.tolist() == plain.gateway_of.tolist()
    assert scaled.objective == pytest.approx(math.ldexp(plain.objective, utility_power), rel=1e-9)
    assert scaled.bound == pytest.approx(math.ldexp(plain.bound, utility_power), rel=1e-9)


def test_by_hand() -> None:
    """Utilities 3, 2, 2, 1 over two equal gateways: 4 and 4, and two devices each."""
    links = [(i, j) for i in range(4) for j in range(2)]
    problem = association_problem([3.0, 2.0, 2.0, 1.0], [10.0, 10.0], links, [1.0] * 8)
    association = BalancedUtility().solve(problem)
    assert association.objective == pytest.approx(4.0 - 0.1 * 0.2)
    assert association.gap == pytest.approx(0.0, abs=1e-9)
    assert association.gateway_of[0] == association.gateway_of[3] != association.gateway_of[1]


def test_a_device_worth_less_than_nothing_is_left_out_only_where_allowed() -> None:
    links = [(0, 0), (1, 0), (2, 1)]
    problem = association_problem([1.0, -2.0, 1.0], [1.0, 1.0], links, [0.1, 0.1, 0.1])
    assert BalancedUtility().solve(problem).gateway_of.tolist() == [0, 0, 1]
    free = BalancedUtility().solve(replace(problem, every_device=False))
    assert free.gateway_of.tolist() == [0, -1, 1]
    assert free.objective == pytest.approx(1.0 - 0.1 * 0.1)


def test_a_load_that_costs_more_than_the_device_is_worth_is_left_out() -> None:
    problem = association_problem([1.0, 0.1], [1.0], [(0, 0), (1, 0)], [0.2, 5.0], phi=0.5, every_device=False)
    association = BalancedUtility().solve(problem)
    assert association.gateway_of.tolist() == [0, -1]
    assert association.gap == pytest.approx(0.0, abs=1e-9)


def test_a_gateway_nobody_reaches_takes_no_part() -> None:
    """Else its utility of zero would be the minimum, and associating nobody as good as any."""
    links = [(0, 0), (0, 2), (1, 0), (1, 2)]
    problem = association_problem([1.0, 1.0, 5.0], [1.0, 1.0, 1.0], links, [0.5] * 4)
    association = BalancedUtility().solve(problem)
    assert sorted(association.gateway_of.tolist()) == [-1, 0, 2]
    assert association.gateway_of[2] == -1
    assert association.objective == pytest.approx(1.0 - 0.05)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_no_links_at_all(policy: AssociationPolicy) -> None:
    association = policy.solve(association_problem([1.0, 2.0], [1.0], [], []))
    assert association.gateway_of.tolist() == [-1, -1]
    assert association.objective == 0.0
    assert association.bound >= 0.0


def moved(problem: AssociationProblem, gateway_of: Ints) -> int:
    return int((gateway_of != problem.current)[problem.current >= 0].sum())


def test_a_switching_cost_keeps_devices_where_they_are() -> None:
    rng = np.random.default_rng(4)
    links = [(i, j) for i in range(40) for j in range(4)]
    current = rng.integers(0, 4, 40).tolist()
    problem = association_problem(
        rng.lognormal(0.0, 0.5, 40), np.ones(4), links, rng.uniform(0.01, 0.1, 160), current=current
    )
    free, cheap, dear = (BalancedUtility().solve(replace(problem, switching_cost=cost)) for cost in (0.0, 0.05, 1e3))
    for cost, association in ((0.0, free), (0.05, cheap), (1e3, dear)):
        check(problem, association)
        assert association.bound >= free.objective - 1e-9, "the bound is one of the objective without the cost"
        aim = association.objective - cost * moved(problem, association.gateway_of)
        for other in (free, cheap, dear):
            assert aim >= other.objective - cost * moved(problem, other.gateway_of) - 0.02
    assert dear.gateway_of.tolist() == current
    assert 0 < moved(problem, cheap.gateway_of) < moved(problem, free.gateway_of)


@pytest.mark.parametrize("every_device", [True, False])
def test_the_aim_with_a_switching_cost_against_brute_force(every_device: bool) -> None:
    rng = np.random.default_rng(20)
    missed = 0
    for _ in range(30):
        problem = random_association_problem(rng, 5, 3, every_device=every_device, switching_cost=0.3)
        choices = []
        for device in range(5):
            own = problem.link_gateway[problem.link_device == device].tolist()
            choices.append(own + [-1] * (not own or not every_device))
        aims = [
            association_objective(problem, np.array(one)) - 0.3 * moved(problem, np.array(one))
            for one in itertools.product(*choices)
        ]
        association = BalancedUtility().solve(problem)
        check(problem, association)
        aim = association.objective - 0.3 * moved(problem, association.gateway_of)
        assert aim <= max(aims) + 1e-9
        missed += aim < max(aims) - 1e-9
    assert missed <= 1


class TestRandomAssociation:
    def test_keeps_a_gateway_that_is_still_in_reach(self) -> None:
        links = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
        problem = association_problem([1.0] * 4, [1.0, 1.0, 1.0], links, [0.1] * 5, current=[1, 2, -1, 0])
        for seed in range(20):
            gateway_of = RandomAssociation().solve(replace(problem, seed=seed)).gateway_of.tolist()
            assert gateway_of[0] == 1
            assert gateway_of[1] in (0, 1)
            assert gateway_of[2:] == [1, -1]

    def test_redraws_all_if_told_to(self) -> None:
        links = [(i, j) for i in range(50) for j in range(4)]
        problem = association_problem([1.0] * 50, [1.0] * 4, links, [0.1] * 200, current=[0] * 50)
        assert RandomAssociation().solve(problem).gateway_of.tolist() == [0] * 50
        drawn = [RandomAssociation(redraw=True).solve(replace(problem, seed=seed)).gateway_of for seed in (1, 2)]
        assert (drawn[0] != drawn[1]).any()

    def test_links_are_equally_likely(self) -> None:
        links = [(i, j) for i in range(4000) for j in range(0, 8, 2)]
        problem = association_problem([1.0] * 4000, [1.0] * 8, links, [0.1] * len(links))
        counts = np.bincount(RandomAssociation().solve(problem).gateway_of, minlength=8)
        assert counts[1::2].sum() == 0
        # 1000 expected each, standard deviation 27.
        assert abs(counts[::2] - 1000).max() < 4.5 * 27

    def test_is_solved_anew_every_period_only_if_it_redraws(self) -> None:
        assert not RandomAssociation().revisits
        assert RandomAssociation(redraw=True).revisits

    def test_has_no_bound(self) -> None:
        problem = association_problem([1.0], [1.0], [(0, 0)], [0.1])
        assert RandomAssociation().solve(problem).bound == math.inf


def test_a_linear_programme_without_an_optimum_is_an_error() -> None:
    free = LinearProgramme(
        gain=np.ones(1),
        lower=np.zeros(1),
        upper=np.full(1, np.inf),
        row_lower=np.full(1, -np.inf),
        row_upper=np.full(1, np.inf),
        column_start=np.array([0, 1]),
        row_index=np.array([0]),
        entry=np.ones(1),
    )
    with pytest.raises(SolverError, match="ended a linear programme"):
        solve_linear(free)


def test_a_linear_programme_by_hand() -> None:
    """maximise x + 2 y, x + y <= 3, y <= 2: at (1, 2) worth 5, and one more of the first row is worth 1."""
    solution = solve_linear(
        LinearProgramme(
            gain=np.array([1.0, 2.0]),
            lower=np.zeros(2),
            upper=np.array([np.inf, 2.0]),
            row_lower=np.full(1, -np.inf),
            row_upper=np.array([3.0]),
            column_start=np.array([0, 1, 2]),
            row_index=np.array([0, 0]),
            entry=np.ones(2),
        )
    )
    assert solution.columns.tolist() == [1.0, 2.0]
    assert solution.objective == 5.0
    assert abs(solution.row_duals[0]) == pytest.approx(1.0)
