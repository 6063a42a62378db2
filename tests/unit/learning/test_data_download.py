"""A downloaded file is complete and correct or absent, whatever the server, the connection and the disk do."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from data_cases import Behaviour, web_server

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files import download as module
from async_hfl.learning.datasets.files.download import download
from async_hfl.learning.datasets.files.published import Download

BODY = bytes(range(256)) * 4000
"""About 1 MB: several chunks."""


class Line:
    """A server with one file, and a folder to download to."""

    def __init__(self, behaviour: Behaviour, address: str, folder: Path) -> None:
        self.behaviour, self.address, self.folder = behaviour, address, folder
        self.seen: list[tuple[str, int, int | None]] = []

    def get(self, md5: str | None = hashlib.md5(BODY).hexdigest(), *mirrors: str) -> Path:
        wanted = Download("file.bin", (*mirrors, f"{self.address}file.bin"), md5)
        return download(wanted, self.folder, lambda *report: self.seen.append(report))

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    behaviour = Behaviour({"file.bin": BODY})
    with web_server(behaviour) as address:
        yield Line(behaviour, address, tmp_path)


def test_complete_download(line: Line) -> None:
    path = line.get()
    assert path.read_bytes() == BODY
    assert line.names() == {"file.bin"}, "nothing else is left"
    assert line.seen[0] == ("file.bin", 0, len(BODY))
    assert line.seen[-1] == ("file.bin", len(BODY), len(BODY))
    assert line.get() == path
    assert len(line.behaviour.asked) == 1, "what is there is not fetched again"


def test_resumes_after_a_broken_connection(line: Line) -> None:
    line.behaviour.cut_after = [300_000, 200_000]
    assert line.get().read_bytes() == BODY
    assert [asked for _, asked, _ in line.behaviour.asked] == [None, "bytes=300000-", "bytes=500000-"]
    assert [status for *_, status in line.behaviour.asked] == [200, 206, 206]


def test_resumes_in_another_process(line: Line) -> None:
    (line.folder / "file.bin.part").write_bytes(BODY[:700_000])
    (line.folder / "file.bin.part.tag").write_text('"one"')
    assert line.get().read_bytes() == BODY
    assert line.behaviour.asked == [("/file.bin", "bytes=700000-", 206)]


def test_a_part_that_is_already_complete(line: Line) -> None:
    (line.folder / "file.bin.part").write_bytes(BODY)
    assert line.get().read_bytes() == BODY
    assert line.behaviour.asked[0][2] == 416


def test_a_part_that_is_too_long(line: Line) -> None:
    (line.folder / "file.bin.part").write_bytes(BODY + b"more")
    assert line.get().read_bytes() == BODY


def test_the_file_changed_meanwhile(line: Line) -> None:
    """The server then sends the whole file: no byte of the old version may remain."""
    (line.folder / "file.bin.part").write_bytes(b"x" * 1000)
    (line.folder / "file.bin.part.tag").write_text('"an older one"')
    assert line.get().read_bytes() == BODY
    assert [status for *_, status in line.behaviour.asked] == [200]


def test_the_file_changed_without_a_tag(line: Line) -> None:
    """Without a tag the change is not noticed; the checksum detects it, and the second attempt starts from the
    beginning."""
    line.behaviour.tag = None
    (line.folder / "file.bin.part").write_bytes(b"x" * 1000)
    assert line.get().read_bytes() == BODY
    assert [status for *_, status in line.behaviour.asked] == [206, 200]


def test_a_server_without_ranges(line: Line) -> None:
    line.behaviour.ranges = False
    line.behaviour.cut_after = [300_000]
    assert line.get().read_bytes() == BODY
    assert [status for *_, status in line.behaviour.asked] == [200, 200]


def test_corrupted_content(line: Line) -> None:
    line.behaviour.files["file.bin"] = BODY[:-1] + b"?"
    with pytest.raises(DataError, match=r"file\.bin could not be downloaded: http.*the checksum is wrong"):
        line.get()
    assert line.names() == set(), "nothing is left that a later run could take for good"


def test_truncated_on_the_server(line: Line) -> None:
    line.behaviour.files["file.bin"] = BODY[:1000]
    with pytest.raises(DataError, match="the checksum is wrong"):
        line.get()
    assert line.names() == set()


def test_missing_on_the_server(line: Line) -> None:
    line.behaviour.files.clear()
    with pytest.raises(DataError, match="HTTP 404"):
        line.get()
    assert len(line.behaviour.asked) == 1, "asking again would not help"


def test_a_mirror_helps(line: Line) -> None:
    assert line.get(hashlib.md5(BODY).hexdigest(), f"{line.address}elsewhere.bin").read_bytes() == BODY


def test_a_server_that_is_busy(line: Line) -> None:
    line.behaviour.statuses = [503, 429, 500]
    assert line.get().read_bytes() == BODY


def test_a_server_that_stays_busy(line: Line) -> None:
    line.behaviour.statuses = [503] * 100
    with pytest.raises(DataError, match="HTTP 503"):
        line.get()
    assert len(line.behaviour.asked) == module.ATTEMPTS


def test_a_server_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies during the transfer and does not come back: the bytes received are kept."""
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    behaviour = Behaviour({"file.bin": BODY}, cut_after=[400_000])
    behaviour.statuses = [200, *[503] * 100]
    with web_server(behaviour) as address:
        wanted = Download("file.bin", (f"{address}file.bin",), hashlib.md5(BODY).hexdigest())
        with pytest.raises(DataError, match="could not be downloaded"):
            download(wanted, tmp_path, lambda *report: None)
    with pytest.raises(DataError, match="Connection refused"):
        download(wanted, tmp_path, lambda *report: None)
    assert (tmp_path / "file.bin.part").read_bytes() == BODY[:400_000]
    assert not (tmp_path / "file.bin").exists()


def test_a_server_that_always_cuts_at_the_same_place(line: Line) -> None:
    line.behaviour.ranges = False
    line.behaviour.cut_after = [1000] * 100
    with pytest.raises(DataError, match=r"the connection ended after 1,000 of 1,024,000 bytes"):
        line.get()


def test_no_such_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    with pytest.raises(DataError, match=r"file could not be downloaded: http://nowhere\.invalid/file"):
        download(Download("file", ("http://nowhere.invalid/file",)), tmp_path, lambda *report: None)


def test_a_full_disk(line: Line) -> None:
    """/dev/full is a disk without free space."""
    (line.folder / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match="no space left on the disk; free some"):
        line.get()
    assert not (line.folder / "file.bin").exists()


def test_a_disk_that_gets_full_and_free_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    class Filling:
        def __init__(self, file: IO[bytes]) -> None:
            self.file = file

        def __enter__(self) -> Filling:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, chunk: bytes) -> None:
            if self.file.tell() > 300_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(chunk)

    opened = Path.open

    def filling(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        file = opened(path, mode, *arguments, **named)
        return Filling(file) if path.name == "file.bin.part" and mode in ("ab", "wb") else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", filling)
        with pytest.raises(DataError, match="no space left"):
            line.get()
    kept = (line.folder / "file.bin.part").read_bytes()
    assert len(kept) > 300_000
    assert BODY.startswith(kept)
    assert line.get().read_bytes() == BODY
    assert line.behaviour.asked[-1] == ("/file.bin", f"bytes={len(kept)}-", 206)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"cannot be written \(No such file or directory\)"),
        web_server(Behaviour({"file": BODY})) as address,
    ):
        download(Download("file", (f"{address}file",)), tmp_path / "missing", lambda *report: None)
