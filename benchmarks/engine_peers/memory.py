"""Resident memory of a process and all its descendants, from /proc; 0 on systems without it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path


def resident_bytes() -> int:
    return _total("VmRSS")


def peak_resident_bytes() -> int:
    """Return the peak since `reset_peak`, or since each process started if the system cannot reset it."""
    return _total("VmHWM")


def reset_peak() -> None:
    for pid in _tree():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def release() -> None:
    """Return unused memory of Python and the allocator to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _total(field: str) -> int:
    total = 0
    for pid in _tree():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    total += 1024 * int(line.split()[1])
    return total


def _tree() -> list[int]:
    """Return the ids of this process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The second field is the name of the program in brackets, which may contain spaces.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found
