"""The state directory: what was committed survives any failure of the process or its disk, complete and once."""

from __future__ import annotations

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import store_writer

from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.deployment.operations.node_journal import read_lines
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.store.schema import EXIT_DISK_FAILED, FORMAT, OLDEST_FORMAT, StateDirectoryError
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.events_file import header_line, read_events

MODEL_BYTES = 200_000


def model(seed: int, size: int = MODEL_BYTES) -> np.ndarray[Any, Any]:
    array = np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)
    array.flags.writeable = False
    return array


def same(mine: Any, its: Any) -> bool:
    return mine["number"] == its["number"] and mine["model"].tobytes() == its["model"].tobytes()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "payloads").iterdir())


def test_what_is_committed_comes_back_and_what_is_not_does_not(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        assert store.read() == (None, [], 0)
        store.append({"a": 1})
        store.append({"b": [0.5, None, "x"]})
        store.wrote(3)
        store.put("run", 2**40)
        store.commit()
        store.append({"c": 3})
    with NodeStore.open(tmp_path) as store:
        assert store.read() == (None, [{"a": 1}, {"b": [0.5, None, "x"]}], 3)
        assert store.get("run") == 2**40
        store.append({"d": 4})
        store.replace({"state": 5})
        assert store.read() == ({"state": 5}, [], 0)
        store.append({"e": 6})
        store.commit()
        assert store.events_since_snapshot == 1
        assert store.read() == ({"state": 5}, [{"e": 6}], 0)


def test_arrays_keep_their_kind_and_shape(tmp_path: Path) -> None:
    small = np.arange(6, dtype=np.int16).reshape(2, 3)
    large = np.linspace(0, 1, 9000).reshape(3, 3000)[:, ::2]
    empty = np.zeros((0, 4), np.float32)
    with NodeStore.open(tmp_path) as store:
        store.append([small, large, empty, model(1)])
        store.commit()
        (found,) = store.read()[1]
    for mine, its in zip([small, large, empty, model(1)], found, strict=True):
        assert its.dtype == mine.dtype
        assert its.flags.writeable == mine.flags.writeable
        np.testing.assert_array_equal(its, mine)


def test_a_model_is_stored_once_and_comes_back_as_one(tmp_path: Path) -> None:
    sent = model(1)
    with NodeStore.open(tmp_path) as store:
        for _ in range(20):
            store.append({"to": 1, "weights": sent})
        store.append({"copy": sent.copy()})
        store.commit()
        assert store.payload_bytes == MODEL_BYTES
        assert len(files(tmp_path)) == 1
    with NodeStore.open(tmp_path) as store:
        events = store.read()[1]
        assert all(event["weights"] is events[0]["weights"] for event in events[:20])
        store.append(events[0])
        store.commit()
        assert store.payload_bytes == MODEL_BYTES


def test_a_spooled_file_is_moved_not_copied(tmp_path: Path) -> None:
    body = b"header--" + model(3).tobytes() + model(4).tobytes()
    with NodeStore.open(tmp_path) as store:
        spooled = store.spool / "transfer"
        spooled.write_bytes(body)
        first, second = (np.frombuffer(body, np.uint8, MODEL_BYTES, 8 + k * MODEL_BYTES) for k in range(2))
        digest = hashlib.sha256(body).digest()
        inode = spooled.stat().st_ino
        store.adopt(spooled, digest, body)
        store.append([first, second])
        store.commit()
        assert [path.stat().st_ino for path in files(tmp_path)] == [inode]
        again = store.spool / "again"
        again.write_bytes(body)
        store.adopt(again, digest, body)
        store.append([np.frombuffer(body, np.uint8, MODEL_BYTES, 8)])
        store.commit()
        assert not again.exists()
        assert [path.stat().st_ino for path in files(tmp_path)] == [inode]
        assert files(tmp_path)[0].read_bytes() == body
    with NodeStore.open(tmp_path) as store:
        found, once_more = store.read()[1]
        np.testing.assert_array_equal(found[0], model(3))
        np.testing.assert_array_equal(found[1], model(4))
        np.testing.assert_array_equal(once_more[0], model(3))


def test_a_received_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(8) + model(3).tobytes()
    digest = hashlib.sha256(body).digest()
    hashed: list[int] = []
    sha256 = hashlib.sha256

    def counting(data: Any = b"") -> Any:
        hashed.append(len(data))
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", counting)
    with NodeStore.open(tmp_path) as store:
        (store.spool / "transfer").write_bytes(body)
        store.adopt(store.spool / "transfer", digest, body)
        weights = np.frombuffer(body, np.uint8, MODEL_BYTES, 8)
        store.append({"weights": weights})
        store.commit()
        store.replace({"weights": weights})
        assert hashed == []
        store.append({"weights": weights.copy()})
        assert hashed == [MODEL_BYTES]  # an array that did not arrive in a file


def test_a_received_file_without_arrays_of_the_event_is_deleted(tmp_path: Path) -> None:
    """For example the arrays were compressed, so they do not lie in the file."""
    with NodeStore.open(tmp_path) as store:
        spooled = store.spool / "transfer"
        spooled.write_bytes(b"compressed")
        store.adopt(spooled, hashlib.sha256(b"compressed").digest(), b"compressed")
        store.append({"weights": model(3)})
        store.commit()
        assert not spooled.exists()
        assert store.payload_bytes == MODEL_BYTES
        np.testing.assert_array_equal(store.read()[1][0]["weights"], model(3))


def test_a_small_received_file_goes_into_the_database(tmp_path: Path) -> None:
    body = bytes(8) + model(3, 40_000).tobytes()
    with NodeStore.open(tmp_path) as store:
        spooled = store.spool / "transfer"
        spooled.write_bytes(body)
        store.adopt(spooled, hashlib.sha256(body).digest(), body)
        store.append(np.frombuffer(body, np.uint8, 40_000, 8))
        store.commit()
        assert not spooled.exists()
        assert files(tmp_path) == []
    with NodeStore.open(tmp_path) as store:
        np.testing.assert_array_equal(store.read()[1][0], model(3, 40_000))


def test_an_array_whose_file_was_evicted_is_stored_again(tmp_path: Path) -> None:
    body = bytes(8) + model(3).tobytes()
    weights = np.frombuffer(body, np.uint8, MODEL_BYTES, 8)
    with NodeStore.open(tmp_path, Budget(payloads=0)) as store:
        (store.spool / "transfer").write_bytes(body)
        store.adopt(store.spool / "transfer", hashlib.sha256(body).digest(), body)
        store.append({"weights": weights})
        store.commit()
        store.append({})
        store.replace({})
        assert store.payload_bytes == 0
        store.append({"weights": weights})
        store.commit()
        np.testing.assert_array_equal(store.read()[1][0]["weights"], model(3))


def test_an_uncommitted_received_file_leaves_nothing_behind(tmp_path: Path) -> None:
    body = bytes(8) + model(3).tobytes()
    with NodeStore.open(tmp_path) as store:
        (store.spool / "transfer").write_bytes(body)
        store.adopt(store.spool / "transfer", hashlib.sha256(body).digest(), body)
        store.append({"weights": np.frombuffer(body, np.uint8, MODEL_BYTES, 8)})
    with NodeStore.open(tmp_path) as store:
        assert store.read() == (None, [], 0)
        assert files(tmp_path) == []
        assert list(store.spool.iterdir()) == []


@pytest.mark.parametrize("number", [OLDEST_FORMAT - 1, FORMAT + 1])
def test_another_format_is_refused_with_the_version_that_reads_it(tmp_path: Path, number: int) -> None:
    with NodeStore.open(tmp_path) as store:
        store.put("made with", [{"async_hfl": "0.0.9"}])
        store.commit()
        store._database.execute(f"PRAGMA user_version = {number}")
    told = (
        rf"written by async-hfl 0\.0\.9 in format {number}; this is async-hfl [\d.]+, which reads formats "
        rf"{OLDEST_FORMAT} to {FORMAT}\. Use async-hfl 0\.0\.9"
    )
    with pytest.raises(StateDirectoryError, match=told):
        NodeStore.open(tmp_path)
    with pytest.raises(StateDirectoryError, match=told):
        StoredNode(tmp_path)


def test_only_history_is_evicted_and_the_oldest_first(tmp_path: Path) -> None:
    held = model(1)
    with NodeStore.open(tmp_path, Budget(payloads=3 * MODEL_BYTES)) as store:
        store.append({"update": held})
        for seed in range(2, 6):
            store.append({"update": model(seed)})
        store.commit()
        assert store.payload_bytes == 5 * MODEL_BYTES  # no snapshot: recovery needs them all
        store.replace({"held": held})
        assert store.payload_bytes == 3 * MODEL_BYTES
        for seed in range(6, 12):
            store.append({"update": model(seed)})
        store.commit()
        assert store.payload_bytes >= 7 * MODEL_BYTES  # beyond the budget, but needed
    with NodeStore.open(tmp_path, Budget(payloads=3 * MODEL_BYTES)) as store:
        snapshot, log, _ = store.read()
        np.testing.assert_array_equal(snapshot["held"], held)
        assert [event["update"].tobytes() for event in log] == [model(seed).tobytes() for seed in range(6, 12)]
        store.replace({"held": held})
        assert store.payload_bytes == 3 * MODEL_BYTES
        assert len(files(tmp_path)) == 3
        np.testing.assert_array_equal(store.read()[0]["held"], held)


def test_records_are_kept_for_ever_as_lines_of_an_events_file(tmp_path: Path) -> None:
    records = [LifecycleRecord(float(k), "device_heard", f"d{k}") for k in range(5)]
    with NodeStore.open(tmp_path / "state") as store:
        for record in records:
            store.write(record)
            store.commit()
        store.replace({})
        store.write(records[0])
    with NodeStore.open(tmp_path / "state") as store:
        rows = store._database.execute("SELECT line FROM journal ORDER BY number").fetchall()
    (tmp_path / "events").write_bytes(b"".join([header_line(), *(line for (line,) in rows)]))
    assert [fields["node"] for _, fields in read_events(tmp_path / "events", "lifecycle")] == [
        f"d{k}" for k in range(5)
    ]
    assert [line.at for line in read_lines(tmp_path / "state")] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_one_directory_one_process(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path), pytest.raises(StateDirectoryError, match="another process"):
        NodeStore.open(tmp_path)
    NodeStore.open(tmp_path).close()


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(StateDirectoryError, match=r"node\.db"):
        NodeStore.open(tmp_path)


def test_a_payload_that_recovery_needs_and_is_gone_is_named(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        store.append({"update": model(1)})
        store.commit()
    files(tmp_path)[0].unlink()
    with NodeStore.open(tmp_path) as store, pytest.raises(StateDirectoryError, match="damaged"):
        store.read()


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        for number in range(200):
            store.append({"text": "x" * 1000, "number": number})
        store.commit()
    with (tmp_path / "node.db").open("r+b") as file:
        file.seek(60_000)
        file.write(b"\xff" * 20_000)
    with pytest.raises(StateDirectoryError, match="damaged"):
        NodeStore.open(tmp_path)


def test_a_reader_sees_one_moment_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path / "a state?#%") as store:
        store.append({"number": 1})
        store.replace({"number": 1})
        with StoredNode(store.path) as reader:
            assert reader.snapshots() == [1]
            for number in (2, 3):
                store.append({"number": number})
                store.replace({"number": number})
            assert reader.snapshots() == [1]
            assert reader.snapshot(1) == {"number": 1}
            assert [event.number for event in reader.events()] == [1]
        with StoredNode(store.path) as reader:
            assert reader.snapshots() == [3]


def start_writer(folder: Path, budget: int) -> subprocess.Popen[str]:
    program = str(Path(store_writer.__file__))
    return subprocess.Popen([sys.executable, program, str(folder), str(budget)], stdout=subprocess.PIPE, text=True)


def check_prefix(folder: Path, promised: int) -> int:
    """Everything up to some number is there, at least up to the promised one; nothing of what comes after it."""
    with NodeStore.open(folder) as store:
        snapshot, log, _ = store.read()
        first = 0 if snapshot is None else snapshot["number"]
        if snapshot is not None:
            assert same(snapshot, store_writer.event(first))
        for number, found in enumerate(log, first + 1):
            assert same(found, store_writer.event(number))
        last = first + len(log)
        assert last >= promised
        rows = store._database.execute("SELECT count(*), max(number) FROM log").fetchone()
        assert rows == (last, last or None)
        known = {bytes(digest).hex() for (digest,) in store._database.execute("SELECT digest FROM payloads")}
        assert {path.name for path in files(folder)} <= known
        return last


def test_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(7)
    promised = 0
    for attempt in range(12):
        with start_writer(tmp_path, budget=3_000_000) as writer:
            assert writer.stdout is not None
            ready, number = writer.stdout.readline().split()
            assert ready == "ready"
            assert int(number) >= promised
            if attempt == 0:  # however busy the machine is, something has been promised
                promised = int(writer.stdout.readline())
            time.sleep(rng.uniform(0, 0.15))
            writer.send_signal(signal.SIGKILL)
            printed = writer.stdout.read().splitlines()
        promised = max([promised, *(int(line) for line in printed if line)])
        promised = check_prefix(tmp_path, promised)
    assert promised > 0


def test_a_torn_log_is_a_shorter_log(tmp_path: Path) -> None:
    """Power fails: the end of what was written never reached the disk. What remains is a prefix, event by event."""
    whole = tmp_path / "whole"
    with NodeStore.open(whole) as store:
        store.append(store_writer.event(1))
        store.commit()
    with start_writer(whole, budget=10**9) as writer:
        assert writer.stdout is not None
        for _ in range(9):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    log = whole / "node.db-wal"
    length = log.stat().st_size
    rng = random.Random(3)
    lasts = []
    for cut in sorted(rng.randrange(length) for _ in range(12)):
        torn = tmp_path / "torn"
        shutil.copytree(whole, torn)
        with (torn / "node.db-wal").open("r+b") as file:
            file.truncate(cut)
        (torn / "node.db-shm").unlink(missing_ok=True)
        lasts.append(check_prefix(torn, promised=1))
        shutil.rmtree(torn)
    assert lasts == sorted(lasts)
    assert lasts[0] < lasts[-1]


def test_a_failed_sync_ends_the_process(tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from async_hfl.deployment.store.node_store import NodeStore\n"
        "store = NodeStore.open(Path(sys.argv[1]))\n"
        "store.append({'a': 1}); store.commit()\n"
        "def fsync(handle): raise OSError(5, 'Input/output error')\n"
        "os.fsync = fsync\n"
        "store.append({'model': np.zeros(10**6)})\n"
        "try:\n"
        "    store.commit()\n"
        "finally:\n"
        "    print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_DISK_FAILED
    assert "Input/output error" in done.stderr
    assert "went on" not in done.stdout
    with NodeStore.open(tmp_path) as store:
        assert store.read()[1] == [{"a": 1}]


def test_a_file_that_cannot_grow_ends_the_process(tmp_path: Path) -> None:
    """SQLite's own writes fail (here: a limit on the size of files)."""
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from async_hfl.deployment.store.node_store import NodeStore\n"
        "store = NodeStore.open(Path(sys.argv[1]))\n"
        "store.append({'a': 1}); store.commit()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "for number in range(1000):\n"
        "    store.append({'text': 'x' * 1000}); store.commit(); print(number, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode in (1, EXIT_DISK_FAILED), done.stderr
    promised = len(done.stdout.splitlines())
    assert 0 < promised < 1000
    with NodeStore.open(tmp_path) as store:
        assert len(store.read()[1]) == promised + 1


FULL = """
import sys
from pathlib import Path
import numpy as np
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.store.schema import DiskFull
from async_hfl.deployment.store.stored_node import StoredNode
folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
with NodeStore.open(folder) as store:
    committed = 0
    try:
        while True:
            store.append({"update": rng.integers(0, 255, int(sys.argv[2]), dtype=np.uint8)})
            store.commit()
            committed += 1
    except DiskFull as error:
        assert "make room" in str(error)
    assert len(store.read()[1]) == committed > 3
(folder.parent / "ballast").unlink()
with NodeStore.open(folder) as store:
    assert len(store.read()[1]) == committed
    store.append({"update": 1})
    store.commit()
    assert len(store.read()[1]) == committed + 1
print("fine")
"""


@pytest.mark.parametrize("size", [1_000, 50_000, 300_000])
def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path, size: int) -> None:
    script = (
        "mount -t tmpfs -o size=4m none $1 || exit 99; "
        'head -c 1000000 /dev/zero > $1/ballast; mkdir $1/state; shift; exec "$@"'
    )
    command = ["unshare", "-rm", "bash", "-c", script, "bash", str(tmp_path)]
    program = [sys.executable, "-c", FULL, str(tmp_path / "state"), str(size)]
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"a small disk needs a user and mount namespace: {done.stderr.strip()}")
    assert done.stdout == "fine\n", done.stderr


def test_any_other_failure_ends_the_process(tmp_path: Path) -> None:
    class Ended(Exception):
        pass

    def fail(why: str) -> NoReturn:
        raise Ended(why)

    store = NodeStore.open(tmp_path, fail=fail)
    store.append({"a": 1})
    store._database.close()
    with pytest.raises(Ended, match="closed"):
        store.commit()
