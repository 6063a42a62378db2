"""The two delay models by hand, and the link lookup."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.fixed import CONTROL_BYTES, FixedDelays
from async_hfl.network.delays.rates import RateDelays
from async_hfl.network.description import DelayModel
from async_hfl.network.link_lookup import LinkLookup, compact

# device 0 - gateway 2; device 1 - gateways 0, 1; device 2 - none
LINKS = feasible_links(3, 3, np.array([0, 1, 1]), np.array([2, 0, 1]), np.ones(3))
LOOKUP = LinkLookup.of(LINKS)
FIXED = FixedDelays(
    LOOKUP,
    18.72,
    compact(np.array([2.0, 60.0, 30.0])),
    compact(np.array([31.0, 32.0, 33.0])),
    compact(np.array([18.0, 19.0, 20.0])),
)
RATES = RateDelays(
    LOOKUP,
    compact(np.array([1000.0, 2000.0, 4000.0])),
    compact(np.array([100.0, 200.0, 400.0])),
    0.5,
    compact(np.array([31.0, 32.0, 33.0])),
    compact(np.array([10.0, 100.0, 1000.0])),
    0.25,
)


def test_fixed_times_do_not_depend_on_the_bytes_of_a_model() -> None:
    for size in (CONTROL_BYTES, 600_000, 44_700_000):
        assert FIXED.to_device(1, 1, size) == 18.72
        assert FIXED.to_gateway(0, 2, size) == 2.0
        assert FIXED.to_gateway(1, 0, size) == 60.0
        assert FIXED.to_gateway(1, 1, size) == 30.0
        assert FIXED.gateway_to_cloud(1, size) == FIXED.cloud_to_gateway(1, size) == 19.0
    assert FIXED.compute(2) == 33.0


def test_control_messages_are_short() -> None:
    size = CONTROL_BYTES - 1
    assert FIXED.to_device(1, 1, size) == FIXED.to_gateway(1, 1, size) == 0.1
    assert FIXED.gateway_to_cloud(2, size) == FIXED.cloud_to_gateway(2, size) == 0.05


def test_rates_give_latency_plus_bytes_over_rate() -> None:
    assert RATES.to_device(2, 0, 3000) == 3.5
    assert RATES.to_device(1, 1, 4000) == 1.5
    assert RATES.to_gateway(1, 0, 3000) == 15.5
    assert RATES.to_gateway(1, 1, 0) == 0.5
    assert RATES.gateway_to_cloud(0, 100) == RATES.cloud_to_gateway(0, 100) == 10.25
    assert RATES.cloud_to_gateway(2, 1000) == 1.25
    assert RATES.compute(0) == 31.0


@pytest.mark.parametrize("delays", [FIXED, RATES])
@pytest.mark.parametrize(("device", "gateway"), [(0, 0), (1, 2), (2, 0), (3, 0), (-1, 0), (0, -1), (0, 3)])
def test_a_transfer_without_a_link_breaks_an_invariant(delays: DelayModel, device: int, gateway: int) -> None:
    message = f"device {device} has no link to gateway {gateway}"
    for size in (10, 1_000_000):
        with pytest.raises(InvariantViolation, match=message):
            delays.to_device(gateway, device, size)
        with pytest.raises(InvariantViolation, match=message):
            delays.to_gateway(device, gateway, size)


@pytest.mark.parametrize("delays", [FIXED, RATES])
def test_answers_are_plain_floats(delays: DelayModel) -> None:
    answers = (
        delays.to_device(2, 0, 5000),
        delays.to_gateway(0, 2, 5000),
        delays.compute(0),
        delays.gateway_to_cloud(0, 5000),
        delays.cloud_to_gateway(0, 5000),
    )
    assert [type(answer) for answer in answers] == [float] * 5


@pytest.mark.parametrize("delays", [FIXED, RATES])
def test_a_copy_of_a_model_gives_the_same_delays(delays: DelayModel) -> None:
    copy = deepcopy(delays)
    assert copy.to_gateway(1, 1, 5000) == delays.to_gateway(1, 1, 5000)


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1))
def test_the_lookup_agrees_with_the_links(pairs: set[tuple[int, int]]) -> None:
    device, gateway = np.array(sorted(pairs)).T
    links = feasible_links(6, 8, device, gateway, np.ones(len(pairs)))
    lookup = LinkLookup.of(links)
    for i in range(6):
        for j in range(8):
            if (i, j) in pairs:
                assert lookup.find(i, j) == links.find(i, j)
            else:
                with pytest.raises(InvariantViolation):
                    lookup.find(i, j)
