"""The format number of a run's files, and the error for files that another release wrote."""

from __future__ import annotations

from pathlib import Path

FORMAT = 3
"""Format of the manifest, the events file and the checkpoint. Every change after which old files cannot be read raises
it, also a renamed record kind."""
_RELEASES = {1: "0.1.0", 2: "0.1.0"}
"""The last release that reads each former format."""


def foreign_format(path: Path, found: object, reads: int = FORMAT) -> str:
    """Return the error message for a file in another format than this version reads."""
    if isinstance(found, int) and (release := _RELEASES.get(found)):
        return (
            f"{path}: written by async-hfl {release} (format {found}); this version reads format {reads}: "
            f"use async-hfl {release} to open it"
        )
    return f"{path}: written in format {found}; this version reads format {reads}: use a newer async-hfl to open it"
