"""Outages of a run: the times at which devices, links and gateways go down, come back or become slow, and the rate of
broken transfers.

Three sources can be combined: random on/off processes, a schedule and a file. A node or link is up if all of them
agree.
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

Component = Literal["device", "link", "gateway"]
Turn = Literal["up", "down", "dies", "slow"]
"""dies: down for good. slow: a device computes `slow_factor` times longer from now on."""
COMPONENTS: tuple[Component, ...] = get_args(Component)
TURNS: tuple[Turn, ...] = get_args(Turn)


@plain
@dataclass(frozen=True, slots=True)
class Change:
    """One change of state of a device, of a gateway or of a link (numbered among the feasible links)."""

    at: float
    component: Component
    number: int
    turn: Turn
    draw: int = -1
    """For a random process, the number of its next draw (below FIRST_DRAW if nothing follows); otherwise -1."""


@dataclass(frozen=True, slots=True)
class OutagePlan:
    seed: int
    devices: OnOff | None = None
    links: OnOff | None = None
    gateways: OnOff | None = None
    scheduled: tuple[Change, ...] = ()
    """Sorted by time."""
    detection_s: float = 60.0
    """Seconds after which the cloud declares a gateway lost that is still down."""
    transfer_loss: float = 0.0
    """Probability that a transfer breaks off."""
    slow_factor: float = 1.0

    def process(self, component: Component) -> OnOff | None:
        """Return the random process of this kind of component."""
        return {"device": self.devices, "link": self.links, "gateway": self.gateways}[component]

    def first_changes(self, counts: dict[Component, int]) -> list[Change]:
        """Return the changes of the schedule, and the first change of each device, link or gateway that has a random
        process (two changes if it starts down)."""
        changes = list(self.scheduled)
        for component in COMPONENTS:
            process = self.process(component)
            if process is None:
                continue
            seed = stream_seed(self.seed, "life", component)
            for number in range(counts[component]):
                up, seconds = process.first(seed, number)
                if up:
                    changes.append(Change(seconds, component, number, "down", FIRST_DRAW))
                else:
                    changes.append(Change(0.0, component, number, "down", 0))
                    changes.append(Change(seconds, component, number, "up", FIRST_DRAW))
        return sorted(changes, key=lambda change: change.at)

    def next_change(self, change: Change) -> Change:
        """Return the next change of a random process."""
        process = self.process(change.component)
        assert process is not None
        up = change.turn == "up"
        seconds = process.seconds(up, stream_seed(self.seed, "life", change.component), change.number, change.draw)
        turn: Turn = "down" if up else "up"
        return Change(change.at + seconds, change.component, change.number, turn, change.draw + 1)


def checked_schedule(changes: Sequence[Change], links: FeasibleLinks) -> tuple[Change, ...]:
    """Sort a schedule by time and check that every node in it exists. A gateway that never comes back dies."""
    counts = {"device": links.devices, "link": len(links.link_device), "gateway": links.gateways}
    for change in changes:
        if not 0 <= change.number < counts[change.component]:
            raise DataError(
                f"outages: {change.component} {change.number} at {change.at:g} s: the network has {change.component}s "
                f"0..{counts[change.component] - 1}"
            )
        if change.turn == "slow" and change.component != "device":
            raise DataError(f"outages: a {change.component} at {change.at:g} s cannot become slow; a device can")
    ordered = sorted(changes, key=lambda change: change.at)
    last = {change.number: place for place, change in enumerate(ordered) if change.component == "gateway"}
    for place in last.values():
        if ordered[place].turn == "down":
            ordered[place] = replace(ordered[place], turn="dies")
    return tuple(ordered)
