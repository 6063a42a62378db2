"""Ends a child process when its parent ends, for whatever reason."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
PARENT_VARIABLE = "ASYNC_HFL_PARENT"
"""Set to its own process id by a launcher whose processes must end with it."""


def die_with_launcher() -> None:
    if parent := os.environ.get(PARENT_VARIABLE):
        die_with_parent(int(parent))


def die_with_parent(parent: int | None = None) -> None:
    """Let the Linux kernel kill this process when its parent ends; elsewhere do nothing.

    `parent`: the expected parent. If this process has another one, the expected parent has ended already."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
