"""The file descriptors of a process: as many as the system allows, with a reserve that no peer can use up.

Files, the database, the log and the training child need descriptors while peers come and go. So connections and open
transfers each get a share of the limit, and the rest is the process's own.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass

_OWN = 64
"""Descriptors of the process itself. A gateway needs about 40, a cloud that evaluates on threads a few more."""
_TRANSFERS = 4
"""One descriptor in this many is for the file of an incoming transfer."""
_MANY = 2**20


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The shares of a process's descriptors."""

    connections: int
    transfers: int

    @staticmethod
    def shared(limit: int) -> Descriptors:
        """Divide the descriptors that the system allows this process."""
        transfers = limit // _TRANSFERS
        return Descriptors(max(limit - transfers - _OWN, 1), max(transfers, 1))

    @staticmethod
    def now() -> Descriptors:
        """Divide the descriptors that this process may have at present."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Descriptors.shared(_MANY if soft == resource.RLIM_INFINITY else soft)


def raise_limit() -> None:
    """Raise this process's limit on open files as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses an unlimited number
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
