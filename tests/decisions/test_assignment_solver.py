"""The parts of the assignment solver (prices, clipping, branching on large devices, the exact solver) against brute
force.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from decision_problems import association_problem, random_association_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.policies import AssociationProblem, association_objective
from async_hfl.decisions.association.balanced_utility import BalancedUtility, assignment_problem
from async_hfl.decisions.solvers import assignment_solver, highs, transport
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem, Prices, clipped, price_bound
from async_hfl.decisions.solvers.assignment_solver import solve_assignment, tightened
from async_hfl.decisions.solvers.exact import best_assignment, best_packing
from async_hfl.decisions.solvers.highs import solve_integer, solve_linear
from async_hfl.decisions.solvers.knapsack import knapsack
from async_hfl.decisions.solvers.prices import _Smoothed, optimise_prices
from async_hfl.decisions.solvers.relaxation import Relaxation, prices_of, programme


def best_objective(balance: AssignmentProblem) -> float:
    """Return the best objective of all possible choices of links."""
    rows = balance.row_start().tolist()
    choices = np.array(list(itertools.product(*(range(start, end) for start, end in itertools.pairwise(rows)))))
    each = np.arange(len(choices))
    utility, load = np.zeros((2, len(choices), balance.gateways + 1))
    for links in choices.T:
        utility[each, balance.gateway[links]] += balance.utility[links]
        load[each, balance.gateway[links]] += balance.load[links]
    aims = utility[:, :-1].min(axis=1) - balance.load_penalty * load[:, :-1].max(axis=1)
    return float((aims + balance.bonus[choices].sum(axis=1)).max())


def random_balance(
    rng: np.random.Generator, *, switching_cost: float = 0.0, lumps: bool = False
) -> tuple[AssociationProblem, AssignmentProblem] | None:
    problem = random_association_problem(
        rng,
        int(rng.integers(1, 6)),
        int(rng.integers(1, 4)),
        every_device=bool(rng.random() < 0.5),
        switching_cost=switching_cost,
    )
    if lumps:
        problem = replace(problem, learning_utility=rng.pareto(0.7, len(problem.learning_utility)))
    return (problem, assignment_problem(problem)[0]) if len(problem.link_device) else None


@pytest.mark.parametrize("lumps", [False, True])
def test_any_prices_bound_every_association_and_clipping_keeps_the_optimum(lumps: bool) -> None:
    rng = np.random.default_rng(10 + lumps)
    cut = 0
    for _ in range(150):
        found = random_balance(rng, switching_cost=float(rng.choice([0.0, 0.2])), lumps=lumps)
        if found is None:
            continue
        _, balance = found
        best = best_objective(balance)
        prices = Prices.normalised(rng.random(balance.gateways), rng.random(balance.gateways) * (rng.random() < 0.8))
        assert price_bound(balance, prices) >= best - 1e-9
        tight = clipped(balance, prices)
        cut += tight is not balance
        assert best_objective(tight) == pytest.approx(best, abs=1e-5 * balance.utility_unit())
        again, bound = tightened(balance)
        assert bound >= best - 1e-9
        assert bound <= optimise_prices(balance).bound + 1e-9 * abs(bound) + 1e-12
        assert best_objective(again) == pytest.approx(best, abs=1e-5 * balance.utility_unit())
    assert cut > 10


def test_clipping_by_hand() -> None:
    """Utilities 10, 1, 1, 1 over two gateways: the ten counts as three, since the other gateway has no more."""
    links = [(i, j) for i in range(4) for j in range(2)]
    problem = association_problem([10.0, 1.0, 1.0, 1.0], [1.0, 1.0], links, [0.0] * 8, phi=0.0)
    tight, bound = tightened(assignment_problem(problem)[0])
    assert tight.utility[0] == pytest.approx(3.0)
    assert bound == pytest.approx(3.0)
    association = BalancedUtility().solve(problem)
    assert association.objective == 3.0
    assert association.gap == pytest.approx(0.0, abs=1e-9)


def test_prices_come_near_the_linear_programme() -> None:
    rng = np.random.default_rng(6)
    for phi, links_each in ((0.0, 6), (0.1, 3), (2.0, 6), (20.0, 4)):
        links = [(i, j) for i in range(120) for j in sorted(rng.choice(6, links_each, replace=False).tolist())]
        problem = association_problem(
            rng.lognormal(0.0, 0.8, 120),
            rng.uniform(0.5, 2.0, 6),
            links,
            rng.lognormal(0.0, 0.5, len(links)) / 20,
            phi=phi,
        )
        balance = assignment_problem(problem)[0]
        linear = price_bound(balance, prices_of(balance, solve_linear(programme(balance))))
        found = optimise_prices(balance)
        assert linear * (1.0 - 1e-9) <= found.bound <= linear + 2e-3 * max(abs(linear), 1.0)
        assert np.add.reduceat(found.share, balance.row_start()[:-1]) == pytest.approx(np.ones(120))


def test_the_slope_of_the_smoothed_dual() -> None:
    """Compare with finite differences."""
    rng = np.random.default_rng(4)
    found = random_balance(np.random.default_rng(3), switching_cost=0.2)
    assert found is not None
    smoothed = _Smoothed(found[1])
    place = rng.normal(size=2 * found[1].gateways)
    point, step = smoothed.at(place, 0.3), 1e-6
    for coordinate in range(len(place)):
        side = np.zeros(len(place))
        side[coordinate] = step
        difference = smoothed.at(place + side, 0.3).value - smoothed.at(place - side, 0.3).value
        assert point.gradient[coordinate] == pytest.approx(difference / (2 * step), abs=1e-6)


@pytest.mark.parametrize("lumps", [False, True])
@pytest.mark.parametrize("route", ["programme", "prices"])
def test_both_routes_against_brute_force(lumps: bool, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution never exceeds the optimum, the bound is never below it, and the solution is mostly optimal."""
    if route == "prices":
        monkeypatch.setattr(assignment_solver, "_PROGRAMMES", 0)
    rng = np.random.default_rng(30 + lumps)
    missed = solved = 0
    for _ in range(100):
        found = random_balance(rng, lumps=lumps)
        if found is None:
            continue
        _, balance = found
        best = best_objective(balance)
        answer = solve_assignment(balance, target_gap=5e-4, effort=3_000_000, seed=1)
        assert sorted(balance.device[answer.used].tolist()) == list(range(balance.devices))
        assert balance.objective(answer.used) <= best + 1e-9
        assert answer.bound >= best - 1e-9 * max(1.0, abs(best))
        solved += 1
        missed += balance.objective(answer.used) < best - 1e-3 * abs(best) - 1e-9
    assert solved > 80
    assert missed <= 0.04 * solved


def test_the_exact_solver_against_brute_force() -> None:
    rng = np.random.default_rng(50)
    for number in range(80):
        found = random_balance(rng, switching_cost=0.3 * (number % 3 == 0), lumps=number % 2 == 0)
        if found is None:
            continue
        _, balance = found
        best = best_assignment(balance, seed=1)
        assert best is not None
        assert balance.objective(best.used) == pytest.approx(best_objective(balance), abs=1e-7 * balance.utility_unit())
        assert best.bound == balance.objective(best.used)


def test_the_exact_solver_reports_a_missing_proof() -> None:
    rng = np.random.default_rng(2)
    links = [(i, j) for i in range(40) for j in range(4)]
    problem = association_problem(rng.lognormal(0.0, 0.6, 40), np.ones(4), links, rng.uniform(0.01, 0.1, 160))
    assert best_assignment(assignment_problem(problem)[0], seed=1, node_limit=1) is None


def test_branching_on_large_devices_tightens_the_bound() -> None:
    """One device of 9 and eight of 1 over two gateways, seven of them only at the first: the relaxation splits the
    nine; no association has more than the 7 (and a bit) of the others."""
    links = sorted([(0, 0), (0, 1), (8, 0), (8, 1), *((i, 0) for i in range(1, 8))])
    problem = association_problem([9.0] + [1.0] * 8, [1.0, 1.0], links, [0.0] * len(links), phi=0.0)
    balance = assignment_problem(problem)[0]
    relaxation = Relaxation(balance)
    assert relaxation.settle(1)[1] == pytest.approx(8.5)
    share, bound = relaxation.settle(60)
    assert bound == pytest.approx(8.0)
    assert share[0] < 1e-6
    assert BalancedUtility().solve(problem).gap == pytest.approx(0.0, abs=1e-9)


def test_a_proven_integer_solution_is_optimal() -> None:
    found = random_balance(np.random.default_rng(8))
    assert found is not None
    whole = np.append(np.ones(len(found[1].device), bool), [False, False])
    solution = solve_integer(programme(found[1]), whole, node_limit=1000)
    assert solution is not None
    assert solution.proven
    used = np.lexsort((-solution.columns[:-2], found[1].device))[found[1].row_start()[:-1]]
    assert found[1].objective(used) == pytest.approx(best_objective(found[1]))


@settings(max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    devices=st.integers(1, 40),
    gateways=st.integers(1, 6),
    power=st.integers(-30, 30),
    every_device=st.booleans(),
)
def test_the_stated_gap_holds_on_anything(
    seed: int, devices: int, gateways: int, power: int, every_device: bool
) -> None:
    """No association found by other means exceeds the bound."""
    rng = np.random.default_rng(seed)
    problem = random_association_problem(rng, devices, gateways, every_device=every_device)
    problem = replace(problem, learning_utility=np.ldexp(problem.learning_utility, power))
    association = BalancedUtility().solve(problem)
    assert association.objective == association_objective(problem, association.gateway_of)
    assert association.gap >= 0.0
    rows = np.searchsorted(problem.link_device, np.arange(devices + 1))
    for _ in range(30):
        other = association.gateway_of.copy()
        for device in rng.integers(0, devices, 3).tolist():
            own = problem.link_gateway[rows[device] : rows[device + 1]]
            if len(own):
                other[device] = rng.choice(own)
        objective = association_objective(problem, other)
        assert objective <= association.bound + 1e-9 * abs(association.bound)


class TestStability:
    """Devices move only if that pays."""

    RNG = np.random.default_rng(12)
    LINKS = tuple((i, j) for i in range(120) for j in range(5))
    RATE = RNG.uniform(0.01, 0.1, len(LINKS))
    UTILITY = RNG.lognormal(0.0, 0.6, 120)

    def test_utilities_that_drift_move_few(self) -> None:
        first = BalancedUtility().solve(association_problem(self.UTILITY, np.ones(5), list(self.LINKS), self.RATE))
        drifted = self.UTILITY * self.RNG.lognormal(0.0, 0.05, 120)
        moves, objectives = [], []
        for cost in (0.0, 0.02):
            problem = association_problem(
                drifted, np.ones(5), list(self.LINKS), self.RATE, switching_cost=cost, current=first.gateway_of.tolist()
            )
            again = BalancedUtility().solve(problem)
            moves.append(int((again.gateway_of != first.gateway_of).sum()))
            objectives.append(again.objective)
        assert moves[1] <= 15 < moves[0]
        assert objectives[1] >= 0.97 * objectives[0]

    def test_nothing_changed_nothing_moves(self) -> None:
        problem = association_problem(self.UTILITY, np.ones(5), list(self.LINKS), self.RATE, switching_cost=1e-3)
        first = BalancedUtility().solve(problem)
        again = BalancedUtility().solve(replace(problem, current=first.gateway_of))
        assert (again.gateway_of != first.gateway_of).sum() <= 5


class TestTransport:
    @pytest.mark.parametrize("route", ["programme", "prices"])
    def test_sizes_are_as_equal_as_links_allow(self, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if route == "prices":
            monkeypatch.setattr(transport, "_PROGRAMMES", 0)
        rng = np.random.default_rng(1)
        for _ in range(20):
            devices, gateways = int(rng.integers(1, 50)), int(rng.integers(1, 6))
            device, gateway = np.divmod(np.arange(devices * gateways), gateways)
            used = transport.solve_transport(device, gateway, rng.random(len(device)), devices, gateways)
            assert device[used].tolist() == list(range(devices))
            sizes = np.bincount(gateway[used], minlength=gateways)
            assert sizes.max() <= -(-devices // gateways)

    def test_against_brute_force(self) -> None:
        rng = np.random.default_rng(2)
        for _ in range(40):
            devices, gateways = int(rng.integers(1, 6)), int(rng.integers(1, 4))
            device, gateway = np.divmod(np.arange(devices * gateways), gateways)
            cost = rng.random(len(device))
            used = transport.solve_transport(device, gateway, cost, devices, gateways)
            best = min(
                sum(cost[i * gateways + j] for i, j in enumerate(one))
                for one in itertools.product(range(gateways), repeat=devices)
                if max(one.count(j) for j in range(gateways)) - min(one.count(j) for j in range(gateways)) <= 1
            )
            assert cost[used].sum() == pytest.approx(best)

    CHAIN = np.repeat(np.arange(12), [3, *[2] * 10, 1])
    """Gateways at which each of 24 devices costs nothing: three at the first of 12 gateways, one at the last. Each may
    go to the next gateway at a cost of 1, so that evening out costs 11."""

    def chained(self) -> list[int]:
        device = np.repeat(np.arange(24), np.where(self.CHAIN == 11, 1, 2))
        gateway = np.concatenate([np.arange(own, min(own + 2, 12)) for own in self.CHAIN])
        cost = (gateway != self.CHAIN[device]).astype(float)
        used = transport.solve_transport(device, gateway, cost, 24, 12)
        assert device[used].tolist() == list(range(24))
        sizes: list[int] = np.bincount(gateway[used], minlength=12).tolist()
        return sizes

    def test_balance_is_worth_a_chain_of_moves(self) -> None:
        assert self.chained() == [2] * 12

    def test_prices_replace_a_programme_that_the_solver_fails_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(highs, "_ITERATIONS_PER_LINE", 0)
        sizes = self.chained()
        assert sum(sizes) == 24
        assert max(sizes) <= 3


class TestExactKnapsack:
    @pytest.mark.parametrize("count", [3, 9, 30, 60])
    def test_as_good_as_whole_weights_allow(self, count: int) -> None:
        rng = np.random.default_rng(count)
        for _ in range(3):
            weight = rng.integers(1, 200, count).astype(float)
            value = weight + 20.0
            capacity = int(weight.sum() * 0.4)
            best = np.zeros(capacity + 1)
            for one, heavy in zip(value, weight.astype(int), strict=True):
                if heavy > capacity:
                    continue
                best[heavy:] = np.maximum(best[heavy:], best[: capacity + 1 - heavy] + one)
            packing = best_packing(value, weight, float(capacity))
            assert packing is not None
            assert packing.gap == 0.0
            assert packing.objective == pytest.approx(best[-1], rel=1e-12)

    def test_subset_sums_to_twelve_digits(self) -> None:
        weight = 1e5 / np.random.default_rng(2).lognormal(4.0, 0.8, 40)
        capacity = float(weight.sum() * 0.3)
        packing = best_packing(weight * 1e-5, weight, capacity)
        assert packing is not None
        assert packing.gap == 0.0
        assert packing.objective >= knapsack(weight * 1e-5, weight, capacity).objective
