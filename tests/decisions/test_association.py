"""Association policies against brute force, and the contract of each policy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decision_problems import association_problem, random_association_problem

from async_hfl.core.arrays import Ints
from async_hfl.core.errors import DataError, SolverError
from async_hfl.core.policies import Association, AssociationPolicy, AssociationProblem, association_objective
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.even import Even
from async_hfl.decisions.association.fixed import FixedAssociation, read_table
from async_hfl.decisions.association.nearest import NearestGateway
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.association.reclustering import Reclustering
from async_hfl.decisions.association.user_policy import OwnAssociation
from async_hfl.decisions.solvers.highs import LinearProgramme, solve_linear


def first_in_reach(problem: AssociationProblem) -> dict[int, int]:
    """A policy as a user might write it."""
    found: dict[int, int] = {}
    for device, gateway in zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True):
        found.setdefault(device, gateway)
    return found


POLICIES: list[AssociationPolicy] = [
    BalancedUtility(),
    RandomAssociation(),
    RandomAssociation(redraw=True),
    Reclustering(),
    Even(),
    NearestGateway(),
    FixedAssociation({0: 0}, "table.csv"),
    OwnAssociation(first_in_reach, "mine.py"),
]


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
    """Yield every possible association."""
    choices = []
    for device in range(len(problem.learning_utility)):
        own = problem.link_gateway[problem.link_device == device].tolist()
        choices.append(own + [-1] * (not own or not problem.every_device))
    return max(association_objective(problem, np.array(one)) for one in itertools.product(*choices))


def name_of(policy: AssociationPolicy) -> str:
    return type(policy).__name__


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
def test_contract(policy: AssociationPolicy) -> None:
    """Only feasible links; a gateway for every device with a link if required; the same answer for the same problem;
    memory that can be stored in a checkpoint; an unchanged problem."""
    rng = np.random.default_rng(5)
    for number in range(16):
        devices, gateways = int(rng.integers(1, 25)), int(rng.integers(1, 6))
        memory: Mapping[str, Any] = {}
        for epoch in (0, 7, 20):
            problem = random_association_problem(
                rng, devices, gateways, every_device=number % 2 == 0, switching_cost=float(rng.choice([0.0, 0.1]))
            )
            problem = replace(problem, memory=memory, epoch=epoch)
            before = to_plain(problem)
            association = policy.solve(problem)
            check(problem, association)
            assert (policy.solve(problem).gateway_of == association.gateway_of).all()
            assert repr(to_plain(problem)) == repr(before)
            memory = from_plain(to_plain(association.memory))


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
        rng.lognormal(0.0, 0.6, devices), np.full(gateways, 3e4), links, 1e5 / rng.lognormal(4.0, 0.6, len(links))
    )
    association = BalancedUtility().solve(problem)
    check(problem, association)
    assert association.gap <= 0.008


@pytest.mark.parametrize(("utility_power", "load_power"), [(-40, 0), (0, 30), (-30, 20), (25, -25)])
def test_the_scale_of_the_numbers_does_not_matter(utility_power: int, load_power: int) -> None:
    """Raw utilities are squared gradient norms: they may be tiny, and the solver's tolerances are absolute."""
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


def test_a_device_of_negative_utility_is_left_out_only_if_allowed() -> None:
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


def test_an_unreachable_gateway_does_not_count() -> None:
    """Otherwise its utility of zero would be the minimum, and an empty association as good as any."""
    links = [(0, 0), (0, 2), (1, 0), (1, 2)]
    problem = association_problem([1.0, 1.0, 5.0], [1.0, 1.0, 1.0], links, [0.5] * 4)
    association = BalancedUtility().solve(problem)
    assert sorted(association.gateway_of.tolist()) == [-1, 0, 2]
    assert association.gateway_of[2] == -1
    assert association.objective == pytest.approx(1.0 - 0.05)


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
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

    def test_redraws_all_devices_with_redraw(self) -> None:
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

    def test_is_solved_every_period_only_with_redraw(self) -> None:
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
    programme = LinearProgramme(
        gain=np.array([1.0, 2.0]),
        lower=np.zeros(2),
        upper=np.array([np.inf, 2.0]),
        row_lower=np.full(1, -np.inf),
        row_upper=np.array([3.0]),
        column_start=np.array([0, 1, 2]),
        row_index=np.array([0, 0]),
        entry=np.ones(2),
    )
    solution = solve_linear(programme)
    assert solution.columns.tolist() == [1.0, 2.0]
    assert programme.gain @ solution.columns == 5.0
    assert abs(solution.row_duals[0]) == pytest.approx(1.0)


class TestNearest:
    def test_by_hand(self) -> None:
        links = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
        latency = [30.0, 20.0, 15.0, 15.0, 90.0]
        problem = association_problem([1.0] * 4, [1.0, 1.0], links, [0.1] * 5, latency=latency)
        assert NearestGateway().solve(problem).gateway_of.tolist() == [1, 0, 1, -1]


class TestEven:
    def test_demand_is_even_and_fast_links_are_preferred(self) -> None:
        """Two devices, two gateways: crossing over would be just as even, over links half as fast."""
        links = [(i, j) for i in range(2) for j in range(2)]
        problem = association_problem([1.0, 1.0], [1.0, 1.0], links, [0.4, 0.2, 0.2, 0.4])
        assert Even().solve(problem).gateway_of.tolist() == [0, 1]

    def test_utility_is_ignored(self) -> None:
        rng = np.random.default_rng(2)
        links = [(i, j) for i in range(40) for j in range(4)]
        rate = rng.uniform(0.05, 0.1, len(links))
        answers = [
            Even().solve(association_problem(utility, np.ones(4), links, rate)).gateway_of.tolist()
            for utility in (np.ones(40), rng.lognormal(0.0, 1.0, 40))
        ]
        assert answers[0] == answers[1]
        load = np.bincount(answers[0], rate[np.arange(40) * 4 + np.array(answers[0])], 4)
        assert load.max() / load.min() < 1.02

    def test_slow_links_are_not_used(self) -> None:
        """Three devices; the third reaches gateway 0 only within twice its best latency."""
        links = [(i, j) for i in range(3) for j in range(2)]
        latency = [10.0, 15.0, 10.0, 15.0, 10.0, 20.5]
        problem = association_problem([1.0] * 3, [1.0, 1.0], links, [0.3] * 4 + [0.9, 0.9], latency=latency)
        assert Even().solve(problem).gateway_of.tolist() == [1, 1, 0]
        wide = Even(max_latency_ratio=3.0).solve(replace(problem, link_data_rate=np.array([0.3, 0.2] * 2 + [0.9, 1.2])))
        assert wide.gateway_of.tolist() == [0, 0, 1]

    def test_a_gateway_with_more_bandwidth_gets_more(self) -> None:
        links = [(i, j) for i in range(30) for j in range(2)]
        problem = association_problem(np.ones(30), [1.0, 2.0], links, np.full(60, 0.1))
        assert np.bincount(Even().solve(problem).gateway_of).tolist() == [10, 20]


class TestReclustering:
    def test_similar_latency_together_and_sizes_equal(self) -> None:
        """Latencies 10..12, 50..52 and 200..202 on every link: three clusters of three."""
        own = [10.0, 51.0, 200.0, 11.0, 52.0, 201.0, 12.0, 50.0, 202.0]
        links = [(i, j) for i in range(9) for j in range(3)]
        problem = association_problem([1.0] * 9, [1.0] * 3, links, [0.1] * 27, latency=np.repeat(own, 3))
        gateway_of = Reclustering().solve(problem).gateway_of
        assert np.bincount(gateway_of).tolist() == [3, 3, 3]
        for kind in range(3):
            assert len({int(gateway_of[device]) for device in range(9) if device % 3 == kind}) == 1

    def test_sizes_differ_by_one_at_most_where_links_allow(self) -> None:
        rng = np.random.default_rng(1)
        for _ in range(20):
            devices, gateways = int(rng.integers(2, 60)), int(rng.integers(1, 7))
            links = [(i, j) for i in range(devices) for j in range(gateways)]
            latency = rng.lognormal(4.0, 1.0, len(links))
            problem = association_problem([1.0] * devices, [1.0] * gateways, links, [0.1] * len(links), latency=latency)
            sizes = np.bincount(Reclustering().solve(problem).gateway_of, minlength=gateways)
            assert sizes.max() - sizes.min() <= 1

    def test_a_gateway_with_few_links_gets_those_devices(self) -> None:
        links = [(i, 0) for i in range(6)] + [(5, 1)]
        problem = association_problem([1.0] * 6, [1.0, 1.0], sorted(links), [0.1] * 7)
        assert Reclustering().solve(problem).gateway_of.tolist() == [0, 0, 0, 0, 0, 1]

    def test_reclustered_every_period_and_only_repaired_in_between(self) -> None:
        rng = np.random.default_rng(3)
        links = [(i, j) for i in range(20) for j in range(4)]
        problem = association_problem(
            [1.0] * 20, [1.0] * 4, links, [0.1] * 80, latency=np.repeat(rng.lognormal(4.0, 1.0, 20), 4)
        )
        first = Reclustering().solve(problem)
        assert first.memory == {"remade": 0}
        changed = replace(
            problem,
            link_round_latency=np.repeat(rng.lognormal(4.0, 1.0, 20), 4),
            current=first.gateway_of,
            memory=first.memory,
        )
        cut = (changed.link_device == 3) & (changed.link_gateway == first.gateway_of[3])
        lost = replace(
            changed,
            epoch=9,
            **{
                name: getattr(changed, name)[~cut]
                for name in ("link_device", "link_gateway", "link_data_rate", "link_round_latency")
            },
        )
        between = Reclustering().solve(lost)
        moved_ = np.flatnonzero(between.gateway_of != first.gateway_of)
        assert moved_.tolist() == [3]
        assert between.memory == {"remade": 0}
        later = Reclustering().solve(replace(changed, epoch=10))
        assert later.memory == {"remade": 10}
        assert (later.gateway_of != first.gateway_of).sum() > 5


class TestFixed:
    PROBLEM = association_problem([1.0] * 3, [1.0, 1.0], [(0, 0), (0, 1), (1, 1), (2, 0)], [0.1] * 4)

    @pytest.mark.parametrize(
        "text",
        [
            "device,gateway\n0,1\n1,1\n2,0\n",
            " gateway , device\n1,0\n1,1\n\n0,2",
            '{"0": 1, "1": 1, "2": 0}',
            "[1, 1, 0]",
        ],
    )
    def test_from_a_file(self, text: str) -> None:
        policy = FixedAssociation(read_table(text, "table"), "table")
        assert policy.solve(self.PROBLEM).gateway_of.tolist() == [1, 1, 0]

    def test_a_device_without_its_gateway(self) -> None:
        policy = FixedAssociation({0: 0, 1: 0, 2: -1}, "table")
        assert policy.solve(self.PROBLEM).gateway_of.tolist() == [0, 1, 0], "the nearest, where everybody needs one"
        assert policy.solve(replace(self.PROBLEM, every_device=False)).gateway_of.tolist() == [0, -1, -1]

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("", "line 1: '' is not a header; write device,gateway"),
            ("0,1\n", "line 1: '0,1' is not a header"),
            ("device,gateway\n", "names no device"),
            ("device,gateway\n0,1\n0,0\n", "line 3: device 0 is given twice"),
            ("device,gateway\n0\n", "line 2: 1 values where"),
            ("device,gateway\nd1,0\n", "line 2: device 'd1' is not a whole number"),
            ("device,gateway\n0,-2\n", "line 2: gateway '-2' is not a whole number of at least -1"),
            ('{"0": ', "not valid JSON"),
            ('{"a": 1}', "device 'a' is not a whole number"),
            ("[0.5]", "device 0: gateway 0.5 is not a whole number"),
        ],
    )
    def test_a_wrong_file(self, text: str, what: str) -> None:
        with pytest.raises(DataError, match=r"^table") as raised:
            read_table(text, "table")
        assert what in str(raised.value)

    @pytest.mark.parametrize(
        ("table", "what"), [({3: 0}, "device 3 is not one of 0..2"), ({0: 2}, "device 0: gateway 2 is not one of 0..1")]
    )
    def test_a_table_for_another_network(self, table: dict[int, int], what: str) -> None:
        with pytest.raises(DataError, match=what):
            FixedAssociation(table, "table").solve(self.PROBLEM)
        with pytest.raises(DataError, match=what):
            FixedAssociation(table, "table").check(3, 2)
