"""Published data sets: files with known digests, and their download addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Unpack = Callable[[Path, Path], None]
"""(archive, folder): writes the set's files into the folder, under their plain names."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a set. Digests are of its content: the file may be compressed (.gz, .bz2, .xz) or plain."""

    name: str
    """Name without the suffix of a compression format."""
    sha256: str
    text: bool = False
    """True if line ends do not matter: published archives have either kind."""
    check: Callable[[bytes], None] | None = None
    """For a file that is built and not published: another digest is accepted if this raises no DataError."""

    def digest(self, content: bytes) -> str:
        return hashlib.sha256(content.replace(b"\r\n", b"\n") if self.text else content).hexdigest()


@dataclass(frozen=True, slots=True)
class Download:
    """One file to download. All addresses have the same bytes; the first that answers is used."""

    name: str
    addresses: tuple[str, ...]
    md5: str | None = None
    """As published; None if no publisher gives one, in which case only the content's digests are checked."""
    unpack: Unpack | None = None
    """None: the file is kept as it is."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    name: str
    """The name of the task."""
    folder: str
    """Its folder in the data directory."""
    title: str
    licence: str
    samples: Mapping[str, int]
    """Samples of the training and the test part."""
    download_bytes: int
    """Approximate size, shown before a download."""
    files: tuple[SourceFile, ...]
    downloads: tuple[Download, ...]

    def file(self, name: str) -> SourceFile:
        return next(file for file in self.files if file.name == name)
