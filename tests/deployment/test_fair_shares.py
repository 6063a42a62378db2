"""Shares of disk, bandwidth and patience: no peer has more than its own, whatever it offers or sends."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import device_address
from async_hfl.deployment.transport.conduct import Allowance, Conduct
from async_hfl.deployment.transport.transfers import spool as spool_module
from async_hfl.deployment.transport.transfers.pacing import Bucket
from async_hfl.deployment.transport.transfers.spool import Spool, SpoolFull

EVIL, HONEST = device_address(1), device_address(0)


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


# Disk ----------------------------------------------------------------------------------------------------------------


def abandon(spool: Spool, number: int, length: int) -> None:
    part = spool.open(EVIL, length, digest(number), quota=10_000)
    part.add(bytes(length - 1))
    part.drain()
    spool.release(part)


def test_broken_transfers_of_one_peer_fill_its_share_and_no_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000, 1e6)
    kept = spool.open(HONEST, 5000, digest(0), quota=10_000)
    kept.add(bytes(3000))
    kept.drain()
    spool.release(kept)
    for number in range(1, 50):
        abandon(spool, number, 4000)
    sizes = {path.name.partition("-")[0]: 0 for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        sizes[path.name.partition("-")[0]] += path.stat().st_size
    assert sizes["d1"] <= 10_000
    assert sizes["d0"] == 3000, "what others have begun is not touched"


def test_small_broken_transfers_of_one_peer_leave_few_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000, 1e6)
    for number in range(500):
        part = spool.open(EVIL if number else HONEST, 50, digest(number), quota=10_000)
        part.add(bytes(number % 2 if number else 1))
        spool.release(part)
    names = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert names.count("d1") <= 65
    assert names.count("d0") == 1
    newest = spool.open(EVIL, 50, digest(499), quota=10_000)
    assert newest.has_leftovers
    newest.close()


def test_open_transfers_of_one_peer_have_a_share(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000, 1e6)
    for number in range(2):
        spool.open(EVIL, 5000, digest(number), quota=10_000)
    with pytest.raises(SpoolFull, match="at most 10000"):
        spool.open(EVIL, 5000, digest(9), quota=10_000)
    spool.open(HONEST, 5000, digest(10), quota=10_000)


def test_parts_make_room_when_the_disk_is_short_and_no_more_are_taken(tmp_path: Path, monkeypatch: Any) -> None:
    free = shutil.disk_usage(tmp_path).free
    spool = Spool(tmp_path, 2**40, 1e6)
    for number in range(3):
        abandon(spool, number, 3000)
    # The reserve is set so that two of the three parts have to go.
    monkeypatch.setattr(spool_module, "disk_usage", lambda folder: (2**50, 0, left(tmp_path)))
    monkeypatch.setattr(spool_module, "_RESERVE", 10_000)

    def left(folder: Path) -> int:
        return 17_000 - sum(path.stat().st_size for path in folder.iterdir())

    assert free > 0
    spool.open(HONEST, 1000, digest(9))
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(SpoolFull, match="is short"):
        spool.open(HONEST, 9000, digest(10))


def test_a_part_that_finds_no_room_still_counts_and_makes_way(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000, 1e6)
    abandon(spool, 1, 4000)
    busy = spool.open(EVIL, 8000, digest(2), quota=12_000)
    with pytest.raises(SpoolFull):
        spool.open(EVIL, 4001, digest(1), quota=12_000)
    spool.release(busy)
    busy.discard()
    spool.open(EVIL, 12_000, digest(3), quota=12_000)
    assert [path.name.partition("-")[2][:64] for path in tmp_path.iterdir()] == [digest(3).hex()]


# Bandwidth -----------------------------------------------------------------------------------------------------------


def test_peers_take_turns_however_many_transfers_they_have() -> None:
    async def story() -> None:
        bucket, order = Bucket(1e6), []
        bucket.debit(1_000_000)

        async def transfer(peer: object) -> None:
            for _ in range(10):
                await bucket.take(40_000, peer)
                order.append(peer)

        transfers = [asyncio.create_task(transfer(EVIL)) for _ in range(8)]
        transfers.append(asyncio.create_task(transfer(HONEST)))
        await transfers[-1]
        for one in transfers:
            one.cancel()
        await asyncio.gather(*transfers, return_exceptions=True)
        assert order.count(HONEST) == 10
        assert order.count(EVIL) <= 12

    asyncio.run(story())


def test_a_peer_that_owes_for_small_packets_waits_and_others_do_not() -> None:
    async def story() -> None:
        bucket = Bucket(1e5)
        bucket.debit(150_000)
        await asyncio.wait_for(bucket.settle(HONEST), 0.01)  # within a second's debt nobody waits
        bucket.debit(80_000)
        waits = asyncio.create_task(bucket.settle(EVIL))
        await asyncio.sleep(0)
        assert not waits.done()
        await waits
        bucket.rate = float("inf")
        await bucket.settle(EVIL)

    asyncio.run(story())


# Patience ------------------------------------------------------------------------------------------------------------


class Now:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def offends(conduct: Conduct, now: Now) -> int:
    """Return after how many refusals a peer is set aside."""
    count = 0
    while conduct.pause_left(EVIL) == 0.0:
        conduct.refused(EVIL, "nonsense")
        count += 1
        assert count < 100
    return count


def test_a_few_refusals_are_forgiven_and_pauses_grow() -> None:
    now = Now()
    conduct = Conduct(now)
    pauses, counts = [], []
    for _ in range(10):
        counts.append(offends(conduct, now))
        pauses.append(conduct.pause_left(EVIL))
        conduct.refused(EVIL, "still in the queue")
        assert conduct.pause_left(EVIL) == pauses[-1]
        now.at += pauses[-1]
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    assert counts[0] == 9
    assert max(counts[1:]) <= 9
    assert conduct.pause_left(HONEST) == 0.0


def test_a_refusal_now_and_then_has_no_consequence() -> None:
    now = Now()
    conduct = Conduct(now)
    for _ in range(200):
        conduct.refused(HONEST, "flipped bits")
        now.at += 90.0
    assert conduct.pause_left(HONEST) == 0.0


def test_a_message_that_broke_its_receiver_sets_a_peer_aside_at_once() -> None:
    conduct = Conduct(Now())
    conduct.refused(EVIL, "it failed", final=True)
    assert conduct.pause_left(EVIL) == 30.0


def test_an_allowance_refills_at_a_steady_rate() -> None:
    allowance = Allowance(10.0, 5.0, 0.0)
    assert [allowance.take(0.0) for _ in range(5)] == [0.0] * 5
    assert allowance.take(0.0) == pytest.approx(0.1)
    assert allowance.take(1.0) == 0.0


def test_a_new_session_brings_no_new_allowance() -> None:
    now = 0.0
    conduct = Conduct(lambda: now)
    first = conduct.allowance(EVIL, "packets", 1.0, 3.0)
    assert [first.take(now) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    again = conduct.allowance(EVIL, "packets", 1.0, 3.0)
    assert again.take(now) == 2.0
    assert conduct.allowance(EVIL, "other frames", 1.0, 3.0).take(now) == 0.0
    assert conduct.allowance(HONEST, "packets", 1.0, 3.0).take(now) == 0.0


def test_a_full_spool_is_an_error_of_the_peers_kind() -> None:
    assert issubclass(SpoolFull, PeerError)
