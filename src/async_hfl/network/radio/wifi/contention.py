"""Contention for the channel: Bianchi's model of 802.11 (IEEE JSAC 18(3), 2000).

A sender waits for an idle channel and then for a random number of slots. Two that choose the same slot collide, and
both waste the time of a frame. With m contenders that always have data, each one starts in a slot with probability tau
and then collides with probability p:

    tau = 2 (1 - 2p) / ((1 - 2p)(W + 1) + p W (1 - (2p)^b)),   p = 1 - (1 - tau)^(m - 1)       (Eq. 7, 9)

for a first window of W slots that doubles b times. m may be fractional: a station that sends only occasionally counts
in part.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WINDOW = 16
DOUBLINGS = 6
"""The largest window has 1,024 slots."""
_STEPS = 60


@dataclass(frozen=True, slots=True)
class Contention:
    """Mean numbers of idle slots and of collisions per frame that is sent successfully."""

    idle_slots: float
    collisions: float


def contention(contenders: float) -> Contention:
    """Solve the model for a number of contenders >= 1."""
    tau = _attempts(contenders)
    busy = 1.0 - (1.0 - tau) ** contenders
    one = contenders * tau * (1.0 - tau) ** (contenders - 1.0)
    return Contention((1.0 - busy) / one, max(0.0, busy / one - 1.0))


def _attempts(contenders: float) -> float:
    """Return tau by bisection: the two equations have one intersection."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        tau = 0.5 * (low + high)
        collides = 1.0 - (1.0 - tau) ** (contenders - 1.0)
        if tau < _window_answer(collides):
            low = tau
        else:
            high = tau
    return 0.5 * (low + high)


def _window_answer(collides: float) -> float:
    """Return tau for a given p. The sum of powers avoids 0 / 0 in (1 - (2p)^b) / (1 - 2p) at p = 1/2."""
    powers = sum((2.0 * collides) ** step for step in range(DOUBLINGS))
    return 2.0 / (FIRST_WINDOW + 1 + collides * FIRST_WINDOW * powers)
