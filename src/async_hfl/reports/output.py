"""Output files of reports: their directories are created, and failures become errors for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from async_hfl.core.errors import UserError


@contextmanager
def writing(path: Path, *, create_directory: bool = True) -> Iterator[None]:
    """Create the directory of `path` unless it has to exist, and turn an OSError in the block into a UserError."""
    try:
        if create_directory:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or error
        remedy = "give another --out" if create_directory else "give a file in a directory that exists"
        raise UserError(f"{error.filename or path}: cannot be written ({reason}); {remedy}") from error
