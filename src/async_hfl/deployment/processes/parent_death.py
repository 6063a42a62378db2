"""No orphans: a child process ends with its parent, however that ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
PARENT_VARIABLE = "ASYNC_HFL_PARENT"
"""Whom a process is to die with; set by who starts it."""


def die_with_whoever_started_us() -> None:
    if parent := os.environ.get(PARENT_VARIABLE):
        die_with_parent(int(parent))


def die_with_parent(parent: int | None = None) -> None:
    """Linux: have the kernel end us when the parent is gone. Elsewhere the end of a pipe has to do.

    `parent`: who it should be; if it is another by now, it went before we could ask."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
