"""Locations of a set's files, and their content, decompressed and checked.

The data directory $ASYNC_HFL_DATA comes first (one folder per set), then the downloads of `async-hfl data fetch`. Files
may be compressed by gzip, bzip2 or xz and are read as they are.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from async_hfl.core.errors import DataError
from async_hfl.learning.cache import CACHE_VARIABLE, cache_root
from async_hfl.learning.datasets.files.published import PublishedSet, SourceFile

DATA_VARIABLE = "ASYNC_HFL_DATA"

_DECOMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


@dataclass(frozen=True, slots=True)
class Sources:
    """A set's files in one folder."""

    published: PublishedSet
    folder: Path
    paths: Mapping[str, Path]
    """Paths by plain name."""
    checked: bool = True
    """True if the content must have the published digests; False for a folder that the caller names."""

    def content(self, name: str) -> bytes:
        """Return the decompressed content of a file."""
        path = self.paths[name]
        content = decompressed(path)
        if self.checked:
            self._check(self.published.file(name), path, content)
        return content

    def contents(self, names: Sequence[str]) -> list[bytes]:
        """Return the content of several files, decompressed in parallel."""
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(self.content, names))

    def _check(self, file: SourceFile, path: Path, content: bytes) -> None:
        problem = mismatch(file, content)
        if problem:
            raise DataError(f"{path}: {problem}; {self.remedy()}")

    def remedy(self) -> str:
        command = f"`async-hfl data fetch {self.published.name}`"
        if self.folder == download_folder(self.published):
            return f"{command} fetches it anew"
        return f"replace it, or unset {DATA_VARIABLE} and run {command}"


def decompressed(path: Path) -> bytes:
    """Return the content of a file, whatever its compression."""
    unpack = _DECOMPRESSORS.get(path.suffix, bytes)
    try:
        return unpack(path.read_bytes())
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
    except (EOFError, ValueError, zlib.error, lzma.LZMAError) as problem:
        raise DataError(f"{path}: damaged or cut short ({problem})") from problem


def mismatch(file: SourceFile, content: bytes) -> str | None:
    """Return the problem with this content; None if it is the published one."""
    if file.digest(content) == file.sha256:
        return None
    if file.check is None:
        return f"the checksum is not that of the published file ({len(content):,} bytes)"
    try:
        file.check(content)
    except DataError as problem:
        return str(problem)
    return None


def find(published: PublishedSet, names: Sequence[str] = ()) -> Sources | None:
    """Return the first folder that has these files (by default all of the set)."""
    found = (in_folder(published, folder, names) for folder in folders(published))
    return next((sources for sources in found if sources is not None), None)


def in_folder(published: PublishedSet, folder: Path, names: Sequence[str] = ()) -> Sources | None:
    """Return the files of a folder, if it has them all."""
    paths = _paths(folder, names or [file.name for file in published.files])
    present = {name: path for name, path in paths.items() if path is not None}
    return Sources(published, folder, present) if len(present) == len(paths) else None


def locate(published: PublishedSet, names: Sequence[str] = ()) -> Sources:
    """Like `find`, but raise an error with instructions if the files are missing."""
    found = find(published, names)
    if found is not None:
        return found
    wanted = names or [file.name for file in published.files]
    for folder in folders(published):
        lacking = [name for name, path in _paths(folder, wanted).items() if path is None]
        if len(lacking) < len(wanted):
            raise DataError(f"{published.name}: {folder} has no {lacking[0]}; {_instructions(published)}")
    raise DataError(f"{published.name}: the data is not on this machine; {_instructions(published)}")


def caller_sources(published: PublishedSet, folder: Path, names: Sequence[str] = ()) -> Sources:
    """Return the files of a folder that the caller names; their content is not checked."""
    paths = _paths(folder, names or [file.name for file in published.files])
    for name, path in paths.items():
        if path is None:
            raise DataError(f"{folder}: has no {name} (nor .gz, .bz2 or .xz of it)")
    return Sources(published, folder, {name: path for name, path in paths.items() if path}, checked=False)


def folders(published: PublishedSet) -> list[Path]:
    own = os.environ.get(DATA_VARIABLE)
    downloads = download_folder(published)
    places = [Path(own).expanduser() / published.folder] if own else []
    return [*places, downloads] if downloads else places


def download_folder(published: PublishedSet) -> Path | None:
    """Return the folder into which `fetch` writes the set; None if there is no writable place."""
    root = cache_root()
    return None if root is None else root / "data" / published.folder


def _instructions(published: PublishedSet) -> str:
    command = f"`async-hfl data fetch {published.name}` downloads it ({published.download_bytes / 1e6:.0f} MB)"
    if download_folder(published) is None:
        command = f"set {CACHE_VARIABLE} to a folder for downloads, then {command}"
    return f"{command}, or set {DATA_VARIABLE} to a folder that has {published.folder}/"


def _paths(folder: Path, names: Sequence[str]) -> dict[str, Path | None]:
    return {name: _path(folder, name) for name in names}


def possible_names(name: str) -> list[str]:
    """Return the names that a file may have: plain or compressed."""
    return [f"{name}{packing}" for packing in _DECOMPRESSORS]


def _path(folder: Path, name: str) -> Path | None:
    candidates = (folder / candidate for candidate in possible_names(name))
    return next((path for path in candidates if path.is_file()), None)
