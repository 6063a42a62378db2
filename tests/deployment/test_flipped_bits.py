"""Bits of a node's disk are flipped while it is down. What is damaged is named and never used."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_scene import HANG_GUARD_S, Scene, assert_nothing_lost, scene
from restore_rows import write_row

from async_hfl.core.identifiers import device_address
from async_hfl.deployment.cluster.proxy import Shape

pytestmark = pytest.mark.long
FAST = Shape(rate=2_000_000)


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 16]))


def flip_column(state: Path, table: str, column: str) -> None:
    """Flip a bit in the newest row of a table, as a disk would: the database does not notice."""
    database = sqlite3.connect(state / "node.db")
    query = f"SELECT number, {column} FROM {table} ORDER BY number DESC LIMIT 1"
    ((number, body),) = database.execute(query).fetchall()
    damaged = bytearray(body)
    damaged[len(damaged) // 2] ^= 1
    database.execute(f"UPDATE {table} SET {column} = ? WHERE number = ?", (bytes(damaged), number))
    database.commit()
    database.close()


def flip_payloads(state: Path) -> None:
    """Flip a bit in every stored model: which of them a node reads depends on what it was doing."""
    for path in (state / "payloads").iterdir():
        flip(path, path.stat().st_size // 2)
    database = sqlite3.connect(state / "node.db")
    for digest, body in database.execute("SELECT digest, body FROM bodies").fetchall():
        damaged = bytes([body[0] ^ 1]) + body[1:]
        database.execute("UPDATE bodies SET body = ? WHERE digest = ?", (damaged, digest))
    database.commit()
    database.close()


def words(stage: Scene, name: str) -> str:
    return stage.node(name).log.read_text()


def naming(stage: Scene, node: str, part: str) -> str:
    """Return the words of a log that follow `damaged: `, without the advice."""
    told = words(stage, node)
    assert part in told
    assert "restore the newest copy" in told
    return told.rpartition("damaged: ")[2].partition(", so the node")[0]


@pytest.mark.parametrize(
    ("name", "node", "damage", "part", "what"),
    [
        ("flipped_payload", "gateway-1", flip_payloads, "does not match its digest", "a bit of each stored model"),
        (
            "flipped_event",
            "cloud",
            lambda state: flip_column(state, "log", "event"),
            "does not match its checksum",
            "a bit of an event in the log",
        ),
        (
            "flipped_snapshot",
            "cloud",
            lambda state: flip_column(state, "snapshots", "body"),
            "does not match its checksum",
            "a bit of the snapshot",
        ),
    ],
)
def test_a_node_refuses_damaged_state_and_continues_from_a_good_copy(
    tmp_path: Path, name: str, node: str, damage: Callable[[Path], None], part: str, what: str
) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, shape=FAST) as stage:
            await stage.kill(node)
            state = stage.cluster.state_of(node)
            shutil.copytree(state, tmp_path / "good copy")
            damage(state)
            await stage.node(node).start()
            assert await asyncio.wait_for(stage.node(node).wait(), HANG_GUARD_S) == 2
            named = naming(stage, node, part)
            shutil.rmtree(state)
            (tmp_path / "good copy").rename(state)
            stage.watches[node].skip()
            back = time.monotonic()
            await stage.node(node).start()
            await stage.aggregated(back, gateway="gateway-1")
            await stage.until_seen(back, "cloud", "upload", reason="mixed")
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        role = node.rstrip("-1")
        outcome = "refused, exit code 2, with the remedy; with the newest good copy it continues"
        write_row(name, f"{role}: {what} is flipped", "itself, when it starts", f"`{named[:100]}`", outcome, found)

    asyncio.run(play())


def test_a_write_ahead_log_with_flipped_bits_is_an_older_copy(tmp_path: Path) -> None:
    """SQLite ignores the log from the first damaged page on: the state goes back in time without an error."""

    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, shape=FAST) as stage:
            killed = await stage.kill("gateway-1")
            state = stage.cluster.state_of("gateway-1")
            shutil.copytree(state, tmp_path / "before")
            log = state / "node.db-wal"
            assert log.stat().st_size > 500_000
            flip(log, log.stat().st_size // 2)
            await stage.node("gateway-1").start()
            lost = await stage.until_seen(killed, "cloud", "lifecycle", what="gateway_lost")
            await stage.aggregated(lost, gateway="gateway-1")
            await stage.drain()
        named = "the state of gateway gateway-1 is an older copy"
        assert named in words(stage, "cloud")
        found = stage.audit(dead=(tmp_path / "before",))
        assert found.doubled == set()
        assert found.unaccounted == []
        assert found.lost - found.listed <= found.with_devices
        damage = "gateway: a bit of SQLite's write-ahead log is flipped, so that the newest commits are ignored"
        how = "it sets the state aside and joins as a new incarnation"
        write_row("flipped_wal", damage, "the cloud, as it joins", f"`{named}`", how, found)

    asyncio.run(play())


def test_a_part_of_a_transfer_with_flipped_bits_is_sent_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, settings=("transfer.encoding=float32",)) as stage:
            device = stage.numbers("device")["device-1"]
            gateway = await stage.mid_upload("device-1", 0.5)
            cut = time.monotonic()
            for link in stage.links_of("device-1"):
                link.refuse()  # what has arrived is written when the session ends
            await stage.until_seen(cut, gateway, "PeerLost", peer=device_address(device))
            killed = await stage.kill(gateway)
            parts = [part for part in (stage.cluster.state_of(gateway) / "spool").iterdir() if part.stat().st_size]
            assert parts
            for part in parts:
                flip(part, part.stat().st_size // 2)
            for link in stage.links_of("device-1"):
                link.heal()
            await stage.node(gateway).start()
            refused = "its bytes do not match the digest in the offer"
            await stage.until("the damage is named", lambda: refused in words(stage, gateway))
            await stage.aggregated(killed, device=device)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "flipped_part",
            "gateway: a bit of an incomplete transfer in the spool is flipped",
            "itself, when the transfer is complete",
            f"`{refused}`",
            "the update is sent again, whole",
            found,
        )

    asyncio.run(play())
