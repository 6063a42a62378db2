"""Sparse links against brute force over all pairs, and every possible error in a network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import DataError
from async_hfl.core.topology import FeasibleLinks, check_association, feasible_links, near_best, nearest_gateway


def links_of(pairs: list[tuple[int, int]], latency: list[float], devices: int = 3, gateways: int = 2) -> FeasibleLinks:
    device, gateway = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return feasible_links(devices, gateways, device, gateway, np.array(latency, dtype=np.float64))


@pytest.mark.parametrize(
    ("pairs", "latency", "message"),
    [
        ([], [], "no link"),
        ([(0, 0), (3, 0)], [1, 1], r"link 1: device 3 is not one of 0\.\.2"),
        ([(-1, 0)], [1], "link 0: device -1"),
        ([(0, 2)], [1], r"link 0: gateway 2 is not one of 0\.\.1"),
        ([(0, 0), (0, 1)], [1, 0], r"link 1: round latency 0\.0 is not a positive"),
        ([(0, 0)], [-5], r"round latency -5"),
        ([(0, 0)], [float("nan")], "round latency nan"),
        ([(0, 0)], [float("inf")], "round latency inf"),
        ([(0, 1), (1, 0), (0, 1)], [1, 1, 1], "device 0 to gateway 1 is given twice"),
    ],
)
def test_faults_are_named(pairs: list[tuple[int, int]], latency: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        links_of(pairs, latency)


def test_counts_must_agree_and_be_positive() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(DataError, match="1 devices, 2 gateways and 1 latencies differ"):
        feasible_links(3, 2, one, np.zeros(2, np.int64), np.ones(1))
    for devices, gateways in ((0, 1), (1, 0)):
        with pytest.raises(DataError, match="at least one device and one gateway"):
            feasible_links(devices, gateways, one, one, np.ones(1))


@st.composite
def networks(draw: st.DrawFn) -> tuple[FeasibleLinks, dict[tuple[int, int], float], dict[tuple[int, int], bool]]:
    """Links in any order, their latencies (few distinct values, so that ties occur) and the usable ones."""
    devices, gateways = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    every = [(i, j) for i in range(devices) for j in range(gateways)]
    pairs = draw(st.lists(st.sampled_from(every), unique=True, min_size=1).flatmap(st.permutations))
    latency = {pair: float(draw(st.integers(1, 4))) for pair in pairs}
    works = {pair: draw(st.booleans()) for pair in pairs}
    links = links_of(list(pairs), [latency[pair] for pair in pairs], devices, gateways)
    return links, latency, works


def in_order(links: FeasibleLinks) -> list[tuple[int, int]]:
    return list(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True))


@given(networks(), st.sampled_from([1.0, 1.5, 2.0, float("inf")]))
@settings(max_examples=80)
def test_lookups_are_what_a_search_over_all_pairs_finds(
    network: tuple[FeasibleLinks, dict[tuple[int, int], float], dict[tuple[int, int], bool]], stretch: float
) -> None:
    links, latency, works = network
    pairs = in_order(links)
    assert pairs == sorted(latency)
    assert links.expected_latency.tolist() == [latency[pair] for pair in pairs]
    for i in range(links.devices):
        assert pairs[links.of(i)] == [pair for pair in pairs if pair[0] == i]
        for j in range(links.gateways):
            assert links.find(i, j) == (pairs.index((i, j)) if (i, j) in latency else -1)

    usable = np.array([works[pair] for pair in pairs])
    nearest = nearest_gateway(links, usable, links.expected_latency)
    kept = near_best(links.link_device, usable, links.expected_latency, stretch)
    for i in range(links.devices):
        reachable = {j: latency[i, j] for j in range(links.gateways) if works.get((i, j))}
        best = min(reachable.values(), default=-1.0)
        # Ties go to the lower gateway.
        assert nearest[i] == min((j for j in reachable if reachable[j] == best), default=-1)
        near = {j for j in reachable if reachable[j] <= stretch * best}
        assert {pair[1] for pair, keep in zip(pairs, kept, strict=True) if keep and pair[0] == i} == near


@given(networks(), st.data())
@settings(max_examples=80)
def test_an_association_must_keep_to_usable_links(
    network: tuple[FeasibleLinks, dict[tuple[int, int], float], dict[tuple[int, int], bool]], data: st.DataObject
) -> None:
    links, _, works = network
    usable = np.array([works[pair] for pair in in_order(links)])
    gateway_of = [data.draw(st.integers(-1, links.gateways - 1)) for _ in range(links.devices)]
    wrong = [i for i, j in enumerate(gateway_of) if j != -1 and not works.get((i, j))]
    if wrong:
        with pytest.raises(DataError, match=f"device {wrong[0]} is associated with gateway {gateway_of[wrong[0]]}"):
            check_association(links, usable, np.array(gateway_of))
    else:
        check_association(links, usable, np.array(gateway_of))


def test_an_association_names_every_device() -> None:
    links = links_of([(0, 0), (1, 1)], [1, 1])
    with pytest.raises(DataError, match="for 3 devices"):
        check_association(links, np.ones(2, bool), np.array([0, 1]))
    with pytest.raises(DataError, match="gateway -2"):
        check_association(links, np.ones(2, bool), np.array([-2, 1, -1]))


def test_near_best_returns_a_new_array() -> None:
    links = links_of([(0, 0), (1, 1)], [1, 1])
    usable = np.ones(2, bool)
    near_best(links.link_device, usable, links.expected_latency, float("inf"))[:] = False
    assert usable.all()
