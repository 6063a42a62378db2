"""How much of what is under way has been sent by now, without asking every transfer.

While its speed is steady a transfer of b bytes that takes the time L has sent b (t - t0) / L at time t. So the bytes of
all that go at the same time are a straight line, R t - O with R = sum b / L and O = sum t0 b / L: a start adds to both
sums, an end takes off the same, and a look costs nothing. Time is whatever makes the speeds steady: seconds, or the
virtual time of a shared medium. A lane that runs empty begins again at zero, so rounding does not build up.
"""

from __future__ import annotations

from typing import NamedTuple

from async_hfl.core.serialization import Plain


class Sent(NamedTuple):
    """Bytes, and those of models towards the cloud among them."""

    total: float
    models_up: float

    def plus(self, other: Sent) -> Sent:
        return Sent(self.total + other.total, self.models_up + other.models_up)


class Pace(NamedTuple):
    """One transfer in a lane."""

    began: float
    total: float
    """Bytes per unit of the lane's time."""
    models_up: float


class Lane:
    """Transfers that go at the same time."""

    __slots__ = ("count", "offset", "offset_up", "pace", "pace_up")

    def __init__(self) -> None:
        self.count = 0
        self.pace = self.pace_up = self.offset = self.offset_up = 0.0

    def enter(self, one: Pace) -> None:
        self.count += 1
        self._add(one, 1.0)

    def leave(self, one: Pace) -> None:
        self.count -= 1
        if self.count:
            self._add(one, -1.0)
        else:
            self.pace = self.pace_up = self.offset = self.offset_up = 0.0

    def _add(self, one: Pace, sign: float) -> None:
        began, total, models_up = one
        self.pace += sign * total
        self.offset += sign * began * total
        self.pace_up += sign * models_up
        self.offset_up += sign * began * models_up

    def sent(self, time: float) -> Sent:
        return Sent(self.pace * time - self.offset, self.pace_up * time - self.offset_up)

    def snapshot(self) -> Plain:
        return [self.count, self.pace, self.pace_up, self.offset, self.offset_up]

    def restore(self, data: Plain) -> None:
        self.count, self.pace, self.pace_up, self.offset, self.offset_up = data
