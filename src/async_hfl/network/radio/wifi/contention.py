"""What it costs that several want the air at once: Bianchi's model of 802.11 (IEEE JSAC 18(3), 2000).

Whoever wants to send waits for a quiet channel and then for a random number of slots; two that choose the same slot
collide, and both waste the time of a frame. With m contenders that always have something to send, each begins in a slot
with chance tau and then collides with chance p:

    tau = 2 (1 - 2p) / ((1 - 2p)(W + 1) + p W (1 - (2p)^b)),   p = 1 - (1 - tau)^(m - 1)       (Eq. 7, 9)

for a first window of W slots that doubles b times. m may be a fraction: someone who has something to send only now and
then counts in part.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WINDOW = 16
DOUBLINGS = 6
"""To 1,024 slots."""
_STEPS = 60


@dataclass(frozen=True, slots=True)
class Contention:
    """For each frame that gets through, on average: so many idle slots before it and so many collisions."""

    idle_slots: float
    collisions: float


def contention(contenders: float) -> Contention:
    """Of `contenders` >= 1."""
    tau = _attempts(contenders)
    busy = 1.0 - (1.0 - tau) ** contenders
    one = contenders * tau * (1.0 - tau) ** (contenders - 1.0)
    return Contention((1.0 - busy) / one, max(0.0, busy / one - 1.0))


def _attempts(contenders: float) -> float:
    """tau, by bisection: the two equations cross once."""
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
    """tau of a given p, in the form without 0 / 0 at p = 1/2: (1 - (2p)^b) / (1 - 2p) is a sum of powers."""
    powers = sum((2.0 * collides) ** step for step in range(DOUBLINGS))
    return 2.0 / (FIRST_WINDOW + 1 + collides * FIRST_WINDOW * powers)
