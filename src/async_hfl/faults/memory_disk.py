"""A disk in memory: what was committed is there after a crash, what was not is torn off."""

from __future__ import annotations

from dataclasses import dataclass, field

from async_hfl.core.serialization import Plain


@dataclass(slots=True)
class MemoryDisk:
    """Never fails, but its owner may die before a commit. What is on it is copied, so nothing leaks between lives."""

    snapshot: Plain = None
    log: list[Plain] = field(default_factory=list)
    records: int = 0
    _log: list[Plain] = field(default_factory=list)
    _records: int | None = None

    def append(self, event: Plain) -> None:
        self._log.append(event)

    def wrote(self, records: int) -> None:
        self._records = records

    def commit(self) -> None:
        self.log += self._log
        if self._records is not None:
            self.records = self._records
        self.tear()

    def tear(self) -> None:
        """The owner died: what was not committed is not there."""
        self._log, self._records = [], None

    def replace(self, snapshot: Plain) -> None:
        self.tear()  # it is inside the snapshot
        self.snapshot, self.log, self.records = snapshot, [], 0

    def read(self) -> tuple[Plain, list[Plain], int]:
        self.tear()
        return self.snapshot, list(self.log), self.records
