"""A message that a node fails to handle: it is dropped and recorded, and the node continues as if it had not come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.errors import PolicyError
from async_hfl.core.identifiers import CLOUD, Address, JobId, device_address
from async_hfl.core.policies import Selection, SelectionProblem
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Write
from async_hfl.core.protocol.events import PeerJoined, Started
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.serialization import to_plain
from async_hfl.core.weights import frozen
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.deployment.operations.replay import replay_node
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.nodes.config import GatewayConfig
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, ReliableNode, Transmit
from async_hfl.nodes.reliability.recovery import DurableNode

SIZE = 5000
CONFIG = GatewayConfig(number=0, model_bytes=4 * SIZE, gradient_size=SIZE, epochs=100)
DEVICE, OTHER = device_address(0), device_address(1)


def model(value: float, size: int = SIZE) -> np.ndarray:
    return frozen(np.full(size, value, np.float32))


def make() -> ReliableNode:
    return ReliableNode(GatewayNode(CONFIG, RandomSelection(), MixOnArrival()), 7, watched=True, sessions=True)


def update(job: int, weights: np.ndarray) -> m.Update:
    return m.Update(JobId(0, 1, job), weights, 10, 5, 0.5, 0.25, None, 0.1, 0.1)


class Story:
    """A gateway with two devices, each with a job."""

    def __init__(self, store: NodeStore) -> None:
        self.store = store
        self.dropped: list[tuple[Address, Exception]] = []
        self.node = DurableNode(make, store, lambda event, error: self.dropped.append((event.sender, error)))
        self.node.checkpoint()
        self.at = 0.0
        self.numbers: dict[Address, int] = {}
        self.happens(Started(0.0))
        for peer in (CLOUD, DEVICE, OTHER):
            self.happens(PeerJoined(0.0, peer))
        leases = tuple(m.Lease(device, 1, 1) for device in (0, 1))
        knowledge = tuple(m.DeviceKnowledge(device, 1.0, True, 10, 0.5, 0.25) for device in (0, 1))
        self.arrives(CLOUD, m.Assignment(1, 1, (0, 1), leases, knowledge))
        self.arrives(CLOUD, m.GlobalModel(0, model(0.0)))
        state = self.gateway.state
        self.jobs = {int(state.device_table.devices[job.slot]): number for number, job in state.in_flight_jobs.items()}

    @property
    def gateway(self) -> GatewayNode:
        assert isinstance(self.node.node.node, GatewayNode)
        return self.node.node.node

    def happens(self, event: object) -> list[Effect | Transmit]:
        effects = self.node.handle(event)  # type: ignore[arg-type]
        self.store.handled(effects)
        for effect in effects:
            if isinstance(effect, Write):
                self.store.write(effect.record)
        self.node.written(sum(isinstance(effect, Write) for effect in effects))
        return effects

    def arrives(self, sender: Address, message: m.Message) -> list[Effect | Transmit]:
        self.at += 1.0
        number = self.numbers[sender] = self.numbers.get(sender, 0) + 1
        return self.happens(Arrived(self.at, sender, Packet(7, 3, number, message), 0.1))


@pytest.mark.parametrize("committed", [True, False])
def test_a_message_that_fails_half_way_leaves_no_trace_but_a_record(tmp_path: Path, committed: bool) -> None:
    with NodeStore.open(tmp_path) as store:
        story = Story(store)
        story.arrives(OTHER, m.Alive())
        if committed:
            store.commit()
        before = story.node.node.snapshot()
        # The model is longer than the gateway's: mixing fails after the job was removed. (Validation refuses it.)
        effects = story.arrives(DEVICE, update(story.jobs[0], model(1.0, SIZE + 1)))
        assert [sender for sender, _ in story.dropped] == [DEVICE]
        receipt, record = effects
        assert isinstance(receipt, Transmit)
        assert receipt == Transmit(DEVICE, Receipt(7, 3, 1)), "acknowledged, so that it does not come again"
        assert isinstance(record, Write)
        assert isinstance(record.record, LifecycleRecord)
        assert (record.record.what, record.record.node) == ("refused", "d0")
        assert record.record.detail.startswith("Update could not be handled: ValueError")
        after = story.node.node.snapshot()
        assert str(after["node"]) == str(before["node"])
        assert sorted(story.gateway.state.in_flight_jobs) == [1, 2]

        # The gateway works on: the job ends by a correct update, and a repeat of the bad packet is acknowledged only.
        repeated = Packet(7, 3, 1, update(story.jobs[0], model(1.0, SIZE + 1)))
        (again,) = story.happens(Arrived(story.at, DEVICE, repeated, 0.1))
        assert again == receipt
        story.arrives(DEVICE, update(story.jobs[0], model(1.0)))
        story.arrives(OTHER, update(story.jobs[1], model(1.0)))
        assert story.gateway.state.updates == 2
        store.commit()
        alive = story.node.node.snapshot()
    stored = StoredNode(tmp_path)
    replay = replay_node(stored, "g0", make, None)
    assert replay.differences == []
    assert replay.events > 8
    with NodeStore.open(tmp_path) as store:
        restarted = DurableNode(make, store)
        restarted.recover()
        assert str(to_plain(restarted.node.snapshot())) == str(to_plain(alive))


def test_a_message_of_an_unexpected_kind_ends_nothing(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        story = Story(store)
        story.arrives(DEVICE, m.Hello(1))
        assert len(story.dropped) == 1
        story.arrives(DEVICE, update(story.jobs[0], model(1.0)))
        assert story.gateway.state.updates == 1


def test_without_a_place_to_report_it_an_error_is_raised(tmp_path: Path) -> None:
    """In a simulation, and in a fault simulation above all: an error there is a bug that must be seen."""
    with NodeStore.open(tmp_path) as store:
        story = Story(store)
        story.node = DurableNode(make, store)
        with pytest.raises(KeyError):
            story.arrives(DEVICE, m.Hello(1))


class Choosy(RandomSelection):
    def choose(self, problem: SelectionProblem) -> Selection:
        return replace(super().choose(problem), devices=(99,))


def test_an_error_of_a_users_policy_is_not_the_peers(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        story = Story(store)
        story.gateway.selection = Choosy()
        with pytest.raises(PolicyError, match="device 99"):
            story.arrives(DEVICE, update(story.jobs[0], model(1.0)))
