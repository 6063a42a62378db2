"""Recovery of a node after a crash: the contract of every shell with any store.

An event is durable before any of its effects is carried out. A restart restores the snapshot and handles the logged
events again with their effects suppressed. Then it resends unacknowledged messages, repeats unanswered requests, sets
the timers again, and writes the records that were not written before the crash. Only messages in flight are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from async_hfl.core.errors import UserError
from async_hfl.core.protocol.effects import Effect, Evaluate, SetTimer, Solve, Stop, Write
from async_hfl.core.protocol.events import Evaluated, Solved, TimerFired
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.nodes.reliability.delivery import Arrived, Dropped, NodeEvent, Packet, ReliableNode, Transmit

Request = Solve | Evaluate
_MOST_TEXT = 300


class Disk(Protocol):
    """A store that survives a crash up to the last `commit`."""

    def append(self, event: Plain) -> None: ...

    def retract(self) -> None:
        """Take back the event that was appended last; nothing was committed since."""

    def wrote(self, records: int) -> None:
        """Store that this many records since the last snapshot are in the journal."""

    def commit(self) -> None:
        """Make everything durable before returning."""

    def replace(self, snapshot: Plain) -> None:
        """Replace the snapshot durably, and clear the log and the count of records."""

    def read(self) -> tuple[Plain, list[Plain], int]:
        """Return the snapshot (or None), the events since, and how many of their records are in the journal."""


class DurableNode:
    """A `ReliableNode` whose state survives a crash of its process, and an error in the handling of a message."""

    def __init__(
        self, make: Callable[[], ReliableNode], disk: Disk, dropped: Callable[[Arrived, Exception], None] | None = None
    ) -> None:
        """`dropped`: a message that the node fails to handle is dropped, and passed to this function with the error.
        Without it the error is raised, as a simulation wants it."""
        self._make = make
        self._dropped = dropped
        self.disk = disk
        self.node = make()
        self.timers: dict[str, float] = {}
        self.requests: dict[tuple[str, int], Request] = {}
        self.stop: Stop | None = None
        self._records = 0

    def handle(self, event: NodeEvent) -> list[Effect | Transmit]:
        self.disk.append(to_plain(event))
        try:
            effects = self.node.handle(event)
        except UserError:
            raise  # of a policy or rule of the user's
        except Exception as error:
            if self._dropped is None or not isinstance(event, Arrived) or not isinstance(event.content, Packet):
                raise
            self._dropped(event, error)
            return self._drop(event, event.content, error)
        self._note(event, effects)
        return effects

    def _drop(self, event: Arrived, packet: Packet, error: Exception) -> list[Effect | Transmit]:
        """Drop a message that the node has failed to handle, perhaps half-way: return to the state before it, as after
        a crash, and note in the log that the message is done with. A replay finds neither the message nor the error."""
        self.disk.retract()
        self.disk.commit()
        self._restore()
        why = f"{type(packet.message).__name__} could not be handled: {type(error).__name__}: {error}"
        numbers = (packet.run, packet.incarnation, packet.number)
        return self.handle(Dropped(event.at, event.sender, *numbers, why[:_MOST_TEXT]))

    def written(self, records: int) -> None:
        """Note that the shell has written this many more records into the journal."""
        if records:
            self._records += records
            self.disk.wrote(self._records)

    def checkpoint(self) -> None:
        """Store a snapshot. Call this between events, when all records of the last one are written."""
        self.disk.replace(
            {
                "node": self.node.snapshot(),
                "timers": dict(self.timers),
                "requests": [to_plain(request) for request in self.requests.values()],
                "stop": to_plain(self.stop),
            }
        )
        self._records = 0

    def recover(self) -> list[Effect | Transmit]:
        """Restore the state after a crash, and return the effects to carry out, some of them perhaps again."""
        records = self._restore()
        timers = [SetTimer(key, at) for key, at in self.timers.items()]
        stop = [] if self.stop is None else [self.stop]
        return [*records, *self.node.unacknowledged(), *self.requests.values(), *timers, *stop]

    def _restore(self) -> list[Effect | Transmit]:
        """Restore the state from the disk, and return the records that were not written."""
        snapshot, logged, written = self.disk.read()
        self.node = self._make()
        self.timers, self.requests, self.stop = {}, {}, None
        if snapshot is not None:
            self.node.restore(snapshot["node"])
            self.timers = dict(snapshot["timers"])
            self.stop = from_plain(snapshot["stop"])
            for request in map(from_plain, snapshot["requests"]):
                self.requests[_key(request)] = request
        records: list[Effect | Transmit] = []
        for data in logged:
            event = from_plain(data)
            effects = self.node.handle(event)
            self._note(event, effects)
            records.extend(effect for effect in effects if isinstance(effect, Write))
        self._records = written
        return records[written:]

    def _note(self, event: NodeEvent, effects: list[Effect | Transmit]) -> None:
        if isinstance(event, TimerFired):
            self.timers.pop(event.key, None)
        elif isinstance(event, Solved):
            self.requests.pop(("solve", event.number), None)
        elif isinstance(event, Evaluated):
            self.requests.pop(("evaluate", event.epoch), None)
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at
            elif isinstance(effect, Stop):
                self.stop = effect
            elif isinstance(effect, (Solve, Evaluate)):
                self.requests[_key(effect)] = effect


def _key(request: Request) -> tuple[str, int]:
    return ("solve", request.number) if isinstance(request, Solve) else ("evaluate", request.epoch)
