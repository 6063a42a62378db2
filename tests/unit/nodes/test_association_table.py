"""The association problem as the cloud poses it, and the leases that follow from its solution."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.maths.targets import Target
from async_hfl.core.policies import Association
from async_hfl.core.protocol.messages import DeviceKnowledge, Report
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import frozen
from async_hfl.nodes.cloud.association_table import (
    apply_association,
    association_problem,
    grant_leases,
    observe_links,
    pass_on_lease,
    reset_links,
    revoke_leases,
    store_knowledge,
)
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.config import CloudConfig

# Devices 0 and 1 reach both gateways, device 2 only the second; device 1 is three times slower over gateway 0.
DEVICE, GATEWAY = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
LATENCY = np.array([10.0, 20.0, 60.0, 20.0, 40.0])


def new_cloud(gradient: str = "update", utility_scale: str = "mean", max_latency_ratio: float = np.inf) -> Cloud:
    config = CloudConfig(
        gateways=2,
        epochs=10,
        load_penalty=0.3,
        switching_cost=0.2,
        utility_scale=utility_scale,  # type: ignore[arg-type]
        max_latency_ratio=max_latency_ratio,
        bandwidth=(100.0, 200.0),
        model_bytes=1200,
        gradient=gradient,  # type: ignore[arg-type]
        gradient_size=2,
        target=Target("accuracy", 0.9),
        seed=1,
    )
    links = feasible_links(3, 2, DEVICE, GATEWAY, LATENCY)
    return Cloud(config, links, np.array([10, 20, 30]), frozen(np.zeros(2, np.float32)), incarnation=1)


def learnt(device: int, gradient: list[float] | None, latency: float = 0.0) -> DeviceKnowledge:
    known = None if gradient is None else np.array(gradient, np.float32)
    return DeviceKnowledge(device, latency, latency > 0, 10, 0.5, 0.3, known)


@pytest.mark.parametrize(("scale", "expected"), [("raw", [4.5, 0.5, 2.5]), ("mean", [1.8, 0.2, 1.0])])
def test_utility_with_one_device_unknown(scale: str, expected: list[float]) -> None:
    """g = (3, 0), (0, 1), mean (1.5, 0.5): u = 9 - 4.5, 1 - 0.5; device 2 gets their mean; mean |u| is 2.5."""
    cloud = new_cloud(utility_scale=scale)
    store_knowledge(cloud, learnt(0, [3, 0]), 0)
    store_knowledge(cloud, learnt(1, [0, 1]), 0)
    np.testing.assert_allclose(association_problem(cloud).learning_utility, expected)


def test_utility_with_nothing_known_is_one() -> None:
    for gradient in ("none", "update"):
        cloud = new_cloud(gradient)
        problem = association_problem(cloud)
        np.testing.assert_array_equal(problem.learning_utility, np.ones(3))


def test_all_gradients_equal_have_no_scale_to_divide_by() -> None:
    """u_i = |g|^2 - g . g = 0 for all: no division by zero."""
    cloud = new_cloud()
    for device in range(3):
        store_knowledge(cloud, learnt(device, [1, 1]), 1)
    np.testing.assert_array_equal(association_problem(cloud).learning_utility, np.zeros(3))


def test_the_problem_is_what_is_known() -> None:
    cloud = new_cloud()
    store_knowledge(cloud, learnt(1, None, latency=30.0), 0)
    cloud.state.memory, cloud.state.epoch = {"mark": 1}, 6
    problem = association_problem(cloud)
    np.testing.assert_array_equal(problem.link_device, DEVICE)
    np.testing.assert_array_equal(problem.link_gateway, GATEWAY)
    np.testing.assert_array_equal(problem.link_round_latency, [10, 20, 30, 20, 40])
    assert problem.link_measured is not None
    assert (problem.link_measured.tolist(), problem.epoch) == ([False, False, True, False, False], 6)
    np.testing.assert_array_equal(problem.link_data_rate, [120, 60, 40, 60, 30])
    np.testing.assert_array_equal(problem.bandwidth, [100, 200])
    assert (problem.load_penalty, problem.every_device, problem.switching_cost) == (0.3, True, 0.2)
    assert problem.memory == {"mark": 1}
    cloud.state.solves += 1
    assert problem.seed != association_problem(cloud).seed


def test_links_much_slower_than_the_best_are_left_out() -> None:
    cloud = new_cloud(max_latency_ratio=2.0)
    problem = association_problem(cloud)
    pairs = list(zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 1), (1, 1), (2, 1)]  # 60 s is more than 2 x 20


def test_links_lost_or_to_a_lost_gateway_are_left_out() -> None:
    cloud = new_cloud()
    observe_links(cloud, 0, Report(1, 1, lost=(0,)))
    problem = association_problem(cloud)
    assert problem.link_gateway.tolist() == [1, 0, 1, 1]
    cloud.state.members[1].live = False
    assert association_problem(cloud).link_device.tolist() == [1]
    # Nothing is known about the links of a gateway that joins as a new incarnation.
    reset_links(cloud, 0)
    assert association_problem(cloud).link_device.tolist() == [0, 1]


def answer(*gateway_of: int) -> Association:
    return Association(np.array(gateway_of), 1.0, 1.0)


def test_leases_are_granted_once_and_move_by_release() -> None:
    cloud = new_cloud()
    moved, messages = apply_association(cloud, answer(0, 1, 1))
    assert moved == [(0, 0), (1, 1), (2, 1)]
    assert {gateway: [g.device for g in message.leases] for gateway, message in messages.items()} == {0: [0], 1: [1, 2]}
    # Nothing moves: no message is sent, but the version grows.
    assert apply_association(cloud, answer(0, 1, 1)) == ([], {})
    assert cloud.state.association.version == 2
    # Device 1 moves: both gateways are told, and the lease stays where it is.
    moved, messages = apply_association(cloud, answer(0, 0, 1))
    assert moved == [(1, 0)]
    assert {gateway: (message.devices, message.leases) for gateway, message in messages.items()} == {
        0: ((0, 1), ()),
        1: ((2,), ()),
    }
    assert cloud.state.association.holder.tolist() == [0, 1, 1]
    (lease,), _ = grant_leases(new_cloud(), 1, [1])  # number 1, as the one granted above
    granted = pass_on_lease(cloud, lease, 1)
    assert granted is not None
    assert (granted.lease.device, granted.lease.number, granted.lease.version) == (1, 2, 3)
    assert cloud.state.association.holder.tolist() == [0, 0, 1]
    # A lease cannot be released twice.
    assert pass_on_lease(cloud, lease, 1) is None


def test_a_lease_without_a_live_gateway_waits_for_the_next_association() -> None:
    cloud = new_cloud()
    apply_association(cloud, answer(0, 1, 1))
    cloud.state.members[0].live = False
    assert revoke_leases(cloud, 0) == [0]
    assert cloud.state.association.holder.tolist() == [-1, 1, 1]
    # The problem was posed before the loss: nothing is sent to a lost gateway.
    _, messages = apply_association(cloud, answer(0, 1, 1))
    assert messages == {}
    _, messages = apply_association(cloud, answer(1, 1, 1))
    assert [lease.device for lease in messages[1].leases] == [0]
    assert messages[1].devices == (0, 1, 2)


def test_an_association_beyond_the_links_is_an_error() -> None:
    cloud = new_cloud()
    with pytest.raises(DataError, match="device 2 is associated with gateway 0"):
        apply_association(cloud, answer(0, 0, 0))
