"""Peers that send what no correct node sends: a server ends their session, and refuses them a new one for a while.

A refusal may be a mistake of ours, or a broken line, so a few are forgiven: eight at once, and one more each minute.
After that the peer must wait for 30 s, and twice as long each further time, up to an hour. A correct peer that waits
loses nothing: its messages stay on its disk until they are acknowledged.

Packets and offers of a device are counted as well. A device that sends more than a hundred of them a second for long
is not read any faster than that; the packets wait at its end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from async_hfl.core.identifiers import Address

log = logging.getLogger("async_hfl.transport")
_FORGIVEN = 8.0
_FORGIVEN_PER_S = 1 / 60
_PAUSE_FIRST_S = 30.0
_PAUSE_MOST_S = 3600.0
_FORGET_S = 86400.0
"""A peer that was set aside this long ago begins with the first pause again."""


@dataclass(slots=True)
class _Known:
    left: float
    """Refusals that are still forgiven."""
    at: float
    until: float = 0.0
    pauses: int = 0


class Allowance:
    """The number of packets that a peer may send at once, refilled at a steady rate."""

    def __init__(self, per_s: float, most: float, now: float) -> None:
        self._per_s, self._most = per_s, most
        self._left, self._at = most, now

    def take(self, now: float) -> float:
        """Count one packet; return the seconds to wait before the next one is read."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s) - 1.0
        self._at = now
        return 0.0 if self._left >= 0.0 else -self._left / self._per_s

    def refused(self, now: float) -> float:
        """Count one request if it is allowed; otherwise return the seconds until one is."""
        if (wait := self.take(now)) > 0.0:
            self._left += 1.0
        return wait


@dataclass(slots=True)
class Conduct:
    clock: Callable[[], float]
    _known: dict[Address, _Known] = field(default_factory=dict)
    _allowances: dict[tuple[Address, str], Allowance] = field(default_factory=dict)

    def refused(self, peer: Address, why: str, *, final: bool = False) -> None:
        """Note that something that a peer sent was refused. `final`: it is set aside at once."""
        now = self.clock()
        known = self._known.setdefault(peer, _Known(_FORGIVEN, now))
        if known.until > now:
            return  # its session is being ended
        if known.until and now - known.until > _FORGET_S:
            known.pauses = 0
        known.left = min(_FORGIVEN, known.left + (now - known.at) * _FORGIVEN_PER_S) - 1.0
        known.at = now
        if known.left >= 0.0 and not final:
            return
        pause = min(_PAUSE_FIRST_S * 2.0**known.pauses, _PAUSE_MOST_S)
        known.pauses, known.until, known.left = min(known.pauses + 1, 20), now + pause, 1.0
        log.warning("%s is set aside for %.0f s: %s", peer, pause, why)

    def pause_left(self, peer: Address) -> float:
        """Return for how many more seconds a peer is set aside, 0 if it is not."""
        known = self._known.get(peer)
        return 0.0 if known is None else max(0.0, known.until - self.clock())

    def allowance(self, peer: Address, what: str, per_s: float, most: float) -> Allowance:
        """Return a peer's allowance of something. It outlasts the session, so a new session brings no more."""
        return self._allowances.setdefault((peer, what), Allowance(per_s, most, self.clock()))
