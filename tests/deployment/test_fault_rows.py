"""The fault table, short rows: real processes, disks and signals."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest
from fault_rows import write_row
from fault_scene import HANG_GUARD_S, assert_nothing_lost, scene

from async_hfl.core.identifiers import CLOUD
from async_hfl.deployment.store.node_identity import IDENTITY
from async_hfl.deployment.store.node_store import NodeStore


def test_a_device_is_killed_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path) as stage:
            device = stage.numbers("device")["device-1"]
            gateway = await stage.mid_upload("device-1")
            killed = await stage.kill("device-1")
            noticed = await stage.until_seen(killed, gateway, "lifecycle", what="device_given_up", node=f"d{device}")
            await stage.node("device-1").start()
            back = await stage.aggregated(noticed, device=device)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "device_killed",
            "device killed in the middle of an upload, started again",
            found,
            (noticed - killed, "its gateway"),
            (back - killed, "an update of its is mixed"),
        )

    asyncio.run(play())


def test_a_device_falls_silent(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path) as stage:
            device = stage.numbers("device")["device-1"]
            gateway = await stage.mid_upload("device-1")
            cut = time.monotonic()
            for link in stage.links_of("device-1"):
                link.stall()
            noticed = await stage.until_seen(cut, gateway, "lifecycle", what="device_given_up", node=f"d{device}")
            healed = time.monotonic()
            for link in stage.links_of("device-1"):
                link.heal()
            back = await stage.aggregated(healed, device=device)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "device_black_holed",
            "every link of a device goes silent in the middle of an upload, and comes back once that is noticed",
            found,
            (noticed - cut, "its gateway, which missed heartbeats"),
            (back - healed, "after the links are back, an update of its is mixed"),
        )

    asyncio.run(play())


def test_a_gateway_is_killed_in_the_middle_of_an_upload_and_started_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4) as stage:
            gateway = await stage.mid_upload("device-1")
            killed = await stage.kill(gateway)
            noticed = await stage.until_seen(killed, "cloud", "PeerLost")
            await stage.node(gateway).start()
            back = await stage.aggregated(noticed, gateway=gateway)
            assert not stage.since(killed, "cloud", "lifecycle", what="gateway_lost")
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "gateway_killed",
            "gateway killed in the middle of an upload to it, started again",
            found,
            (noticed - killed, "the cloud"),
            (back - killed, "it mixes an update"),
        )

    asyncio.run(play())


def test_the_cloud_is_killed_in_the_middle_of_an_aggregation(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4) as stage:
            gateway = stage.cluster.gateway_names[0]
            begin = time.monotonic()
            await stage.until_seen(begin, gateway, "sent", message="Upload")
            killed = await stage.kill("cloud")
            noticed = await stage.until_seen(killed, gateway, "PeerLost", peer=CLOUD)
            await stage.node("cloud").start()
            back = await stage.until_seen(noticed, "cloud", "upload", reason="mixed")
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "cloud_killed_aggregating",
            "cloud killed as a gateway uploads to it, started again",
            found,
            (noticed - killed, "a gateway"),
            (back - killed, "it mixes an upload"),
        )

    asyncio.run(play())


def test_a_node_of_an_old_run_is_refused(tmp_path: Path) -> None:
    """A node whose state belongs to another run is told so and exits; the run continues."""

    async def play() -> None:
        async with scene(tmp_path) as stage:
            await stage.kill("device-1")
            state = stage.cluster.state_of("device-1")
            kept = tmp_path / "kept"
            shutil.copytree(state, kept)
            with NodeStore.open(state) as store:
                store.put(IDENTITY, {**store.get(IDENTITY), "run": 12345})
                store.commit()
            begin = time.monotonic()
            await stage.node("device-1").start()
            code = await asyncio.wait_for(stage.node("device-1").wait(), HANG_GUARD_S)
            told = time.monotonic()
            assert code == 2
            words = stage.node("device-1").log_tail()
            assert "3039" in words  # the run it belongs to, in hexadecimal
            assert "state directory" in words
            # With its own state it may join again.
            shutil.rmtree(state)
            kept.rename(state)
            await stage.node("device-1").start()
            device = stage.numbers("device")["device-1"]
            back = await stage.aggregated(told, device=device)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "old_run",
            "a device with the state of another run joins; then with its own",
            found,
            (told - begin, "itself: refused, exit code 2, both runs named"),
            (back - told, "with its own state, an update of its is mixed"),
        )

    asyncio.run(play())


@pytest.mark.long
def test_a_gateway_is_gone_for_good(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, settings=("gateway.epochs=4",)) as stage:
            gateway = await stage.mid_upload("device-1")
            await stage.until("it has something to lose", lambda: stage.mixed_and_not_uploaded(gateway) >= 2)
            killed = await stage.kill(gateway)
            noticed = await stage.until_seen(killed, "cloud", "lifecycle", what="gateway_lost")
            (other,) = set(stage.cluster.gateway_names) - {gateway}
            everybody = set(stage.numbers("device").values())

            def all_at_work() -> bool:
                mixed = stage.since(noticed, other, "job", reason="aggregated")
                return everybody <= {sight.fields["device"] for sight in mixed}

            back = await stage.until("all devices work for the other gateway", all_at_work)
            await stage.drain()
        found = stage.audit(without=(gateway,), dead=(stage.cluster.state_of(gateway),))
        assert found.doubled == set()
        assert found.unaccounted == []
        # Exactly the updates that were on the dead gateway's disk and in no upload. An update whose receipt was in
        # flight when the gateway died counts as unacknowledged at the device.
        assert found.listed <= found.lost
        assert len(found.lost) >= 2
        assert found.lost - found.listed <= found.with_devices | stage.unacknowledged(gateway)
        write_row(
            "gateway_gone",
            "gateway killed, never to come back",
            found,
            (noticed - killed, "the cloud, after cloud.gateway_patience"),
            (back - killed, "every device has had an update mixed at another gateway"),
            f"{len(found.listed)} of {len(found.lost)} listed by the cloud",
        )

    asyncio.run(play())
