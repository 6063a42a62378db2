"""Resident memory of a process and all its children, from /proc; not available on other systems."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path


def resident_bytes() -> int:
    return _total("VmRSS")


def most_resident_bytes() -> int:
    """Since `forget_most`, or since each process began where the system does not let it forget."""
    return _total("VmHWM")


def forget_most() -> None:
    for pid in _tree():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def give_back() -> None:
    """What Python and the allocator hold without need: the next measurement begins lower."""
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
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The second field is the program's name in brackets, which may hold blanks.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found
