"""Listing, fetching and verification of the published data sets, for the command `async-hfl data`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from async_hfl.core.errors import DataError
from async_hfl.learning.cache import CACHE_VARIABLE
from async_hfl.learning.datasets.files.catalogue import PUBLISHED
from async_hfl.learning.datasets.files.download import Progress, disk_error, download
from async_hfl.learning.datasets.files.published import Download, PublishedSet
from async_hfl.learning.datasets.files.sources import (
    Sources,
    decompressed,
    download_folder,
    find,
    folders,
    in_folder,
    mismatch,
    possible_names,
)

Place = Literal["embedded", "data directory", "downloads"]
Origin = Literal["there", "copied", "downloaded"]
_TEMPORARY_PREFIX = "unpacking-"


@dataclass(frozen=True, slots=True)
class Listed:
    name: str
    title: str
    place: Place | None
    """None if the set is not on this machine."""
    folder: str | None
    bytes: int | None
    """Bytes on the disk."""
    download_bytes: int
    """Approximate bytes to download."""
    train: int
    test: int
    licence: str


@dataclass(frozen=True, slots=True)
class Fetched:
    name: str
    folder: str
    origin: Origin
    bytes: int


@dataclass(frozen=True, slots=True)
class Verified:
    name: str
    file: str
    path: str | None
    problem: str | None
    """None if the content is the published one."""


def list_sets() -> list[Listed]:
    digits = Listed("digits", "Handwritten digits, 8 x 8", "embedded", None, None, 0, 1_437, 360, "CC BY 4.0")
    return [digits, *(_listed(published) for published in PUBLISHED.values())]


def _listed(published: PublishedSet) -> Listed:
    sources = find(published)
    place: Place | None = None
    if sources is not None:
        place = "downloads" if sources.folder == download_folder(published) else "data directory"
    return Listed(
        published.name,
        published.title,
        place,
        str(sources.folder) if sources else None,
        _bytes(sources) if sources else None,
        published.download_bytes,
        published.samples["train"],
        published.samples["test"],
        published.licence,
    )


def verify(published: PublishedSet) -> list[Verified]:
    """Check every file of the set. Problems are returned, not raised."""
    return [_verified(published, file.name, find(published, [file.name])) for file in published.files]


def _verified(published: PublishedSet, name: str, sources: Sources | None) -> Verified:
    if sources is None:
        return Verified(published.name, name, None, "missing")
    path = sources.paths[name]
    try:
        problem = mismatch(published.file(name), decompressed(path))
    except DataError as error:
        problem = str(error).removeprefix(f"{path}: ")
    return Verified(published.name, name, str(path), problem)


def fetch(published: PublishedSet, progress: Progress) -> Fetched:
    """Fetch the set into the download folder: correct files stay, others are copied from $ASYNC_HFL_DATA or fetched."""
    folder = download_folder(published)
    if folder is None:
        raise DataError(f"there is no place for downloads; set {CACHE_VARIABLE} to a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, published.name):
            origin = _fetch(published, folder, progress)
    except OSError as problem:
        raise disk_error(folder, problem) from problem
    sources = in_folder(published, folder)
    return Fetched(published.name, str(folder), origin, _bytes(sources) if sources else 0)


def _fetch(published: PublishedSet, folder: Path, progress: Progress) -> Origin:
    for leftover in folder.glob(f"{_TEMPORARY_PREFIX}*"):  # of a process that was killed
        shutil.rmtree(leftover)
    if _is_intact(in_folder(published, folder)):
        return "there"
    for other in folders(published):
        sources = in_folder(published, other) if other != folder else None
        if sources is not None and _is_intact(sources):
            for path in sources.paths.values():
                _copy(path, folder, progress)
            _keep_only(published, folder, [path.name for path in sources.paths.values()])
            return "copied"
    for wanted in published.downloads:
        _keep_only(published, folder, _download(published, wanted, folder, progress))
    return "downloaded"


def _download(published: PublishedSet, wanted: Download, folder: Path, progress: Progress) -> list[str]:
    """Return the names of the files that are there now."""
    arrived = download(wanted, folder, progress)
    if wanted.unpack is None:
        return [arrived.name]
    # Into a separate folder first: only files with the right content enter the folder of the set.
    with tempfile.TemporaryDirectory(dir=folder, prefix=_TEMPORARY_PREFIX) as temporary:
        new = Path(temporary)
        try:
            wanted.unpack(arrived, new)
            for file in published.files:
                problem = mismatch(file, decompressed(new / file.name))
                if problem:
                    raise DataError(f"{wanted.name}: {file.name}: {problem}; the publisher may have changed it")
        except DataError:
            arrived.unlink(missing_ok=True)  # the next attempt must download it again
            raise
        for file in published.files:
            os.replace(new / file.name, folder / file.name)
    arrived.unlink()
    return [file.name for file in published.files]


def _keep_only(published: PublishedSet, folder: Path, kept: list[str]) -> None:
    """Remove an older copy of the file in another compression format, which would be read instead."""
    for file in published.files:
        names = possible_names(file.name)
        if set(names) & set(kept):
            for name in set(names) - set(kept):
                (folder / name).unlink(missing_ok=True)


def _is_intact(sources: Sources | None) -> bool:
    if sources is None:
        return False
    files = sources.published.files
    return all(_verified(sources.published, file.name, sources).problem is None for file in files)


def _copy(source: Path, folder: Path, progress: Progress) -> None:
    """Copy a file. A link would break if the original is on a removable disk or is changed in place."""
    size = source.stat().st_size
    progress(source.name, 0, size)
    part = folder / f"{source.name}.copy"
    shutil.copyfile(source, part)
    os.replace(part, folder / source.name)
    progress(source.name, size, size)


def _bytes(sources: Sources) -> int:
    return sum(path.stat().st_size for path in sources.paths.values())


@contextlib.contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Lock the folder, so that two processes do not write the same file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as problem:
        raise DataError(f"{name} is being fetched by another process; wait for it to end") from problem
    finally:
        os.close(handle)
