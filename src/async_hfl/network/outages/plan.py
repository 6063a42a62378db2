"""What befalls a network in a run: who goes down when, and comes back; what becomes slow; how many transfers break.

Three sources, which may be combined: random on/off processes, a schedule, a file. A thing is up when all agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream_seed
from async_hfl.core.serialization import plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.outages.on_off import FIRST_DRAW, OnOff

Thing = Literal["device", "link", "gateway"]
Turn = Literal["up", "down", "dies", "slow"]
"""dies: down for good. slow: a device computes `slow_factor` times longer from now on."""
THINGS: tuple[Thing, ...] = get_args(Thing)
TURNS: tuple[Turn, ...] = get_args(Turn)


@plain
@dataclass(frozen=True, slots=True)
class Change:
    """One turn in the life of a device, of a gateway, or of a link (by its place among the feasible links)."""

    at: float
    thing: Thing
    number: int
    turn: Turn
    draw: int = -1
    """Of a random process: the number of its next draw, below FIRST_DRAW where nothing follows; -1 otherwise."""


@dataclass(frozen=True, slots=True)
class OutagePlan:
    seed: int
    devices: OnOff | None = None
    links: OnOff | None = None
    gateways: OnOff | None = None
    scheduled: tuple[Change, ...] = ()
    """In the order of time."""
    detection_s: float = 60.0
    """A gateway that stays down longer is declared lost by the cloud."""
    transfer_loss: float = 0.0
    """Chance of each transfer to break off on its way."""
    slow_factor: float = 1.0

    def process(self, thing: Thing) -> OnOff | None:
        return {"device": self.devices, "link": self.links, "gateway": self.gateways}[thing]

    def beginnings(self, counts: dict[Thing, int]) -> list[Change]:
        """The first changes: those of the schedule, and one for each source of a random process (two if it begins
        down)."""
        changes = list(self.scheduled)
        for thing in THINGS:
            process = self.process(thing)
            if process is None:
                continue
            seed = stream_seed(self.seed, "life", thing)
            for number in range(counts[thing]):
                up, seconds = process.first(seed, number)
                if up:
                    changes.append(Change(seconds, thing, number, "down", FIRST_DRAW))
                else:
                    changes.append(Change(0.0, thing, number, "down", 0))
                    changes.append(Change(seconds, thing, number, "up", FIRST_DRAW))
        return sorted(changes, key=lambda change: change.at)

    def after(self, change: Change) -> Change:
        """What a random process does next."""
        process = self.process(change.thing)
        assert process is not None
        up = change.turn == "up"
        seconds = process.seconds(up, stream_seed(self.seed, "life", change.thing), change.number, change.draw)
        turn: Turn = "down" if up else "up"
        return Change(change.at + seconds, change.thing, change.number, turn, change.draw + 1)


def checked(changes: Sequence[Change], links: FeasibleLinks) -> tuple[Change, ...]:
    """In the order of time, every one about something there is; a gateway that never comes back has died."""
    counts = {"device": links.devices, "link": len(links.link_device), "gateway": links.gateways}
    for change in changes:
        if not 0 <= change.number < counts[change.thing]:
            raise DataError(
                f"outages: {change.thing} {change.number} at {change.at:g} s: the network has {change.thing}s "
                f"0..{counts[change.thing] - 1}"
            )
        if change.turn == "slow" and change.thing != "device":
            raise DataError(f"outages: a {change.thing} at {change.at:g} s cannot become slow; a device can")
    ordered = sorted(changes, key=lambda change: change.at)
    last = {change.number: place for place, change in enumerate(ordered) if change.thing == "gateway"}
    for place in last.values():
        if ordered[place].turn == "down":
            ordered[place] = replace(ordered[place], turn="dies")
    return tuple(ordered)
