"""The record of a file in the summary of a run: its length and its SHA-256, by which lost data is noticed later."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REMEDY = "restore the file from a copy, or make the run again"


def record_of(path: Path, sha256: str | None = None) -> dict[str, Any]:
    """Return the record of a file that is complete. `sha256` saves reading it, if the digest is known."""
    return {"bytes": path.stat().st_size, "sha256": _sha256(path) if sha256 is None else sha256}


def difference_of_length(path: Path, recorded: Mapping[str, Any]) -> str | None:
    """Return the difference between a file's length and the recorded one, as a message; None if there is none."""
    length = int(recorded["bytes"])
    if not path.is_file():
        return f"{path}: missing, though the run is complete (it had {length:,} bytes)"
    more = path.stat().st_size - length
    if more == 0:
        return None
    amount = f"{-more:,} of its {length:,} bytes are missing" if more < 0 else f"has {more:,} bytes too many"
    return f"{path}: {amount}, going by the summary of the run"


def difference_of_content(path: Path, recorded: Mapping[str, Any]) -> str | None:
    """Return a message if the SHA-256 of a file is not the recorded one. Reads the whole file."""
    if _sha256(path) == recorded["sha256"]:
        return None
    return f"{path}: its SHA-256 is not the one in the summary, so it has changed since the end of the run"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
