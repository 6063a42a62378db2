"""Flipped bits in a state directory: each is noticed when it is read, and named; nothing damaged is used."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.deployment.operations.node_journal import read_lines
from async_hfl.deployment.store.encoding import Array
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.store.schema import Damaged
from async_hfl.deployment.store.stored_node import StoredNode


def model(seed: int, size: int) -> Array:
    array = np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)
    array.flags.writeable = False
    return array


LARGE, MIDDLE = model(1, 200_000), model(2, 40_000)


def written(folder: Path) -> Path:
    """A store with a snapshot and an event, each with a payload, a fact and a record."""
    with NodeStore.open(folder) as store:
        store.append({"first": 1})
        store.replace({"weights": LARGE, "number": 7})
        store.append({"update": MIDDLE, "number": 8})
        store.handled([])
        store.put("fact", {"port": 7100})
        store.write(LifecycleRecord(1.0, "device_heard", "d1"))
        store.commit()
    return folder


def flip_file(folder: Path) -> None:
    (file,) = (folder / "payloads").iterdir()
    data = bytearray(file.read_bytes())
    data[100_000] ^= 4
    file.write_bytes(data)


def flip_column(table: str, column: str, where: str = "1") -> Callable[[Path], None]:
    """Flip a bit in the middle of a column, as a disk would: the database does not notice."""

    def flip(folder: Path) -> None:
        with sqlite3.connect(folder / "node.db") as database:
            for rowid, data in database.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchall():
                damaged = bytearray(data)
                damaged[len(damaged) // 2] ^= 1
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (bytes(damaged), rowid))
        database.close()

    return flip


def flip_fact(folder: Path) -> None:
    with sqlite3.connect(folder / "node.db") as database:
        ((value,),) = database.execute("SELECT value FROM facts WHERE key = 'fact'").fetchall()
        damaged = value[:-1] + bytes([value[-1] ^ 1])
        database.execute("UPDATE facts SET value = ? WHERE key = 'fact'", (damaged,))
    database.close()


@pytest.mark.parametrize(
    ("flip", "named"),
    [
        (flip_file, r"payload [0-9a-f]{64} does not match its digest"),
        (flip_column("bodies", "body"), r"payload [0-9a-f]{64} does not match its digest"),
        (flip_column("log", "event", "number = 2"), r"event 2 of node\.db does not match its checksum"),
        (flip_column("log", "effects", "number = 2"), r"event 2 of node\.db does not match its checksum"),
        (flip_column("snapshots", "body"), r"snapshot 1 of node\.db does not match its checksum"),
    ],
)
def test_recovery_refuses_damaged_state(tmp_path: Path, flip: Callable[[Path], None], named: str) -> None:
    flip(written(tmp_path))
    with NodeStore.open(tmp_path) as store, pytest.raises(Damaged, match=named) as refusal:
        store.read()
    assert "restore the newest copy" in str(refusal.value)


def test_a_damaged_fact_is_named(tmp_path: Path) -> None:
    flip_fact(written(tmp_path))
    with NodeStore.open(tmp_path) as store, pytest.raises(Damaged, match="the fact 'fact'"):
        store.get("fact")


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    flip_column("journal", "line")(written(tmp_path))
    with pytest.raises(Damaged, match="record 1"):
        list(read_lines(tmp_path))


def test_a_replay_names_a_damaged_event_and_a_damaged_payload(tmp_path: Path) -> None:
    flip_column("log", "event", "number = 2")(written(tmp_path / "event"))
    with StoredNode(tmp_path / "event") as stored, pytest.raises(Damaged, match="event 2"):
        list(stored.events())
    flip_file(written(tmp_path / "payload"))
    with StoredNode(tmp_path / "payload") as stored, pytest.raises(Damaged, match="payload"):
        stored.snapshot(1)


def test_a_damaged_tree_of_the_database_is_named(tmp_path: Path) -> None:
    with NodeStore.open(tmp_path) as store:
        for number in range(2000):
            store.append({"number": number})
        store.commit()
    with (tmp_path / "node.db").open("r+b") as file:
        file.seek(4096 * 8)  # the head of a page
        file.write(b"\xff" * 64)
    with pytest.raises(Damaged, match=r"node\.db"):
        NodeStore.open(tmp_path)


def test_a_damaged_write_ahead_log_without_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    """As after a power failure: the log was never merged into the database."""
    store = NodeStore.open(tmp_path / "running")
    for number in range(200):
        store.append({"number": number, "text": "x" * 2000})
        store.commit()
    for name in ("whole", "damaged"):
        shutil.copytree(tmp_path / "running", tmp_path / name)
    store.close()
    with NodeStore.open(tmp_path / "whole") as whole:
        assert len(whole.read()[1]) == 200
    with (tmp_path / "damaged" / "node.db-wal").open("r+b") as file:
        file.seek(3000)
        file.write(b"\xff")
    with pytest.raises(Damaged, match=r"node\.db-wal cannot be read"):
        NodeStore.open(tmp_path / "damaged")


def test_a_log_within_its_budget_stays_whole_and_a_longer_one_is_cut_at_a_snapshot(tmp_path: Path) -> None:
    event = {"text": "x" * 1000}
    with NodeStore.open(tmp_path, Budget(log=40_000)) as store:
        store.append(event)  # number 1
        store.replace({"number": 1})
        for number in range(2, 101):
            store.append(event)
            store.commit()
            if number % 5 == 0:
                store.replace({"number": number})
                with StoredNode(tmp_path) as stored:
                    kept = list(stored.events())
                    assert len(kept) == number - stored.begins_after
                    assert sum(len(one.body) for one in kept) <= 40_000
                    assert stored.begins_after in (0, *stored.snapshots())
                    assert len(kept) == number if number <= 30 else len(kept) >= 30
    with NodeStore.open(tmp_path, Budget(log=0)) as store:
        assert store.read() == ({"number": 100}, [], 0)
        store.append(event)
        store.replace({"number": 101})
    with NodeStore.open(tmp_path) as store:  # the numbers go on although no event is left
        assert store.read() == ({"number": 101}, [], 0)
        store.append(event)
        store.commit()
        assert store.events_since_snapshot == 1
    with StoredNode(tmp_path) as stored:
        assert [one.number for one in stored.events()] == [102]


def test_a_directory_of_the_former_format_is_read_and_converted(tmp_path: Path) -> None:
    written(tmp_path)
    with sqlite3.connect(tmp_path / "node.db") as database:
        for table in ("facts", "log", "snapshots", "journal"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN crc")
        database.execute("PRAGMA user_version = 3")
    database.close()
    with StoredNode(tmp_path) as stored:  # a reader changes nothing
        assert [event.number for event in stored.events()] == [1, 2]
        assert stored.get("fact") == {"port": 7100}
    assert len(list(read_lines(tmp_path))) == 1
    with NodeStore.open(tmp_path) as store:
        assert store.read()[0]["number"] == 7
        store.append({"number": 9})
        store.commit()
    flip_column("log", "event", "number = 3")(tmp_path)
    with NodeStore.open(tmp_path) as store, pytest.raises(Damaged, match="event 3"):
        store.read()
