"""`async-hfl data list`, `fetch` and `verify`, and the message of a run whose data is missing."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command_line import HANG_GUARD_S, PROGRAM, Call, command

from async_hfl.learning.datasets.files import catalogue, fetching
from async_hfl.learning.datasets.files.published import Download, PublishedSet, SourceFile

CONTENT = {"one": b"first" * 1000, "two": b"second" * 1000}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASYNC_HFL_DATA", raising=False)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Log nothing, to keep the output of the tests clean."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PublishedSet]:
    """A small data set on a local server, as the only published one."""
    served = tmp_path / "served"
    served.mkdir()
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENT.items()}
    for name, content in packed.items():
        (served / name).write_bytes(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *request: _Quiet(*request, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    published = PublishedSet(
        name="small",
        folder="small",
        title="A small set",
        licence="MIT",
        samples={"train": 2, "test": 1},
        download_bytes=100,
        files=tuple(SourceFile(name, hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()),
        downloads=tuple(
            Download(name, (address + name,), hashlib.md5(content).hexdigest()) for name, content in packed.items()
        ),
    )
    for module in (catalogue, fetching):
        monkeypatch.setattr(module, "PUBLISHED", {"small": published})
    yield published
    server.shutdown()
    server.server_close()
    thread.join()


def test_list_fetch_verify(call: Call, small: PublishedSet, tmp_path: Path) -> None:
    listed = call("data", "list")
    assert listed.code == 0
    assert "not on this machine; `async-hfl data fetch small` (100 B)" in listed.out
    fetched = call("data", "fetch", "small")
    assert fetched.code == 0, fetched.err
    assert fetched.out.startswith("small          downloaded, checksums match: ")
    assert call("data", "fetch", "all").out.startswith("small          already here, checksums match: ")
    assert str(tmp_path / "cache/data/small") in call("data", "list").out
    verified = call("data", "verify")
    assert verified.code == 0
    assert verified.out.count(": ok\n") == 2


def test_json(call: Call, small: PublishedSet, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache/data/small")
    digits, row = call("data", "list", "--json").json
    assert (digits["name"], digits["place"]) == ("digits", "embedded")
    assert (row["name"], row["place"], row["folder"], row["bytes"]) == ("small", None, None, None)
    assert (row["train"], row["test"], row["licence"], row["download_bytes"]) == (2, 1, "MIT", 100)
    (fetched,) = call("data", "fetch", "small", "--json").json
    assert fetched == {"name": "small", "folder": folder, "origin": "downloaded", "bytes": fetched["bytes"]}
    assert call("data", "list", "--json").json[1]["place"] == "downloads"
    first, second = call("data", "verify", "small", "--json").json
    assert first == {"name": "small", "file": "one", "path": f"{folder}/one.gz", "problem": None}
    assert second["file"] == "two"


def test_verify_finds_damage(call: Call, small: PublishedSet, tmp_path: Path) -> None:
    assert call("data", "fetch", "small").code == 0
    path = tmp_path / "cache/data/small/two.gz"
    path.write_bytes(gzip.compress(b"something else"))
    done = call("data", "verify")
    assert done.code == 2
    assert "1 of 2 files are missing or damaged; `async-hfl data fetch small`" in done.told()
    assert f"{path}: the checksum is not that of the published file (14 bytes)" in done.out
    assert [row["problem"] is None for row in call("data", "verify", "--json").json] == [True, False]
    assert call("data", "fetch", "small").code == 0
    assert call("data", "verify").code == 0


def test_verify_without_any_data_set(call: Call, small: PublishedSet) -> None:
    assert "no data set is on this machine; `async-hfl data list`" in call("data", "verify").told()
    done = call("data", "verify", "small")
    assert done.code == 2
    assert "2 of 2 files are missing or damaged" in done.told()


def test_a_failed_download(call: Call, small: PublishedSet, tmp_path: Path) -> None:
    (tmp_path / "served/two.gz").unlink()
    done = call("data", "fetch", "small", "--json")
    assert done.code == 2
    assert "two.gz could not be downloaded: http://127.0.0.1" in done.told()
    assert "HTTP 404" in done.told()
    assert done.out == ""


def test_a_corrupted_download(call: Call, small: PublishedSet, tmp_path: Path) -> None:
    (tmp_path / "served/one.gz").write_bytes(b"x" * 50)
    done = call("data", "fetch", "small")
    assert done.code == 2
    assert "the checksum is wrong" in done.told()
    assert list((tmp_path / "cache/data/small").iterdir()) == []


MISTAKES = {
    "unknown set": (["data", "fetch", "minst"], "unknown data set 'minst'; there are: mnist, fashion-mnist"),
    "unknown set to verify": (["data", "verify", "minst"], "unknown data set 'minst'"),
    "embedded set": (["data", "fetch", "digits"], "digits is inside async-hfl; there is nothing to fetch"),
    "nothing to fetch": (["data", "fetch"], "required: NAME"),
    "nothing to do": (["data"], "required: WHAT"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, call: Call) -> None:
    arguments, what = MISTAKES[name]
    done = call(*arguments)
    assert done.code == 2
    assert what in done.told()


@pytest.mark.parametrize("task", ["mnist", "har", "hpwren"])
def test_a_run_without_its_data(task: str, call: Call) -> None:
    done = call("run", "--task", task)
    assert done.code == 2
    assert f"{task}: the data is not on this machine; `async-hfl data fetch {task}` downloads it" in done.told()
    assert not Path("runs").exists()


def test_listing_needs_neither_jax_nor_a_network(tmp_path: Path) -> None:
    code = "import async_hfl.cli, sys; async_hfl.cli.main(['data', 'list']); print({'jax', 'rich'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_GUARD_S, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C during a download gives a short message and keeps the part that has arrived."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from async_hfl.learning.datasets.files import download\n"
        "def slow(*arguments):\n"
        "    print('under way', flush=True)\n"
        "    time.sleep(600)\n"
        "download._transfer = slow\n"
        "from async_hfl.cli import main\n"
        "sys.exit(main(['data', 'fetch', 'mnist']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "under way\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=HANG_GUARD_S)
    assert process.returncode == 130
    assert told == "async-hfl: error: interrupted; `async-hfl data fetch mnist` continues where it stopped\n"


def test_listing_in_a_new_process(tmp_path: Path) -> None:
    assert Path(PROGRAM).exists()
    done = command("data", "list", "--json", cwd=tmp_path)
    assert done.code == 0
    assert len(done.json) == 7
