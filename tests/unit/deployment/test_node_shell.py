"""The shell alone: order, durability, timers, the end. The node follows a script; the disk is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.identifiers import CLOUD, Address, gateway_address
from async_hfl.core.protocol.effects import Effect, Send, SetTimer, Stop, Write
from async_hfl.core.protocol.events import Event, PeerJoined, Received, Returned, Started, TimerFired
from async_hfl.core.protocol.messages import Alive, Hello
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.serialization import Plain
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.shell import Clock, Shell, Workers
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.nodes.reliability.delivery import Packet, Receipt, ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

RUN = 7
PEER = gateway_address(3)
HANG_GUARD_S = 60.0


def test_a_clock_continues_where_it_stopped_and_never_reads_wall_time() -> None:
    ticks = [100.0]
    clock = Clock(40.0, lambda: ticks[0])
    assert clock.now == 40.0
    ticks[0] = 102.5
    assert clock.now == 42.5


class Scripted:
    """A node that answers each event by `play`, and remembers the events."""

    def __init__(self, play: Callable[[Event], list[Effect]]) -> None:
        self.play = play
        self.events: list[Event] = []

    def handle(self, event: Event) -> list[Effect]:
        self.events.append(event)
        return self.play(event)

    def snapshot(self) -> Plain:
        return None

    def restore(self, data: Plain) -> None:
        return


class Sender:
    """Records packets, and how many events were uncommitted when each was sent."""

    def __init__(self, store: NodeStore) -> None:
        self.store = store
        self.sent: list[tuple[Address, Packet | Receipt]] = []
        self.uncommitted: list[int] = []

    def send(self, to: Address, content: Packet | Receipt) -> None:
        self.uncommitted.append(self.store.uncommitted)
        self.sent.append((to, content))


class Harness:
    def __init__(self, state: Path, play: Callable[[Event], list[Effect]], **options: Any) -> None:
        self.store = NodeStore.open(state)
        self.node = Scripted(play)
        self.sender = Sender(self.store)
        self.inbox = Inbox()
        durable = DurableNode(lambda: ReliableNode(self.node, RUN, watched=True, sessions=True), self.store)
        self.shell = Shell(CLOUD, durable, self.store, self.inbox, self.sender.send, Workers(), **options)

    async def run(self) -> str:
        try:
            return await asyncio.wait_for(self.shell.run(), HANG_GUARD_S)
        finally:
            self.store.close()


def stops_on_timer(event: Event) -> list[Effect]:
    if isinstance(event, (Started, Returned)):
        return [SetTimer("end", event.at + 0.05), Write(LifecycleRecord(event.at, "finished", "cloud"))]
    return [Stop()] if isinstance(event, TimerFired) else []


def test_a_new_node_is_started_and_its_timers_fire(tmp_path: Path) -> None:
    async def story() -> None:
        harness = Harness(tmp_path, stops_on_timer, began_at=12.0)
        assert await harness.run() == ""
        started, fired = harness.node.events
        assert isinstance(started, Started)
        assert started.at >= 12.0
        assert isinstance(fired, TimerFired)
        assert fired.at >= started.at + 0.05

    asyncio.run(story())


def test_events_are_on_disk_before_their_effects_leave(tmp_path: Path) -> None:
    def play(event: Event) -> list[Effect]:
        if isinstance(event, PeerJoined):
            return [Send(PEER, Hello(1)), Send(PEER, Alive())]
        return [Stop()] if isinstance(event, Received) else []

    async def story() -> None:
        harness = Harness(tmp_path, play)
        harness.inbox.peer_joined(PEER)
        harness.inbox.arrived(PEER, Packet(RUN, 1, 1, Alive()), 0.25)
        await harness.run()
        assert harness.sender.uncommitted == [0, 0, 0]
        packets = [content for _, content in harness.sender.sent]
        assert [type(content) for content in packets] == [Packet, Packet, Receipt]
        received = harness.node.events[-1]
        assert isinstance(received, Received)
        assert received.transfer_s == 0.25

    asyncio.run(story())


def test_a_restart_continues_with_the_time_left_of_a_timer(tmp_path: Path) -> None:
    def waits(event: Event) -> list[Effect]:
        if isinstance(event, Started):
            return [SetTimer("end", event.at + 1000.0)]
        return [Stop("enough")] if isinstance(event, PeerJoined) else []

    async def first() -> float:
        harness = Harness(tmp_path, waits)
        harness.inbox.peer_joined(PEER)
        assert await harness.run() == "enough"
        return harness.node.events[-1].at

    async def second(last_at: float) -> None:
        harness = Harness(tmp_path, waits)
        assert await harness.run() == "enough"  # the stop is recovered, too
        returned = next(event for event in harness.node.events if isinstance(event, Returned))
        assert last_at <= returned.at < last_at + HANG_GUARD_S
        assert 0 < harness.shell.node.timers["end"] - returned.at <= 1000.0

    asyncio.run(second(asyncio.run(first())))


def test_a_timer_that_was_set_again_fires_once(tmp_path: Path) -> None:
    def play(event: Event) -> list[Effect]:
        if isinstance(event, Started):
            return [SetTimer("t", event.at), SetTimer("t", event.at + 0.05), SetTimer("end", event.at + 0.2)]
        return [Stop()] if isinstance(event, TimerFired) and event.key == "end" else []

    async def story() -> None:
        harness = Harness(tmp_path, play)
        await harness.run()
        assert [event.key for event in harness.node.events if isinstance(event, TimerFired)] == ["t", "end"]

    asyncio.run(story())


def test_at_the_end_it_waits_for_the_chosen_receipts(tmp_path: Path) -> None:
    def play(event: Event) -> list[Effect]:
        return [Send(PEER, Hello(1)), Send(PEER, Alive()), Stop()] if isinstance(event, PeerJoined) else []

    async def story() -> None:
        waits = Harness(
            tmp_path, play, linger_s=HANG_GUARD_S, waits_for=lambda parcel: isinstance(parcel.message, Hello)
        )
        waits.inbox.peer_joined(PEER)
        running = asyncio.ensure_future(waits.run())
        while len(waits.sender.sent) < 2:
            await asyncio.sleep(0.01)
        assert not running.done()
        waits.inbox.arrived(PEER, Receipt(RUN, 1, 1), 0.0)
        assert await running == ""

    asyncio.run(story())


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    def play(event: Event) -> list[Effect]:
        return [Send(PEER, Hello(1)), Stop()] if isinstance(event, Started) else []

    async def story() -> None:
        assert await Harness(tmp_path, play, linger_s=0.05, waits_for=lambda parcel: True).run() == ""

    asyncio.run(story())


def test_a_known_packet_is_acknowledged_again(tmp_path: Path) -> None:
    async def story() -> None:
        harness = Harness(tmp_path, lambda event: [Stop()] if isinstance(event, Received) else [])
        harness.inbox.arrived(PEER, Packet(RUN, 9, 1, Alive()), 0.0)
        await harness.run()
        harness.sender.sent.clear()
        assert harness.shell.is_known(PEER, RUN, 9, 1)
        assert harness.sender.sent == [(PEER, Receipt(RUN, 9, 1))]
        for run, incarnation, number in ((RUN, 9, 2), (RUN, 8, 1), (RUN + 1, 9, 1)):
            assert not harness.shell.is_known(PEER, run, incarnation, number)

    asyncio.run(story())


def test_a_computation_that_a_node_cannot_request_is_an_internal_error() -> None:
    with pytest.raises(Exception, match="does not train"):
        Workers().stop_training(None)  # type: ignore[arg-type]
