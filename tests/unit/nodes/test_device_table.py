"""A gateway's table of devices."""

from __future__ import annotations

from itertools import product

import numpy as np

from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.protocol.messages import DeviceKnowledge, Lease
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.nodes.config import GatewayConfig
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.device_table import DeviceTable

PRIOR = DeviceKnowledge(7, 50.0, False, 10, float("nan"), float("nan"))


def test_a_candidate_is_associated_leased_idle_and_reachable() -> None:
    for associated, leased, idle, feasible in product([False, True], repeat=4):
        device_table = DeviceTable()
        device_table.add([7])
        device_table.associated[0] = associated
        device_table.lease[0] = 3 if leased else 0
        device_table.job[0] = -1 if idle else 12
        device_table.feasible[0] = feasible
        device_table.refresh(0)
        assert device_table.candidate[0] == (associated and leased and idle and feasible)


def test_a_slot_stays_with_its_device() -> None:
    device_table = DeviceTable()
    device_table.add([7, 3, 7])
    device_table.add([3, 5])
    assert device_table.slot_of == {7: 0, 3: 1, 5: 2}
    assert device_table.devices.tolist() == [7, 3, 5]
    device_table.associate((5, 7))
    assert device_table.associated.tolist() == [True, False, True]
    device_table.associate((3, 7))
    assert device_table.associated.tolist() == [True, True, False]
    assert device_table.associated_count == 2
    device_table.associate(())
    assert not device_table.associated.any()


def test_a_measured_latency_is_not_replaced_by_the_clouds() -> None:
    device_table = DeviceTable()
    slot = device_table.take(Lease(7, 1, 1), PRIOR)
    assert (device_table.round_latency[slot], device_table.measured[slot]) == (50.0, False)
    device_table.measure(slot, 80.0)
    assert device_table.round_latency[slot] == 80.0
    device_table.measure(slot, 180.0)
    assert device_table.round_latency[slot] == 0.7 * 80 + 0.3 * 180
    device_table.take(Lease(7, 4, 2), DeviceKnowledge(7, 50.0, True, 20, 0.5, 0.3))
    assert (device_table.round_latency[slot], device_table.lease[slot], device_table.lease_version[slot]) == (
        110.0,
        4,
        2,
    )
    assert (device_table.samples[slot], device_table.loss[slot], device_table.squared_loss[slot]) == (20, 0.5, 0.3)


def test_utility_is_computed_over_associated_devices_only() -> None:
    device_table = DeviceTable(gradients=GradientTable.empty(0, 2))
    for device, gradient in ((7, [1, 0]), (3, [0, 1]), (5, [8, 8])):
        known = DeviceKnowledge(device, 50.0, True, 1, 0.5, 0.3, np.array(gradient, np.float32))
        device_table.take(Lease(device, 1, 1), known)
    assert device_table.gradients is not None
    assert device_table.gradients.count == 0
    device_table.associate((7, 3))
    assert (device_table.gradients.count, device_table.gradients.total().tolist()) == (2, [1, 1])
    # (|g|^2 - g . mean) / (2 - 1) = 1 - 1/2.
    assert device_table.gradients.utility(np.array([0, 1])).tolist() == [0.5, 0.5]
    device_table.associate((7,))
    assert (device_table.gradients.count, device_table.gradients.total().tolist()) == (1, [1, 0])


def test_new_knowledge_is_reported_once() -> None:
    device_table = DeviceTable()
    slot = device_table.take(Lease(7, 1, 1), PRIOR)
    assert device_table.take_unreported() == []
    device_table.measure(slot, 80.0)
    device_table.unreported[slot] = None
    assert device_table.take_unreported() == [slot]
    known = device_table.knowledge(slot)
    assert (known.device, known.round_latency, known.measured, known.gradient) == (7, 80.0, True, None)
    assert device_table.take_unreported() == []


def test_knowledge_that_was_read_does_not_change() -> None:
    device_table = DeviceTable(gradients=GradientTable.empty(0, 1))
    known = DeviceKnowledge(7, 50.0, True, 1, 0.5, 0.3, np.array([2], np.float32))
    slot = device_table.take(Lease(7, 1, 1), known)
    told = device_table.knowledge(slot)
    assert device_table.gradients is not None
    device_table.gradients.put(slot, np.array([9], np.float32))
    assert told.gradient is not None
    assert told.gradient.tolist() == [2]


def test_a_device_table_can_be_serialised() -> None:
    device_table = DeviceTable(gradients=GradientTable.empty(0, 2))
    device_table.take(Lease(7, 1, 1), PRIOR)
    device_table.associate((7, 9))
    back = from_plain(to_plain(device_table))
    back.associate((9,))
    assert device_table.associated.tolist() == [True, True]
    assert back.associated.tolist() == [False, True]
    assert back.slot_of == {7: 0, 9: 1}


def test_the_patience_with_a_device_has_a_floor_and_doubles_with_each_timeout() -> None:
    config = GatewayConfig(number=0, model_bytes=1, gradient_size=1, patience_floor=60.0, patience_factor=5.0)
    gateway = Gateway(config, 1)
    device_table = gateway.state.device_table
    device_table.add([7])
    for latency, timeouts, patience in ((10.0, 0, 60.0), (30.0, 0, 150.0), (30.0, 2, 600.0)):
        device_table.round_latency[0], device_table.timeouts[0] = latency, timeouts
        assert gateway.device_patience(0) == patience
