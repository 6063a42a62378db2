"""Bytes sent so far by transfers in progress, without a look at each transfer.

At a steady rate, a transfer of b bytes with duration L has sent b (t - t0) / L at time t. The bytes of all transfers
that run at the same time are therefore a straight line, R t - O with R = sum b / L and O = sum t0 b / L. A start adds
to both sums, an end subtracts the same, and a reading takes constant time. "Time" is whichever clock makes the rates
steady: seconds, or the virtual time of a shared medium. A group that becomes empty restarts at zero, so rounding errors
do not accumulate.
"""

from __future__ import annotations

from typing import NamedTuple

from async_hfl.core.serialization import Plain


class Sent(NamedTuple):
    """Bytes sent: in all, and of models towards the cloud."""

    total: float
    models_up: float

    def plus(self, other: Sent) -> Sent:
        return Sent(self.total + other.total, self.models_up + other.models_up)


class Rate(NamedTuple):
    """The rate of one transfer, in bytes per unit of its group's time."""

    began: float
    total: float
    models_up: float


class TransferGroup:
    """The sums over all transfers that share a clock."""

    __slots__ = ("count", "offset", "offset_up", "rate", "rate_up")

    def __init__(self) -> None:
        self.count = 0
        self.rate = self.rate_up = self.offset = self.offset_up = 0.0

    def enter(self, one: Rate) -> None:
        self.count += 1
        self._add(one, 1.0)

    def leave(self, one: Rate) -> None:
        self.count -= 1
        if self.count:
            self._add(one, -1.0)
        else:
            self.rate = self.rate_up = self.offset = self.offset_up = 0.0

    def _add(self, one: Rate, sign: float) -> None:
        began, total, models_up = one
        self.rate += sign * total
        self.offset += sign * began * total
        self.rate_up += sign * models_up
        self.offset_up += sign * began * models_up

    def sent(self, time: float) -> Sent:
        return Sent(self.rate * time - self.offset, self.rate_up * time - self.offset_up)

    def snapshot(self) -> Plain:
        return [self.count, self.rate, self.rate_up, self.offset, self.offset_up]

    def restore(self, data: Plain) -> None:
        self.count, self.rate, self.rate_up, self.offset, self.offset_up = data
