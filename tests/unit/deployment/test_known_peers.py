"""Marks of packets: a crash never looks like an older copy of the state, and an older copy is always noticed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.identifiers import CLOUD, Address, gateway_address
from async_hfl.core.protocol.effects import Effect, Send
from async_hfl.core.protocol.events import Event, PeerJoined, PeerLost, Restored, Returned, Started
from async_hfl.core.protocol.messages import Alive
from async_hfl.core.serialization import Plain
from async_hfl.deployment.shell.known_peers import KnownPeers
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.nodes.reliability.delivery import Arrived, Packet, ReliableNode, Transmit

RUN = 7
GATEWAY = gateway_address(0)


class Speaker:
    """A node that sends a message to its peer whenever it is started."""

    def __init__(self, peer: Address) -> None:
        self.peer = peer

    def handle(self, event: Event) -> list[Effect]:
        return [Send(self.peer, Alive())] if isinstance(event, Started) else []

    def snapshot(self) -> Plain:
        return None

    def restore(self, data: Plain) -> None:
        pass


class Peer:
    """A node with its delivery, and its disk: everything is durable at once, as in a shell after a commit."""

    def __init__(self, folder: Path, peer: Address, incarnation: int) -> None:
        self.store = NodeStore.open(folder)
        self.peer = peer
        self.node = ReliableNode(Speaker(peer), RUN, incarnation, watched=True, sessions=True)
        self.known = KnownPeers(self.store, lambda: self.node.state)

    @property
    def incarnation(self) -> int:
        return self.node.state.incarnation

    def copy(self) -> tuple[Plain, Any]:
        return self.node.snapshot(), self.store.get("peers met")

    def restore(self, copy: tuple[Plain, Any]) -> None:
        snapshot, met = copy
        self.node.restore(snapshot)
        self.store.put("peers met", met)
        self.known = KnownPeers(self.store, lambda: self.node.state)


class Pair:
    """A gateway and a cloud on a network that loses everything in flight whenever their session breaks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gateway = Peer(folder / "gateway", CLOUD, 21)
        self.cloud = Peer(folder / "cloud", GATEWAY, 11)
        self.flying: list[tuple[Peer, Any]] = []
        self.joined = False

    def other(self, peer: Peer) -> Peer:
        return self.cloud if peer is self.gateway else self.gateway

    def take(self, sender: Peer, effects: list[Effect | Transmit]) -> None:
        if self.joined:
            sent = [effect.content for effect in effects if isinstance(effect, Transmit)]
            self.flying += [(self.other(sender), content) for content in sent]

    def breaks(self) -> None:
        if self.joined:
            self.joined = False
            self.flying.clear()
            for peer in (self.gateway, self.cloud):
                peer.node.handle(PeerLost(0.0, peer.peer))

    def crashes(self, peer: Peer) -> None:
        """A crash loses nothing durable, nor what was restored."""
        self.breaks()
        peer.restore(peer.copy())
        peer.node.handle(Returned(0.0))

    def join(self) -> tuple[str, str]:
        """Return what the cloud, and what the gateway, must have known and does not."""
        self.breaks()
        marks = self.gateway.known.marks()
        found = ("", "")
        if marks and marks[0].incarnation == self.cloud.incarnation:
            found = self.cloud.known.went_back(GATEWAY, self.gateway.incarnation, marks[0])
        if any(found):
            return found
        self.cloud.known.meet(GATEWAY, self.gateway.incarnation)
        self.gateway.known.meet(CLOUD, self.cloud.incarnation)
        self.joined = True
        for peer in (self.gateway, self.cloud):
            self.take(peer, peer.node.handle(PeerJoined(0.0, peer.peer)))
        return found

    def step(self) -> tuple[str, str]:
        peer = self.rng.choice((self.gateway, self.cloud))
        choice = self.rng.random()
        if choice < 0.35:
            self.take(peer, peer.node.handle(Started(0.0)))
        elif choice < 0.85:
            if self.flying:
                receiver, content = self.flying.pop(self.rng.randrange(len(self.flying)))
                self.take(receiver, receiver.node.handle(Arrived(0.0, receiver.peer, content)))
        elif choice < 0.92:
            self.crashes(peer)
        else:
            return self.join()
        return "", ""

    def delivered(self) -> int:
        """Deliver everything in flight in both directions; return the number of packets."""
        count = 0
        while self.flying:
            receiver, content = self.flying.pop(0)
            count += isinstance(content, Packet)
            self.take(receiver, receiver.node.handle(Arrived(0.0, receiver.peer, content)))
        return count


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(tmp_path, getattr(request, "param", 0))


@pytest.mark.parametrize("pair", range(12), indirect=True)
def test_crashes_and_lost_messages_never_look_like_an_older_copy(pair: Pair) -> None:
    pair.join()
    for _ in range(400):
        assert pair.step() == ("", "")
    assert pair.cloud.node.state.sent[GATEWAY] > 20


@pytest.mark.parametrize("pair", range(8), indirect=True)
@pytest.mark.parametrize("who", ["cloud", "gateway"])
def test_an_older_copy_is_noticed_if_anything_was_exchanged_since(pair: Pair, who: str) -> None:
    pair.join()
    for _ in range(pair.rng.randrange(30, 200)):
        pair.step()
    pair.join()
    pair.delivered()
    old = pair.cloud if who == "cloud" else pair.gateway
    copy = old.copy()
    pair.take(pair.gateway, pair.gateway.node.handle(Started(0.0)))
    assert pair.delivered() == 1  # the gateway has sent one message, and the cloud has acknowledged it
    old.restore(copy)
    cloud, gateway = pair.join()
    assert (bool(cloud), bool(gateway)) == (who == "cloud", who == "gateway")
    assert "messages up to number" in cloud + gateway


def test_a_disk_that_was_lost_is_no_older_copy(pair: Pair, tmp_path: Path) -> None:
    pair.join()
    pair.take(pair.cloud, pair.cloud.node.handle(Started(0.0)))
    pair.take(pair.gateway, pair.gateway.node.handle(Started(0.0)))
    assert pair.delivered() == 2
    pair.breaks()
    pair.gateway = Peer(tmp_path / "new disk", CLOUD, 22)
    assert pair.join() == ("", "")
    assert pair.join() == ("", "")
    assert pair.gateway.known.marks()[0].seen == 0


def test_a_cloud_with_a_new_incarnation_is_not_compared_with_the_former(pair: Pair) -> None:
    pair.join()
    copy = pair.cloud.copy()
    pair.take(pair.cloud, pair.cloud.node.handle(Started(0.0)))
    assert pair.delivered() == 1
    pair.breaks()
    pair.cloud.restore(copy)
    pair.cloud.node.handle(Restored(0.0, 12))
    assert pair.join() == ("", "")
    pair.take(pair.cloud, pair.cloud.node.handle(Started(0.0)))
    assert pair.delivered() == 1
    heard = pair.gateway.node.state.seen
    assert heard[CLOUD, 12].lasts == heard[CLOUD, 11].lasts  # the same number, of another incarnation: it is heard
    assert pair.join() == ("", "")
