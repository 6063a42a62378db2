"""What a published data set is: files with known digests, and where they are downloaded from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Unpack = Callable[[Path, Path], None]
"""(archive, folder): writes the set's files into the folder, under their plain names."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a set. Digests are of its content: the file may lie there packed (.gz, .bz2, .xz) or plain."""

    name: str
    """Without an ending for the packing."""
    sha256: str
    text: bool = False
    """Line ends do not count: published archives come with either kind."""
    check: Callable[[bytes], None] | None = None
    """For a file that is built and not published: another digest is right too if this raises no DataError."""

    def digest(self, content: bytes) -> str:
        return hashlib.sha256(content.replace(b"\r\n", b"\n") if self.text else content).hexdigest()


@dataclass(frozen=True, slots=True)
class Download:
    """One file to fetch. Every address holds the same bytes; the first that answers is taken."""

    name: str
    addresses: tuple[str, ...]
    md5: str | None = None
    """As published; None where nobody publishes one, and then the content's digests must do."""
    unpack: Unpack | None = None
    """None: the file is kept as it is."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    name: str
    """As the task is called."""
    folder: str
    """Its folder below the data directory."""
    title: str
    licence: str
    samples: Mapping[str, int]
    """Of the training and the test part."""
    download_bytes: int
    """About; what a user wants to know before fetching."""
    files: tuple[SourceFile, ...]
    downloads: tuple[Download, ...]

    def file(self, name: str) -> SourceFile:
        return next(file for file in self.files if file.name == name)
