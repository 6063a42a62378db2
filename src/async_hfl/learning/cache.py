"""The cache directory for files that can be made again: compiled programs, downloads, parsed arrays.

It is ASYNC_HFL_CACHE (empty: no cache), else XDG_CACHE_HOME/async-hfl, else ~/.cache/async-hfl.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "ASYNC_HFL_CACHE"


def cache_root() -> Path | None:
    """Return the directory, which need not exist yet; None if there is no cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared) / "async-hfl"
    try:
        return Path.home() / ".cache" / "async-hfl"
    except RuntimeError:  # no home directory
        return None
