"""Exactly-once delivery on a network that loses, repeats and reorders."""

from __future__ import annotations

from itertools import pairwise

from async_hfl.core.identifiers import CLOUD, gateway_address
from async_hfl.core.protocol.effects import Effect, Send, SetTimer
from async_hfl.core.protocol.events import Event, PeerJoined, PeerLost, Received, Returned, Started, TimerFired
from async_hfl.core.protocol.messages import Alive, Hello, Report
from async_hfl.core.serialization import Plain
from async_hfl.nodes.reliability.delivery import (
    MOST_GAPS,
    MOST_INCARNATIONS,
    RESEND,
    Arrived,
    Packet,
    Receipt,
    ReliableNode,
    TransferOver,
    Transmit,
)

PEER = gateway_address(1)
RUN = 77


class Talker:
    """A node that keeps its messages and sends a hello once started."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def handle(self, event: Event) -> list[Effect]:
        if isinstance(event, Received):
            self.heard.append(event.message)
            return []
        assert isinstance(event, Started)
        return [Send(CLOUD, Hello(1)), SetTimer("own", 50.0), Send(CLOUD, Alive())]

    def snapshot(self) -> Plain:
        return len(self.heard)

    def restore(self, data: Plain) -> None:
        self.heard = [None] * data


def arrives(node: ReliableNode, number: int, run: int = RUN, incarnation: int = 1, at: float = 0.0) -> list[object]:
    message = Report(incarnation, number)
    return list(node.handle(Arrived(at, PEER, Packet(run, incarnation, number, message), 0.25)))


def receipt(number: int, incarnation: int = 1) -> Transmit:
    return Transmit(PEER, Receipt(RUN, incarnation, number))


def test_everything_is_acknowledged_and_passed_on_once_in_any_order() -> None:
    talker = Talker()
    node = ReliableNode(talker, RUN)
    for number in (2, 5, 1, 2, 1, 3, 5, 4, 3):
        assert arrives(node, number) == [receipt(number)]
    assert [report.number for report in talker.heard] == [2, 5, 1, 3, 4]  # type: ignore[attr-defined]
    seen = node.state.seen[PEER, 1]
    assert (seen.firsts, seen.lasts) == ([1], [5])


def test_the_node_is_given_sender_and_transfer_time() -> None:
    class Listener(Talker):
        def handle(self, event: Event) -> list[Effect]:
            assert isinstance(event, Received)
            assert (event.at, event.sender, event.transfer_s) == (3.0, PEER, 0.25)
            return super().handle(event)

    listener = Listener()
    arrives(ReliableNode(listener, RUN), 1, at=3.0)
    assert len(listener.heard) == 1


def test_a_message_of_another_run_is_ignored() -> None:
    talker = Talker()
    node = ReliableNode(talker, RUN)
    assert arrives(node, 1, run=RUN + 1) == []
    node.handle(Started(0.0))
    node.handle(Arrived(1.0, CLOUD, Receipt(RUN + 1, 1, 1)))
    assert talker.heard == []
    assert sorted(number for _, number in node.state.unacknowledged) == [1, 2]


def test_a_new_incarnation_counts_from_one_again() -> None:
    talker = Talker()
    node = ReliableNode(talker, RUN)
    arrives(node, 1)
    assert arrives(node, 1, incarnation=2) == [receipt(1, incarnation=2)]
    assert len(talker.heard) == 2


def test_a_late_message_of_a_former_incarnation_does_not_let_repeats_through() -> None:
    talker = Talker()
    node = ReliableNode(talker, RUN)
    arrives(node, 1)
    arrives(node, 1, incarnation=2)
    arrives(node, 1)  # late copies, one of each
    arrives(node, 1, incarnation=2)
    assert [report.incarnation for report in talker.heard] == [1, 2]  # type: ignore[attr-defined]


def test_an_unacknowledged_message_is_resent_with_back_off() -> None:
    node = ReliableNode(Talker(), RUN)
    effects = node.handle(Started(10.0))
    assert effects == [
        Transmit(CLOUD, Packet(RUN, 1, 1, Hello(1))),
        SetTimer(RESEND, 15.0),
        SetTimer("own", 50.0),
        Transmit(CLOUD, Packet(RUN, 1, 2, Alive())),
    ]
    assert node.handle(Arrived(11.0, CLOUD, Receipt(RUN, 1, 1))) == []
    # A receipt for number 2 of another incarnation does not count.
    node.handle(Arrived(11.0, CLOUD, Receipt(RUN, 9, 2)))
    times, at = [10.0], 15.0
    for _ in range(9):
        times.append(at)
        again, timer = node.handle(TimerFired(at, RESEND))
        assert again == Transmit(CLOUD, Packet(RUN, 1, 2, Alive()))
        assert isinstance(timer, SetTimer)
        at = timer.at
    # 5 s, doubling to 300.
    assert [b - a for a, b in pairwise(times)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    node.handle(Arrived(at, CLOUD, Receipt(RUN, 1, 2)))
    assert node.handle(TimerFired(at, RESEND)) == []


def test_unacknowledged_messages_survive_a_crash() -> None:
    node = ReliableNode(Talker(), RUN)
    node.handle(Started(0.0))
    arrives(node, 3)
    node.handle(Arrived(1.0, CLOUD, Receipt(RUN, 1, 1)))
    talker = Talker()
    restored = ReliableNode(talker, RUN)
    restored.restore(node.snapshot())
    assert restored.unacknowledged() == [Transmit(CLOUD, Packet(RUN, 1, 2, Alive()))]
    assert arrives(restored, 3) == [receipt(3)]
    assert len(talker.heard) == 1  # as the snapshot says: it is not passed on again


# Sessions ----------------------------------------------------------------------------------------------------------


class Chatty(Talker):
    """A node that sends its peer a message at every event."""

    def handle(self, event: Event) -> list[Effect]:
        return [Send(PEER, Alive())]


def numbers(effects: list[object]) -> list[int]:
    return [effect.content.number for effect in effects if isinstance(effect, Transmit)]


def test_messages_wait_for_a_session_and_are_sent_with_it() -> None:
    node = ReliableNode(Chatty(), RUN, watched=True, sessions=True)
    assert numbers(list(node.handle(Started(0.0)))) == []
    assert numbers(list(node.handle(TimerFired(1.0, "own")))) == []
    assert numbers(list(node.handle(PeerJoined(2.0, PEER)))) == [1, 2, 3]
    assert node.handle(Arrived(3.0, PEER, Receipt(RUN, 1, 2))) == []
    assert numbers(list(node.handle(PeerLost(4.0, PEER)))) == []
    assert numbers(list(node.handle(PeerJoined(5.0, PEER)))) == [1, 3, 4, 5]


def test_the_resend_timeout_starts_when_a_transfer_is_over_and_ends_with_the_session() -> None:
    node = ReliableNode(Chatty(), RUN, watched=True, sessions=True)
    node.handle(PeerJoined(0.0, PEER))
    assert node.handle(TransferOver(10.0, PEER, 1)) == [SetTimer(RESEND, 15.0)]
    assert numbers(list(node.handle(TimerFired(15.0, RESEND)))) == [1]
    node.handle(TransferOver(20.0, PEER, 1))
    node.handle(PeerLost(21.0, PEER))
    assert numbers(list(node.handle(TimerFired(30.0, RESEND)))) == []
    assert node.handle(TransferOver(31.0, PEER, 1)) == []


def test_after_a_restart_sessions_are_gone() -> None:
    node = ReliableNode(Chatty(), RUN, watched=True, sessions=True)
    node.handle(PeerJoined(0.0, PEER))
    again = ReliableNode(Chatty(), RUN, watched=True, sessions=True)
    again.restore(node.snapshot())
    assert again.unacknowledged() == []
    assert numbers(list(again.handle(Returned(1.0)))) == []
    assert numbers(list(again.handle(PeerJoined(2.0, PEER)))) == [1, 2, 3]


def test_numbers_are_remembered_for_few_incarnations_of_a_peer() -> None:
    """A peer may invent incarnations; the newest are remembered, and other peers' are not touched."""
    node = ReliableNode(Talker(), RUN)
    other = Arrived(0.0, CLOUD, Packet(RUN, 3, 1, Alive()), 0.0)
    node.handle(other)
    for incarnation in range(1, 2000):
        arrives(node, 1, incarnation=incarnation)
    assert len([key for key in node.state.seen if key[0] == PEER]) == MOST_INCARNATIONS
    assert arrives(node, 1, incarnation=1999) == [receipt(1, 1999)]
    assert node.node.heard.count(Report(1999, 1)) == 1  # type: ignore[attr-defined]
    assert (CLOUD, 3) in node.state.seen


def test_invented_numbers_with_gaps_take_bounded_memory_and_nothing_is_lost() -> None:
    talker = Talker()
    node = ReliableNode(talker, RUN)
    answered = [number for number in range(1, 6 * MOST_GAPS, 2) if arrives(node, number)]
    assert len(node.state.seen[PEER, 1].firsts) <= MOST_GAPS + 1
    for number in range(1, 6 * MOST_GAPS):  # the sender sends what was not acknowledged again
        arrives(node, number)
    assert len(talker.heard) == 6 * MOST_GAPS - 1
    assert 0 < len(answered) < 3 * MOST_GAPS
