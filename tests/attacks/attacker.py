"""A device with a valid certificate that sends whatever it wants, and keeps to the rest of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from async_hfl.core.identifiers import Address, JobId, gateway_address
from async_hfl.core.protocol.messages import Message, Train
from async_hfl.deployment.transport.admission import Admission, Refusal
from async_hfl.deployment.transport.transfers.spool import SpooledPacket
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Packet, Receipt

EVIL = "evil"


class Attacker:
    """A device with a valid certificate that speaks the protocol and sends whatever it wants.

    It acknowledges what it receives, as a device does, unless `acknowledges` is False."""

    def __init__(self, name: str = EVIL) -> None:
        self.name = name
        self.received: list[Message] = []
        self.admission: Admission | None = None
        self.refusals: list[Refusal] = []
        self.sessions = 0
        """Number of sessions so far."""
        self.connected = False
        self.acknowledges = True
        self.incarnation = 77
        self.number = 0
        """Of the last packet."""
        self.transport: Transport
        self.gateway = gateway_address(0)
        self.model_size = 1
        """Numbers of a model, before it has been sent one."""
        # What an attack remembers between its strikes.
        self.answered: set[JobId] = set()
        self.invented = 0
        self.offers = 0
        self.dripping: asyncio.Task[None] | None = None

    @property
    def run(self) -> int:
        assert self.admission is not None
        return self.admission.run

    def admitted(self, admission: Admission) -> None:
        self.admission = admission
        self.model_size = int(admission.facts["model_size"])

    def stop_dripping(self) -> None:
        if self.dripping is not None:
            self.dripping.cancel()
            self.dripping = None

    # The inbox of a transport ------------------------------------------------------------------------------------

    def arrived(
        self, sender: Address, content: Content, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        if spooled is not None:
            spooled.path.unlink()
        if isinstance(content, Packet):
            self.received.append(content.message)
            if self.acknowledges:
                self.transport.send(sender, Receipt(content.run, content.incarnation, content.number))

    def transfer_over(self, to: Address, number: int) -> None:
        pass

    def peer_joined(self, peer: Address) -> None:
        self.gateway = peer
        self.sessions += 1
        self.connected = True

    def peer_lost(self, peer: Address, why: str) -> None:
        self.connected = False

    # The attack --------------------------------------------------------------------------------------------------

    def send(self, message: Message, *, number: int | None = None, incarnation: int | None = None) -> None:
        """Send a message in a new packet; its number and incarnation can be chosen."""
        assert self.admission is not None
        if number is None:
            self.number += 1
        packet_number = self.number if number is None else number
        stated = self.incarnation if incarnation is None else incarnation
        self.transport.send(self.gateway, Packet(self.admission.run, stated, packet_number, message))

    def got(self, kind: type) -> list[Any]:
        return [message for message in self.received if type(message) is kind]

    def jobs_to_aggregate(self) -> list[Train]:
        """Return the jobs that it was sent after the warm-up."""
        return [train for train in self.got(Train) if not train.warmup]
