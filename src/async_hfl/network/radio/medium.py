"""The shared medium of a gateway: concurrent transfers share the air.

This is a fluid model. A transfer that is alone takes its airtime. n transfers get equal shares, so each proceeds at the
speed efficiency(s) / n, where the efficiency is the throughput that collisions leave with s radios sending: each
uploading device counts as one, and the gateway as one if it has any downloads. A transfer that starts or ends changes
the speed of all others. Virtual time V makes that cheap: it advances at the common speed, so a transfer that starts at
V ends when V has grown by its airtime, whatever happens in between, and only the first end in V needs to be known.

    start(at, token, airtime, upload)   next_end() -> (at, token)   end() -> (at, token)   cut(at, token) -> share sent

Starts, ends and cuts cost O(log n). Times must not decrease, and no end may be skipped: call `next_end` and
`end` first. The result of `next_end` is valid until the next start or cut.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar, final

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.serialization import Plain, from_plain, to_plain

Token = TypeVar("Token", bound=Hashable)
_SLACK = 1e-9
"""Relative rounding error allowed between the predicted end of a transfer and the time of the call."""


class _Underway(NamedTuple):
    started: float
    """V at the start."""
    ends: float
    """V at the end."""
    number: int
    """Number of the start; it breaks ties and distinguishes a token's second transfer from its first."""
    upload: bool


@final
class SharedMedium(Generic[Token]):
    """The transfers of one gateway in both directions: radio is half-duplex."""

    def __init__(self, efficiency: Sequence[float] = (1.0,)) -> None:
        """`efficiency[s - 1]` is for s radios sending at once; its last value holds for more."""
        if not efficiency or not all(0.0 < share <= 1.0 for share in efficiency):
            raise InvariantViolation(f"efficiencies {list(efficiency)[:8]} are not shares in (0, 1]")
        self._efficiency = tuple(efficiency)
        self._at = 0.0
        self._virtual = 0.0
        self._number = 0
        self._uploads = 0
        self._underway: dict[Token, _Underway] = {}
        self._heap: list[tuple[float, int, Token]] = []
        """Sorted by end. Cut transfers stay until they reach the top."""

    def __len__(self) -> int:
        return len(self._underway)

    def __contains__(self, token: Token) -> bool:
        return token in self._underway

    def speed(self) -> float:
        """Return the airtime that each transfer currently gets per second."""
        active = len(self._underway)
        if active == 0:
            return 1.0
        senders = self._uploads + (active > self._uploads)
        return self._efficiency[min(senders, len(self._efficiency)) - 1] / active

    def virtual(self, at: float) -> float:
        """Return V at a time before the next end: the airtime that every active transfer has had since V was 0."""
        return self._virtual + (at - self._at) * self.speed() if self._underway else self._virtual

    def start(self, at: float, token: Token, airtime: float, upload: bool = True) -> None:
        """Start a transfer that would take `airtime` seconds alone."""
        if token in self._underway:
            raise InvariantViolation(f"transfer {token} has been started twice")
        if not (math.isfinite(airtime) and airtime >= 0.0):
            raise InvariantViolation(f"transfer {token}: airtime {airtime} is not a number of seconds")
        self._advance(at)
        ends = self._virtual + airtime
        self._underway[token] = _Underway(self._virtual, ends, self._number, upload)
        self._uploads += upload
        heapq.heappush(self._heap, (ends, self._number, token))
        self._number += 1

    def next_end(self) -> tuple[float, Token] | None:
        """Return the time and token of the transfer that ends first if nothing else starts or is cut; None if there is
        none."""
        first = self._first()
        if first is None:
            return None
        ends, _, token = first
        return self._at + max(0.0, ends - self._virtual) / self.speed(), token

    def end(self) -> tuple[float, Token]:
        """End the transfer of `next_end` and advance the time to that moment."""
        due = self.next_end()
        if due is None:
            raise InvariantViolation("a transfer is to end but none is under way")
        at, token = due
        self._at = at
        self._virtual = max(self._virtual, self._underway[token].ends)  # assigned rather than summed, to avoid rounding
        self._drop(token)
        return at, token

    def cut(self, at: float, token: Token) -> float:
        """Cut a transfer; return the share of it (0..1) that was sent."""
        if token not in self._underway:
            raise InvariantViolation(f"transfer {token} is to be cut off but is not under way")
        self._advance(at)
        started, ends, _, _ = self._underway[token]
        share = 1.0 if ends <= started else min(1.0, (self._virtual - started) / (ends - started))
        self._drop(token)
        return share

    def _advance(self, at: float) -> None:
        if not at >= self._at:
            raise InvariantViolation(f"the medium is at {self._at} s and is asked about {at} s")
        due = self.next_end()
        if due is not None and at > due[0] + _SLACK * max(1.0, abs(at)):
            raise InvariantViolation(f"transfer {due[1]} ended at {due[0]} s, before {at} s, and was passed over")
        self._virtual = self.virtual(at)
        self._at = at

    def _first(self) -> tuple[float, int, Token] | None:
        heap = self._heap
        while heap:
            _, number, token = heap[0]
            known = self._underway.get(token)
            if known is not None and known.number == number:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _drop(self, token: Token) -> None:
        self._uploads -= self._underway.pop(token).upload
        if not self._underway:
            self._heap.clear()
            self._virtual = 0.0  # reset, so that a long run loses no precision

    def snapshot(self) -> Plain:
        return {
            "at": self._at,
            "virtual": self._virtual,
            "number": self._number,
            "underway": [[to_plain(token), *place] for token, place in self._underway.items()],
        }

    def restore(self, data: Plain) -> None:
        self._at, self._virtual, self._number = data["at"], data["virtual"], data["number"]
        self._underway = {from_plain(token): _Underway(*place) for token, *place in data["underway"]}
        self._uploads = sum(place.upload for place in self._underway.values())
        self._heap = [(place.ends, place.number, token) for token, place in self._underway.items()]
        heapq.heapify(self._heap)
