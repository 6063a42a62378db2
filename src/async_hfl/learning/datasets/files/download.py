"""Download of one file over HTTP, with resumption and retries. A file is complete and correct, or absent.

The bytes received so far are in `NAME.part`. `NAME.part.tag` records the version of the file (ETag or date), so that
the server sends the rest only if the file has not changed. Only a file with the right digest gets its final name.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files.published import Download

Progress = Callable[[str, int, int | None], None]
"""(file, bytes so far, total bytes if known)."""

TIMEOUT_S = 30.0
"""Timeout without a byte; a slow connection is not an error."""
ATTEMPTS = 5
"""The most consecutive attempts without progress."""
FIRST_PAUSE_S = 0.5
"""Pause after the first such attempt, doubled after each further one."""
_CHUNK = 1 << 18
_RETRY_CODES = {408, 425, 429}
"""Client errors (4xx) that may disappear at the next attempt."""


class _TryAgain(Exception):
    """The connection or the server failed; the bytes received so far are kept."""


class _Refused(Exception):
    """This address cannot provide the file."""


def download(wanted: Download, folder: Path, progress: Progress) -> Path:
    """Return the file in the folder. Raises DataError if no address provides it, its digest is wrong or the disk is
    full."""
    target = folder / wanted.name
    if target.is_file() and wanted.md5 in (None, _md5(target)):
        return target  # complete, or it would not have this name
    part = folder / f"{wanted.name}.part"
    addresses = list(wanted.addresses)
    problems: list[str] = []
    failures = damaged = 0
    while addresses and failures < ATTEMPTS:
        before = _size(part)
        try:
            _transfer(addresses[0], part, wanted.name, progress)
            if wanted.md5 is None or _md5(part) == wanted.md5:
                os.replace(part, target)
                _tag(part).unlink(missing_ok=True)
                return target
            _discard(part)
            damaged += 1
            problems.append(f"{addresses[0]}: the checksum is wrong")
            # Try once more from the beginning: the part may have been of another version.
            if damaged > 1:
                addresses.pop(0)
                damaged = 0
        except _Refused as problem:
            problems.append(f"{addresses.pop(0)}: {problem}")
        except _TryAgain as problem:
            problems.append(f"{addresses[0]}: {problem}")
            failures = failures + 1 if _size(part) <= before else 1
            if failures < ATTEMPTS:
                time.sleep(FIRST_PAUSE_S * 2 ** (failures - 1))
                addresses.append(addresses.pop(0))
        except OSError as problem:  # from the disk: `_transfer` catches those of the network
            raise disk_error(part, problem) from problem
    raise DataError(f"{wanted.name} could not be downloaded: {problems[-1]}")


def _transfer(address: str, part: Path, name: str, progress: Progress) -> None:
    """Append the missing bytes."""
    have = _size(part)
    request = urllib.request.Request(address, headers={"User-Agent": "async-hfl", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if tag := _read_tag(part):
            request.add_header("If-Range", tag)
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as problem:
        problem.close()
        if problem.code == 416:
            # Nothing left to send: the part is complete, or longer than the file is now.
            if _range_number(problem.headers, r"/(\d+)$") == have:
                return
            _discard(part)
            raise _TryAgain("the file on the server has changed") from problem
        what = f"HTTP {problem.code} {problem.reason}"
        raise (_TryAgain(what) if problem.code >= 500 or problem.code in _RETRY_CODES else _Refused(what)) from problem
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise _TryAgain(str(getattr(problem, "reason", problem))) from problem
    with response:
        resumes = response.status == 206 and _range_number(response.headers, r"^bytes (\d+)-") == have
        if response.status == 206 and not resumes:
            _discard(part)
            raise _TryAgain("the server sent another part than asked for")
        start = have if resumes else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        _tag(part).write_text(tag, encoding="ascii", errors="ignore")
        with part.open("ab" if resumes else "wb") as file:
            arrived = _copy(response, file, lambda done: progress(name, start + done, total))
        if total is not None and start + arrived < total:
            raise _TryAgain(f"the connection ended after {start + arrived:,} of {total:,} bytes")


def _copy(response: http.client.HTTPResponse, file: IO[bytes], report: Callable[[int], None]) -> int:
    done = 0
    report(0)
    while True:
        try:
            chunk = response.read1(_CHUNK)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise _TryAgain(str(problem) or type(problem).__name__) from problem
        if not chunk:
            return done
        file.write(chunk)
        done += len(chunk)
        report(done)


def disk_error(part: Path, problem: OSError) -> DataError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"{part.parent}: no space left on the disk; free some and run the command again: the download resumes"
        )
    return DataError(f"{part}: cannot be written ({problem.strerror or problem})")


def _range_number(headers: Message, pattern: str) -> int | None:
    """Return a number in the Content-Range header, e.g. "bytes 100-199/200"; None if it is absent."""
    match = re.search(pattern, headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _tag(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _read_tag(part: Path) -> str:
    try:
        tag = _tag(part).read_text(encoding="ascii", errors="ignore").strip()
    except OSError:
        return ""
    return "" if tag.startswith("W/") else tag  # a weak tag does not promise the same bytes


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)
