"""From a node that sends to the one that receives, where transfers are watched (`transfers.py`).

Where nothing fails a message sent is a message received. Where things fail (`life.py`) packets and receipts travel: a
packet with nobody at the other end is over at once, and its sender will try again.
"""

from __future__ import annotations

from typing import Any, Protocol

from async_hfl.core.identifiers import Address, JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.traffic import HEADER_BYTES
from async_hfl.core.weights import Weights
from async_hfl.nodes.reliability.delivery import Arrived, Packet, TransferOver, Transmit
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.outages import Outages
from async_hfl.simulation.training_pool import TrainingPool
from async_hfl.simulation.transfers.transfers import TransferDue, Transfers


class Shell(Protocol):
    """What carrying needs of the loop."""

    @property
    def at(self) -> float: ...

    @property
    def queue(self) -> EventQueue: ...

    @property
    def pool(self) -> TrainingPool: ...

    def address(self, index: int) -> Address: ...

    def index(self, address: Address) -> int: ...

    def expect(self, job: JobId, device: int, weights: Weights) -> None: ...

    def deliver(self, index: int, event: Any) -> None: ...


class WatchedDelivery:
    def __init__(self, shell: Shell, transfers: Transfers) -> None:
        self.shell = shell
        self.transfers = transfers
        self.life: Outages | None = None

    def send(self, index: int, send: Send) -> None:
        """Where nothing fails."""
        shell, message = self.shell, send.message
        if type(message) is m.Train:
            shell.expect(message.job, send.to.number, message.weights)
        elif type(message) is m.JobDropped:
            shell.pool.forget(message.job)
        self.transfers.start(shell.at, shell.address(index), send.to, message)

    def transmit(self, index: int, transmit: Transmit) -> None:
        """Where things fail."""
        assert self.life is not None
        shell, to, content = self.shell, transmit.to, transmit.content
        sender, at = shell.address(index), shell.at
        if not self.life.connected(sender, to):
            if isinstance(content, Packet):
                shell.queue.push(at, index, TransferOver(at, to, content.number))
        elif isinstance(content, Packet):
            wrapping = (content.run, content.incarnation, content.number)
            self.transfers.start(at, sender, to, content.message, wrapping)
        else:  # a receipt: its bytes are in the header of what it acknowledges
            delay = self.transfers.delay(sender, to, HEADER_BYTES)
            shell.queue.push(at + delay, shell.index(to), Arrived(at + delay, sender, content, delay))

    def ended(self, due: TransferDue) -> None:
        """A transfer is over, unless it was cut off before."""
        shell, at = self.shell, self.shell.at
        transfer = self.transfers.ended(at, due)
        if transfer is None:
            return
        target, took = shell.index(transfer.to), at - transfer.began
        if self.life is None:
            shell.deliver(target, Received(at, transfer.sender, transfer.message, took))
        elif transfer.share < 1.0:
            self.life.broken(transfer)
        else:
            run, incarnation, number = transfer.wrapping
            packet = Packet(run, incarnation, number, transfer.message)
            shell.deliver(target, Arrived(at, transfer.sender, packet, took))
            shell.deliver(shell.index(transfer.sender), TransferOver(at, transfer.to, number))
