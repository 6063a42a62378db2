"""What can go wrong with a state directory."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from async_hfl.core.errors import DataError

EXIT_DISK_FAILED = 74


class StateDirectoryError(DataError):
    """A state directory is in use, damaged or of another version."""


class DiskFull(StateDirectoryError):
    """Nothing more can be written. What was committed is whole; what was not has had no effect outside."""


def end_process(why: str) -> NoReturn:
    """A write or sync failed, and the kernel may have thrown the pages away: nobody knows what is on the disk now. Any
    further step could build on something that is not there, so this process must not take one. (The next one reads
    what is really there.)"""
    sys.stderr.write(
        f"async-hfl: the disk failed ({why}); this node ends at once. Check the disk, then start it again\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_DISK_FAILED)
