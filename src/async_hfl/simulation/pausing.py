"""Requests to pause a run: its checkpoint is saved before the next event.

Events are handled as a whole, so that the state of the nodes is always consistent. A wait for training changes nothing
until it ends, may take minutes, and is therefore given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class GaveUpWaiting(BaseException):
    """Raised out of a wait for training that a request to pause has ended. Not an `Exception`, so that nothing on the
    way handles it."""


class PauseRequest:
    """A request that a signal handler makes, in the thread that simulates. Calling it says whether it was made."""

    def __init__(self) -> None:
        self._made = False
        self._waiting = False

    def __call__(self) -> bool:
        return self._made

    def make(self) -> None:
        """Make the request. Raises GaveUpWaiting into a wait that has been announced."""
        self._made = True
        if self._waiting:
            self._waiting = False
            raise GaveUpWaiting

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Announce a wait, which may be given up."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False
