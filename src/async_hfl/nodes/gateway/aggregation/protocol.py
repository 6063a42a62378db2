"""What to do with updates and global models: the part of a gateway that differs between methods.

`MixOnArrival`, `Relay`, `Periods` and `Rounds` are such parts; a gateway is handed one. Each begins with what a gateway
of any kind has (flights, a roster, uploads) and decides four things: when devices may be triggered, what becomes of an
update, when a cycle is over, and what happens to work that is late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobEnd
from async_hfl.core.serialization import Plain, plain
from async_hfl.nodes.gateway.state import InFlightJob

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode


@plain
@dataclass(slots=True)
class HeldUpdate:
    """An update that arrived and has no end yet."""

    number: int
    in_flight: InFlightJob
    update: m.Update


class GatewayAggregation(Protocol):
    # Devices -----------------------------------------------------------------------------------------------------

    def dispatches(self, node: GatewayNode) -> bool:
        """May a selection run now? It is asked for whenever a device becomes idle, joins, returns or is given up."""
        ...

    def dispatched(self, node: GatewayNode, jobs: tuple[int, ...], at: float) -> None:
        """A selection triggered these jobs (at least one)."""
        ...

    def received(self, node: GatewayNode, number: int, in_flight: InFlightJob, update: m.Update, at: float) -> None:
        """An update of ours arrived; its device is already idle."""
        ...

    def ended(self, node: GatewayNode, numbers: tuple[int, ...], at: float) -> None:
        """These jobs will bring no update in time: dropped by their devices, refused, or given up. A given-up job is
        still open, and what comes of it later is received as any other."""
        ...

    # The cloud ---------------------------------------------------------------------------------------------------

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        """The first global model of this incarnation."""
        ...

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None: ...

    def offered(self, node: GatewayNode, at: float) -> None:
        """A newer global model was stored (`state.newest`). A gateway that has work under way leaves it there."""
        ...

    # Time --------------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """When this part wants to be woken by its timer (infinite: not at all)."""
        ...

    def timer(self, node: GatewayNode, at: float) -> None:
        """Its timer fired; `due` may have moved meanwhile."""
        ...

    def waits(self, node: GatewayNode) -> bool:
        """Would `idle` have something to do?"""
        ...

    def idle(self, node: GatewayNode, at: float) -> None:
        """Nothing is in flight, nobody can be triggered, and that has lasted for `cycle_patience`."""
        ...

    # The end, and what survives a crash --------------------------------------------------------------------------

    def held(self) -> Iterable[HeldUpdate]:
        """Updates that are here and have no end yet."""
        ...

    def over(self, node: GatewayNode, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
        """End whatever this aggregation still holds; the cloud has decided on the uploads of these numbers."""
        ...

    def snapshot(self) -> Plain: ...

    def restore(self, data: Plain) -> None: ...
