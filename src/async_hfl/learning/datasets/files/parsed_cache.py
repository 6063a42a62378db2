"""Cache of parsed arrays, so that the second start does not parse again.

An entry is keyed by the digests of the published files and the reader's version. The parsed content had exactly those
digests (see `Sources.content`), so the arrays are valid wherever the files are now, and no file is read to check. A
file that is built and not published has no such digest; the key then includes the file itself. An entry is an
uncompressed npz. It has a checksum for every array, so a damaged entry is detected and rebuilt.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.learning.cache import cache_root
from async_hfl.learning.datasets.files.published import PublishedSet
from async_hfl.learning.datasets.files.sources import Sources, caller_sources, locate

Arrays = dict[str, npt.NDArray[Any]]
Parse = Callable[[Sources], Arrays]


def load_arrays(
    published: PublishedSet, parse: Parse, *, version: str, folder: Path | None, names: Sequence[str] = ()
) -> Arrays:
    """Return the set's arrays: from the cache if possible, otherwise parsed from its files (the named ones, or all) and
    cached.

    Files in the caller's own `folder` are parsed whatever their digests, and not cached.
    """
    if folder is not None:
        return parse(caller_sources(published, folder, names))
    path = _entry(published, version, names)
    kept = _read(path)
    if kept is None:
        kept = parse(locate(published, names))
        _write(path, kept)
    return kept


def _entry(published: PublishedSet, version: str, names: Sequence[str]) -> Path | None:
    root = cache_root()
    if root is None:
        return None
    key = hashlib.sha256(version.encode())
    for file in published.files:
        if names and file.name not in names:
            continue
        if file.check is None:
            key.update(file.sha256.encode())
        else:
            key.update(hashlib.sha256(locate(published, [file.name]).paths[file.name].read_bytes()).digest())
    return root / "arrays" / f"{published.name}-{version}-{key.hexdigest()[:16]}.npz"


def _read(path: Path | None) -> Arrays | None:
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:  # whatever is wrong with the entry, it can be rebuilt
        return None


def _write(path: Path | None, arrays: Arrays) -> None:
    """Write the entry atomically. A failure only costs time at the next start."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
