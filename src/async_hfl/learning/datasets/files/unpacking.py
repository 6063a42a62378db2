"""Extraction of files from archives.

Only members requested by name are extracted, and they are written under names chosen here. A member called
`../../.bashrc`, a link or a device can do no harm, because its name is never used as a path.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.published import Unpack

_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)


def extractor(wanted: Mapping[str, str]) -> Unpack:
    """Return a function that extracts these members: {last part of the name in the archive: name of the file}."""

    def unpack(archive: Path, folder: Path) -> None:
        missing = dict(wanted)
        try:
            if zipfile.is_zipfile(archive):
                with archive.open("rb") as file:
                    _from_zip(file, folder, missing)
            else:
                _from_tar(archive, folder, missing)
        except _UNREADABLE as problem:
            raise DataError(f"{archive.name}: not an archive that can be unpacked ({problem})") from problem
        if missing:
            raise DataError(f"{archive.name}: there is no {', '.join(sorted(missing))} in it")

    return unpack


def _from_tar(archive: Path, folder: Path, missing: dict[str, str]) -> None:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            content = tar.extractfile(member) if name in missing and member.isfile() else None
            if content is not None:
                _write(content, folder / missing.pop(name))


def _from_zip(archive: IO[bytes], folder: Path, missing: dict[str, str], deep: bool = True) -> None:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            name = PurePosixPath(info.filename).name
            if info.is_dir():
                continue
            if name in missing:
                with packed.open(info) as content:
                    _write(content, folder / missing.pop(name))
            elif deep and name.endswith(".zip"):  # an archive within the archive, as UCI publishes them
                with packed.open(info) as inner:
                    _from_zip(inner, folder, missing, deep=False)


def _write(content: IO[bytes], path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
