"""Outages in a simulated run: which nodes and links are down, and the events by which nodes learn of it.

Nodes learn of an outage as they would in a deployment, and in no other way:

    a device goes down      its transfers break off and its training is lost; when it is back it gets Returned
    a link goes down        its transfers break off; their senders retry until it is back
    a gateway goes down     its transfers break off; after `detection_s` the cloud declares it lost (PeerLost); when it
                            is back it has kept its state, as from a disk, and gets Returned
    a gateway dies          the same, for good; once it is declared lost, its open jobs are ended from its last state

A timer that would have fired during an outage fires when the node is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from async_hfl.core.identifiers import CLOUD, CLOUD_TIER, DEVICE_TIER, Address, device_address, gateway_address
from async_hfl.core.protocol.effects import SetTimer, StopTraining, Write
from async_hfl.core.protocol.events import PeerLost, Received, Returned, TimerFired
from async_hfl.core.protocol.messages import Fenced
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.outages.on_off import FIRST_DRAW
from async_hfl.network.outages.plan import Change, OutagePlan
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import ReliableNode, TransferOver
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import SHELL, EventQueue
from async_hfl.simulation.transfers.transfers import Transfer, Transfers

_RANDOM, _SCHEDULED, _DEAD = 1, 2, 4
"""Causes of an outage, as bits. A node without any cause is up."""
OutageChange = Literal["went_down", "came_back", "died", "slowed"]


@plain
@dataclass(frozen=True, slots=True)
class DetectionDue:
    """Event: the cloud declares a gateway lost, unless the gateway has been back since that outage."""

    gateway: int
    outage: int


class Shell(Protocol):
    """The part of the simulator that outages use."""

    @property
    def at(self) -> float: ...

    def index(self, address: Address) -> int: ...

    def perform(self, index: int, effects: Sequence[Any]) -> None: ...

    def deliver(self, index: int, event: Any) -> None: ...

    def mark_stopped(self, index: int) -> None:
        """Do not wait for this gateway to stop: it is dead."""
        ...


class Outages:
    def __init__(
        self,
        plan: OutagePlan,
        shell: Shell,
        queue: EventQueue,
        transfers: Transfers,
        times: DeviceTimes,
        nodes: Sequence[ReliableNode],
        links: FeasibleLinks,
    ) -> None:
        self.plan, self.shell, self.queue, self.transfers, self.times = plan, shell, queue, transfers, times
        self.nodes, self.links = nodes, links
        self.down = bytearray(len(nodes))
        """The causes of each node's outage; 0: the node is up."""
        self.slow: set[int] = set()
        self._links_down: dict[tuple[int, int], int] = {}
        """(device, gateway) -> causes of the outage."""
        self._outages = [0] * links.gateways
        """Number of outages so far, by gateway."""
        self._dead: dict[int, None] = {}
        """Gateways that died and whose jobs have not been ended yet."""
        self._missed_timers: dict[int, list[SetTimer]] = {}

    def begin(self) -> None:
        links = self.links
        counts = {"device": links.devices, "link": len(links.link_device), "gateway": links.gateways}
        for change in self.plan.first_changes(counts):  # type: ignore[arg-type]
            self.queue.push(change.at, SHELL, change)

    def connected(self, one: Address, other: Address) -> bool:
        index = self.shell.index
        if self.down[index(one)] or self.down[index(other)]:
            return False
        if not self._links_down:
            return True
        lower, upper = (one, other) if one.tier == DEVICE_TIER else (other, one)
        return (lower.number, upper.number) not in self._links_down or upper.tier == CLOUD_TIER

    def compute_factor(self, device: int) -> float:
        return self.plan.slow_factor if device in self.slow else 1.0

    def timer_missed(self, index: int, fired: TimerFired) -> None:
        self._missed_timers.setdefault(index, []).append(SetTimer(fired.key, fired.at))

    def handle(self, what: Change | DetectionDue) -> None:
        if isinstance(what, DetectionDue):
            self._declare_lost(what)
            return
        if what.draw >= FIRST_DRAW:
            following = self.plan.next_change(what)
            self.queue.push(following.at, SHELL, following)
        if what.turn == "slow":
            self.slow.add(what.number)
            self._write("slowed", f"d{what.number}")
        elif what.component == "link":
            self._link(what)
        else:
            self._node(what)

    def end(self) -> None:
        """Cut off all transfers and end the open jobs of dead gateways, because the run is over."""
        self.transfers.cut_all(self.shell.at)
        for gateway in list(self._dead):
            self._end_jobs(gateway)

    # Outages -----------------------------------------------------------------------------------------------------

    def _link(self, change: Change) -> None:
        device = int(self.links.link_device[change.number])
        gateway = int(self.links.link_gateway[change.number])
        before = self._links_down.get((device, gateway), 0)
        after = _causes(before, change)
        if after:
            self._links_down[device, gateway] = after
        else:
            self._links_down.pop((device, gateway), None)
        if bool(before) != bool(after):
            self._write("went_down" if after else "came_back", f"d{device}-g{gateway}")
        if after and not before:
            self._cut(device_address(device), gateway_address(gateway))

    def _node(self, change: Change) -> None:
        gateway = change.component == "gateway"
        address = gateway_address(change.number) if gateway else device_address(change.number)
        index = self.shell.index(address)
        before = self.down[index]
        self.down[index] = after = _causes(before, change)
        dies = bool(after & _DEAD and not before & _DEAD)
        if bool(before) == bool(after) and not dies:
            return
        self._write("died" if dies else "went_down" if after else "came_back", str(address))
        if not after:
            self._back(index)
            return
        self._cut(address)
        if not gateway:
            self.times.training_ended(change.number, self.shell.at)
            return
        self._outages[change.number] += 1
        detection = DetectionDue(change.number, self._outages[change.number])
        self.queue.push(self.shell.at + self.plan.detection_s, SHELL, detection)
        if dies:
            self._dead[change.number] = None
            self.shell.mark_stopped(index)

    def _back(self, index: int) -> None:
        self.shell.perform(index, self.nodes[index].send_again())
        self.shell.perform(index, self._missed_timers.pop(index, ()))
        self.shell.deliver(index, Returned(self.shell.at))

    def _cut(self, one: Address, other: Address | None = None) -> None:
        for transfer in self.transfers.cut(self.shell.at, one, other):
            self.broken(transfer)

    def broken(self, transfer: Transfer) -> None:
        """Tell the sender that a transfer broke off, if the sender is up."""
        sender = self.shell.index(transfer.sender)
        if not self.down[sender]:
            self.shell.deliver(sender, TransferOver(self.shell.at, transfer.to, transfer.wrapping[-1]))

    # Lost gateways -----------------------------------------------------------------------------------------------

    def _declare_lost(self, due: DetectionDue) -> None:
        gateway = due.gateway
        if not self.down[1 + gateway] or self._outages[gateway] != due.outage:
            return
        self.shell.deliver(0, PeerLost(self.shell.at, gateway_address(gateway)))
        if gateway in self._dead:
            self._end_jobs(gateway)

    def _end_jobs(self, gateway: int) -> None:
        """End the open jobs of a dead gateway: its last state handles the message that it was declared lost. Only the
        records of that are kept; none of its messages are sent."""
        del self._dead[gateway]
        cloud, dead = self.nodes[0].node, self.nodes[1 + gateway].node
        assert isinstance(cloud, CloudNode)
        assert isinstance(dead, GatewayNode)
        member, incarnation = cloud.state.members[gateway], dead.state.incarnation
        decided = tuple(member.outcomes.items()) if member.incarnation == incarnation else ()
        effects = dead.handle(Received(self.shell.at, CLOUD, Fenced(incarnation, decided)))
        self.shell.perform(1 + gateway, [effect for effect in effects if isinstance(effect, (Write, StopTraining))])

    def _write(self, what: OutageChange, node: str) -> None:
        self.shell.perform(0, [Write(LifecycleRecord(self.shell.at, what, node))])

    # Checkpoints -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Plain:
        return {
            "down": bytes(self.down).hex(),
            "slow": sorted(self.slow),
            "links_down": [[device, gateway, causes] for (device, gateway), causes in self._links_down.items()],
            "outages": list(self._outages),
            "dead": list(self._dead),
            "missed_timers": to_plain(self._missed_timers),
        }

    def restore(self, data: Plain) -> None:
        self.down[:] = bytes.fromhex(data["down"])
        self.slow = set(data["slow"])
        self._links_down = {(device, gateway): causes for device, gateway, causes in data["links_down"]}
        self._outages = list(data["outages"])
        self._dead = dict.fromkeys(data["dead"])
        self._missed_timers = from_plain(data["missed_timers"])


def _causes(before: int, change: Change) -> int:
    if change.turn == "dies":
        return before | _DEAD
    cause = _RANDOM if change.draw >= 0 else _SCHEDULED
    return before | cause if change.turn == "down" else before & ~cause
