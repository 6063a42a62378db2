"""The progress of the exchange of packets with each peer, by which state that went back in time is noticed.

When a node joins, it states the numbers that it knows for each peer (`Mark`). What one node has sent, the other cannot
have seen beyond; what one has acknowledged, it must have seen. Both hold after any crash, since nothing leaves before
it is durable. They fail if a node continues from an older copy of its state, or if its disk lost what it had synced.
"""

from __future__ import annotations

from collections.abc import Callable

from async_hfl.core.identifiers import Address
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Mark
from async_hfl.nodes.reliability.delivery import MOST_INCARNATIONS, DeliveryState

_MET = "peers met"


class KnownPeers:
    def __init__(self, store: NodeStore, delivery: Callable[[], DeliveryState]) -> None:
        """`delivery` returns the delivery state of the node, which recovery replaces."""
        self._store = store
        self._delivery = delivery
        stored: list[tuple[int, int, int, int]] = store.get(_MET) or []
        self._met = {Address(tier, number): (incarnation, base) for tier, number, incarnation, base in stored}
        """By peer: its incarnation, and the last number that was used before it was met."""

    @property
    def incarnation(self) -> int:
        """The incarnation of this node's packets."""
        return self._delivery().incarnation

    def has_met(self, peer: Address, incarnation: int) -> bool:
        return self._met.get(peer, (0, 0))[0] == incarnation

    def meet(self, peer: Address, incarnation: int) -> None:
        """Note the incarnation of a peer that has joined, or that this node has joined; 0 if it did not say."""
        if incarnation and not self.has_met(peer, incarnation):
            self._met[peer] = (incarnation, self._delivery().sent.get(peer, 0))
            self._store.put(_MET, [[*one, *facts] for one, facts in self._met.items()])

    def marks(self) -> tuple[Mark, ...]:
        """Return the marks of all peers that have said their incarnation."""
        return tuple(self.mark(peer, incarnation) for peer, (incarnation, _) in self._met.items())

    def mark(self, peer: Address, incarnation: int) -> Mark:
        """Return what this node knows of its exchange with an incarnation of a peer."""
        state = self._delivery()
        sent = state.sent.get(peer, 0)
        acknowledged = sent
        while (peer, acknowledged) in state.unacknowledged:
            acknowledged -= 1
        met, base = self._met.get(peer, (0, 0))
        numbers = state.seen.get((peer, incarnation))
        return Mark(
            peer.tier,
            peer.number,
            incarnation,
            sent,
            acknowledged if met == incarnation and acknowledged > base else 0,
            numbers.lasts[-1] if numbers is not None and numbers.lasts else 0,
        )

    def went_back(self, peer: Address, incarnation: int, theirs: Mark) -> tuple[str, str]:
        """Return in words what this node, and what its peer, must have known and does not; empty if nothing.

        `theirs` is the peer's mark of this node, and `incarnation` that of the peer."""
        mine = self.mark(peer, incarnation)
        incarnations = sum(1 for one, _ in self._delivery().seen if one == peer)
        forgets = incarnations >= MOST_INCARNATIONS  # the numbers of its first incarnations were forgotten on purpose
        me = _missing(mine.sent, theirs.seen, mine.seen, 0 if forgets else theirs.acknowledged)
        return me, _missing(theirs.sent, mine.seen, theirs.seen, mine.acknowledged)


def _missing(sent: int, seen_by_other: int, seen: int, acknowledged: int) -> str:
    """Return what is missing from the state of one node, given what the other knows of it."""
    parts = []
    if seen_by_other > sent:
        parts.append(f"it has sent messages up to number {seen_by_other} and knows of {sent}")
    if acknowledged > seen:
        parts.append(f"it has acknowledged messages up to number {acknowledged} and knows of {seen}")
    return "; ".join(parts)
