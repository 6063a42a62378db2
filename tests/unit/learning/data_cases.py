"""Small data sets in the published formats, and a web server with configurable faults."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.learning.datasets.hpwren_files import VALUES
from async_hfl.learning.datasets.samples import Dataset, Samples


def labelled(targets: npt.NDArray[Any], classes: int = 0, owner: npt.NDArray[Any] | None = None) -> Dataset:
    """Return a data set with these class numbers and inputs of zeros."""
    samples = Samples(np.zeros((len(targets), 1), np.float32), targets.astype(np.int32))
    return Dataset("made up", samples, samples, classes or int(targets.max()) + 1, owner=owner)


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def idx_folder(folder: Path, train: Sequence[int], test: Sequence[int], side: int = 4) -> Path:
    """Every pixel of an image is the image's number."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, labels in (("train", train), ("t10k", test)):
        images = np.arange(len(labels), dtype=np.uint8)[:, None, None].repeat(side, 1).repeat(side, 2)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.array(labels, np.uint8)))
    return folder


def cifar_record(label: int, red: int, green: int, blue: int, first: int | None = None) -> bytes:
    """An image of one colour; the red of the top left pixel can differ."""
    planes = bytearray(bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024)
    planes[0] = red if first is None else first
    return bytes([label]) + bytes(planes)


def cifar_folder(folder: Path) -> Path:
    """Two images per batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(1, 6):
        records = cifar_record(batch, batch, 100, 200, first=7) + cifar_record(9, 1, 2, 3)
        (folder / f"data_batch_{batch}.bin").write_bytes(records)
    (folder / "test_batch.bin").write_bytes(cifar_record(0, 10, 20, 30))
    return folder


def har_folder(folder: Path, rows_each: int = 20, people: int = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for part, persons in (("train", range(1, people)), ("test", [people])):
        subjects = np.repeat(list(persons), rows_each)
        features = random.standard_normal((len(subjects), 561))
        features[:, 5] = 0.25  # a feature that never changes
        np.savetxt(folder / f"X_{part}.txt", features, fmt="% .7e", newline="\r\n")
        np.savetxt(folder / f"y_{part}.txt", 1 + np.arange(len(subjects)) % 6, fmt="%d")
        np.savetxt(folder / f"subject_{part}.txt", subjects, fmt="%d")
    return folder


def hpwren_readings(stations: Sequence[str], times: int) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(2)
    return random.normal(20, 5, (len(stations), times, len(VALUES))).astype(np.float32)


def hpwren_npz(path: Path, stations: Sequence[str], readings: npt.NDArray[np.float32]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, data=readings, stations=np.array(stations), features=np.array(VALUES))


def hourly_csv(readings: npt.NDArray[np.float32]) -> bytes:
    lines = [",".join(("year", "month", "day", "hour", *VALUES))]
    lines += [",".join(["2021.0", "1.0", "1.0", f"{hour}.0", *map(str, row)]) for hour, row in enumerate(readings)]
    return "\r\n".join(lines).encode() + b"\r\n"


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@dataclass
class Behaviour:
    """Behaviour of the server besides serving `files`."""

    files: dict[str, bytes]
    ranges: bool = True
    tag: str | None = '"one"'
    cut_after: list[int] = field(default_factory=list)
    """Number of bytes of the next answers that are sent before the connection is closed."""
    statuses: list[int] = field(default_factory=list)
    """Status codes of the next answers."""
    asked: list[tuple[str, str | None, int]] = field(default_factory=list)
    """Path, Range and status of every request."""


@contextmanager
def web_server(behaviour: Behaviour) -> Iterator[str]:
    """Return its address, with a slash at the end."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            asked = self.headers.get("Range")
            body = behaviour.files.get(self.path.lstrip("/"))
            status = behaviour.statuses.pop(0) if behaviour.statuses else 200
            if body is None and status == 200:
                status = 404
            if status != 200 or body is None:
                return self._answer(asked, status, b"", {})
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and behaviour.ranges else 0
            if start and self.headers.get("If-Range") not in (None, behaviour.tag):
                start = 0
            if start >= len(body) > 0:
                return self._answer(asked, 416, b"", {"Content-Range": f"bytes */{len(body)}"})
            headers = {"ETag": behaviour.tag} if behaviour.tag else {}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            return self._answer(asked, 206 if start else 200, body[start:], headers)

        def _answer(self, asked: str | None, status: int, body: bytes, headers: dict[str, str]) -> None:
            behaviour.asked.append((self.path, asked, status))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: behaviour.cut_after.pop(0)] if behaviour.cut_after else body)

        def log_message(self, *words: object) -> None:
            """Discard log messages."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
