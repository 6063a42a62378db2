"""The association problem that the cloud poses, and the leases that follow from its solution."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.policies import Association
from async_hfl.core.protocol.messages import DeviceKnowledge, Report
from async_hfl.core.topology import feasible_links
from async_hfl.nodes.cloud.association_table import Registry, new_directory
from async_hfl.nodes.cloud.state import Directory, Membership
from async_hfl.nodes.config import CloudConfig

# Devices 0 and 1 reach both gateways, device 2 only the second; device 1 is three times slower over gateway 0.
DEVICE, GATEWAY = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
LATENCY = np.array([10.0, 20.0, 60.0, 20.0, 40.0])


def registry(gradient: str = "update", utility_scale: str = "mean", link_stretch: float = np.inf) -> Registry:
    config = CloudConfig(
        gateways=2,
        epochs=10,
        epochs_after_target=0,
        mixing_weight=0.9,
        staleness=StalenessDiscount(),
        max_staleness=50,
        delivery="reply",
        evaluate_every=1,
        warmup=False,
        warmup_quorum=0.5,
        warmup_patience=0.0,
        warmup_limit=3600.0,
        association_period=2,
        load_penalty=0.3,
        every_device=True,
        switching_cost=0.2,
        utility_scale=utility_scale,  # type: ignore[arg-type]
        link_stretch=link_stretch,
        bandwidth=(100.0, 200.0),
        model_bytes=1200,
        gradient=gradient,  # type: ignore[arg-type]
        gradient_size=2,
        target=Target("accuracy", 0.9),
        seed=1,
    )
    return Registry(feasible_links(3, 2, DEVICE, GATEWAY, LATENCY), config)


def directory_of(made: Registry) -> Directory:
    return new_directory(made.links, made.config, np.array([10, 20, 30]))


def members() -> list[Membership]:
    return [Membership(1), Membership(1)]


def learnt(device: int, gradient: list[float] | None, latency: float = 0.0) -> DeviceKnowledge:
    known = None if gradient is None else np.array(gradient, np.float32)
    return DeviceKnowledge(device, latency, latency > 0, 10, 0.5, 0.3, known)


@pytest.mark.parametrize(("scale", "expected"), [("raw", [4.5, 0.5, 2.5]), ("mean", [1.8, 0.2, 1.0])])
def test_utility_with_one_device_unknown(scale: str, expected: list[float]) -> None:
    """g = (3, 0), (0, 1), mean (1.5, 0.5): u = 9 - 4.5, 1 - 0.5; the unknown gets their mean; mean |u| is 2.5."""
    made = registry(utility_scale=scale)
    directory = directory_of(made)
    made.absorb(directory, learnt(0, [3, 0]), 0)
    made.absorb(directory, learnt(1, [0, 1]), 0)
    np.testing.assert_allclose(made.problem(directory, members(), {}, 1, 0).learning_utility, expected)


def test_utility_with_nothing_known_is_one() -> None:
    for gradient in ("none", "update"):
        made = registry(gradient)
        problem = made.problem(directory_of(made), members(), {}, 1, 0)
        np.testing.assert_array_equal(problem.learning_utility, np.ones(3))


def test_all_gradients_equal_have_no_scale_to_divide_by() -> None:
    """u_i = |g|^2 - g . g = 0 for all: no division by zero."""
    made = registry()
    directory = directory_of(made)
    for device in range(3):
        made.absorb(directory, learnt(device, [1, 1]), 1)
    np.testing.assert_array_equal(made.problem(directory, members(), {}, 1, 0).learning_utility, np.zeros(3))


def test_the_problem_contains_what_is_known() -> None:
    made = registry()
    directory = directory_of(made)
    made.absorb(directory, learnt(1, None, latency=30.0), 0)
    problem = made.problem(directory, members(), {"mark": 1}, 1, 6)
    np.testing.assert_array_equal(problem.link_device, DEVICE)
    np.testing.assert_array_equal(problem.link_gateway, GATEWAY)
    np.testing.assert_array_equal(problem.link_round_latency, [10, 20, 30, 20, 40])
    assert problem.link_measured is not None
    assert (problem.link_measured.tolist(), problem.epoch) == ([False, False, True, False, False], 6)
    np.testing.assert_array_equal(problem.link_data_rate, [120, 60, 40, 60, 30])
    np.testing.assert_array_equal(problem.bandwidth, [100, 200])
    assert (problem.load_penalty, problem.every_device, problem.switching_cost) == (0.3, True, 0.2)
    assert problem.memory == {"mark": 1}
    assert problem.seed != made.problem(directory, members(), {}, 2, 0).seed


def test_links_much_slower_than_the_best_are_left_out() -> None:
    made = registry(link_stretch=2.0)
    problem = made.problem(directory_of(made), members(), {}, 1, 0)
    pairs = list(zip(problem.link_device.tolist(), problem.link_gateway.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 1), (1, 1), (2, 1)]  # 60 s is more than 2 x 20


def test_links_lost_or_to_a_lost_gateway_are_left_out() -> None:
    made = registry()
    directory = directory_of(made)
    made.observe(directory, 0, Report(1, 1, lost=(0,)))
    problem = made.problem(directory, members(), {}, 1, 0)
    assert problem.link_gateway.tolist() == [1, 0, 1, 1]
    gone = members()
    gone[1].live = False
    assert made.problem(directory, gone, {}, 2, 0).link_device.tolist() == [1]
    # A gateway that joins again starts with usable links.
    made.joined(directory, 0)
    assert made.problem(directory, gone, {}, 3, 0).link_device.tolist() == [0, 1]


def answer(*gateway_of: int) -> Association:
    return Association(np.array(gateway_of), 1.0, 1.0)


def test_leases_are_granted_once_and_move_when_released() -> None:
    made = registry()
    directory, all_live = directory_of(made), members()
    moved, messages = made.apply(directory, all_live, answer(0, 1, 1))
    assert moved == [(0, 0), (1, 1), (2, 1)]
    assert {gateway: [g.device for g in message.leases] for gateway, message in messages.items()} == {0: [0], 1: [1, 2]}
    # Nothing moves: no gateway is told, but the version grows.
    assert made.apply(directory, all_live, answer(0, 1, 1)) == ([], {})
    assert directory.version == 2
    # Device 1 moves: both gateways are told, and the lease stays until it is released.
    moved, messages = made.apply(directory, all_live, answer(0, 0, 1))
    assert moved == [(1, 0)]
    assert {gateway: (message.devices, message.leases) for gateway, message in messages.items()} == {
        0: ((0, 1), ()),
        1: ((2,), ()),
    }
    assert directory.holder.tolist() == [0, 1, 1]
    lease = next(g for g in made.warm_up(directory_of(made), 1, [1])[0])  # number 1, like the one granted above
    granted = made.released(directory, all_live, lease, 1)
    assert granted is not None
    assert (granted.lease.device, granted.lease.number, granted.lease.version) == (1, 2, 3)
    assert directory.holder.tolist() == [0, 0, 1]
    # A lease that was released cannot be released again.
    assert made.released(directory, all_live, lease, 1) is None


def test_a_lease_that_no_gateway_can_hold_waits_for_the_next_association() -> None:
    made = registry()
    directory, some_live = directory_of(made), members()
    made.apply(directory, some_live, answer(0, 1, 1))
    some_live[0].live = False
    assert made.lose(directory, 0) == [0]
    assert directory.holder.tolist() == [-1, 1, 1]
    # The solver did not know of the loss: nothing is sent to a lost gateway.
    _, messages = made.apply(directory, some_live, answer(0, 1, 1))
    assert messages == {}
    _, messages = made.apply(directory, some_live, answer(1, 1, 1))
    assert [lease.device for lease in messages[1].leases] == [0]
    assert messages[1].devices == (0, 1, 2)


def test_an_association_beyond_the_links_is_an_error() -> None:
    made = registry()
    with pytest.raises(DataError, match="device 2 is associated with gateway 0"):
        made.apply(directory_of(made), members(), answer(0, 0, 0))
