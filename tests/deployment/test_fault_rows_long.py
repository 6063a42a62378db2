"""The fault table, long rows."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from glob import glob
from pathlib import Path

import pytest
from fault_audit import open_requests
from fault_rows import write_row
from fault_scene import HANG_GUARD_S, MODEL_BYTES, SLOW_ENOUGH, Scene, assert_nothing_lost, scene

from async_hfl.assembly.deployments.update_audit import arrivals
from async_hfl.core.identifiers import CLOUD, JobId
from async_hfl.core.protocol.messages import Update
from async_hfl.deployment.cluster.proxy import Shape

pytestmark = pytest.mark.long


def test_the_cloud_is_killed_in_warm_up(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, running=False) as stage:
            gateway = stage.cluster.gateway_names[0]
            await stage.until_seen(0.0, gateway, "sent", message="Train")
            assert not stage.since(0.0, "cloud", "lifecycle", what="warmup_ended")
            killed = await stage.kill("cloud")
            noticed = await stage.until_seen(killed, gateway, "PeerLost", peer=CLOUD)
            await stage.node("cloud").start()
            await stage.until_seen(killed, "cloud", "lifecycle", what="warmup_ended")
            back = await stage.until_seen(killed, "cloud", "upload", reason="mixed")
            await stage.until("some more", lambda: len(stage.since(killed, "cloud", "upload")) > 2)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "cloud_killed_warming_up",
            "cloud killed in the warm-up, started again",
            found,
            (noticed - killed, "a gateway"),
            (back - killed, "it mixes its first upload"),
        )

    asyncio.run(play())


def test_the_cloud_is_killed_while_it_associates(tmp_path: Path) -> None:
    """The cloud is paused until its disk shows that it is solving, then killed."""

    async def caught_solving(stage: Scene) -> bool:
        stage.look()
        before = len(stage.since(0.0, "cloud", "upload"))
        while len(stage.since(0.0, "cloud", "upload")) == before:
            stage.look()
            await asyncio.sleep(0.001)
        stage.signal("cloud", signal.SIGSTOP)
        if "Solve" in open_requests(stage.cluster.state_of("cloud")):
            return True
        stage.signal("cloud", signal.SIGCONT)
        return False

    async def play() -> None:
        async with scene(
            tmp_path, devices_per_process=4, settings=("association.period=1", "gateway.epochs=1")
        ) as stage:
            attempts = 1
            while not await asyncio.wait_for(caught_solving(stage), HANG_GUARD_S):
                attempts += 1
                if attempts > 200:
                    pytest.skip("the cloud solved too quickly to be caught at it in 200 attempts")
            killed = await stage.kill("cloud")
            gateway = stage.cluster.gateway_names[0]
            noticed = await stage.until_seen(killed, gateway, "PeerLost", peer=CLOUD)
            await stage.node("cloud").start()
            back = await stage.until_seen(killed, "cloud", "association")
            await stage.until("some more uploads", lambda: len(stage.since(back, "cloud", "upload")) > 5)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "cloud_killed_associating",
            "cloud killed while it solves an association, started again",
            found,
            (noticed - killed, "a gateway"),
            (back - killed, "the association is solved and applied"),
            f"caught at attempt {attempts}",
        )

    asyncio.run(play())


def test_two_nodes_are_killed_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4) as stage:
            gateway = await stage.mid_upload("device-1")
            (other,) = set(stage.cluster.gateway_names) - {gateway}
            killed = await stage.kill("cloud", gateway)
            noticed = await stage.until_seen(killed, other, "PeerLost", peer=CLOUD)
            await asyncio.gather(stage.node("cloud").start(), stage.node(gateway).start())
            back = await stage.until_seen(noticed, "cloud", "upload", reason="mixed")
            await stage.aggregated(noticed, gateway=gateway)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "two_killed",
            "cloud and a gateway killed at once, in the middle of an upload, started again",
            found,
            (noticed - killed, "the other gateway"),
            (back - killed, "the cloud mixes an upload"),
        )

    asyncio.run(play())


def test_a_gateway_returns_without_its_disk(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, settings=("gateway.epochs=8",)) as stage:
            gateway = await stage.mid_upload("device-1")
            await stage.until("it has something to lose", lambda: stage.mixed_and_not_uploaded(gateway) >= 3)
            killed = await stage.kill(gateway)
            old = tmp_path / "old disk"
            stage.node(gateway).state.rename(old)
            await stage.node(gateway).start()
            noticed = await stage.until_seen(killed, "cloud", "lifecycle", what="gateway_lost")
            back = await stage.aggregated(noticed, gateway=gateway)
            everybody = set(stage.numbers("device").values())

            def all_at_work() -> bool:
                mixed = [s for name in stage.cluster.gateway_names for s in stage.since(back, name, "job")]
                return everybody <= {sight.fields["device"] for sight in mixed}

            await stage.until("everybody has had a job since", all_at_work)
            await stage.drain()
        found = stage.audit(dead=(old,))
        late = late_updates(stage, gateway)
        assert found.doubled == set()
        assert found.unaccounted == []
        assert len(found.lost) >= 3
        # Listed: updates on the old disk, and updates for the old incarnation that its successor acknowledged.
        assert found.listed <= found.lost | late
        assert found.lost - found.listed <= found.with_devices
        write_row(
            "gateway_without_disk",
            "gateway killed, back without its disk",
            found,
            (noticed - killed, "the cloud, as the new one says hello"),
            (back - killed, "the new one mixes an update"),
            f"{len(found.listed & found.lost)} of {len(found.lost)} listed by the cloud, the rest by their devices",
        )

    asyncio.run(play())


def late_updates(stage: Scene, gateway: str) -> set[JobId]:
    found = set()
    for event, _ in arrivals(stage.cluster.state_of(gateway)):
        message = event.content.message  # type: ignore[union-attr]
        if isinstance(message, Update):
            found.add(message.job)
    return found


def test_a_link_of_160_kbit(tmp_path: Path) -> None:
    slow = Shape(rate=20_000)

    async def play() -> None:
        async with scene(tmp_path) as stage:
            device = stage.numbers("device")["device-1"]
            await stage.mid_upload("device-1")
            for link in stage.links_of("device-1"):
                link.shape(up=slow, down=slow)
            begin = time.monotonic()
            for _ in range(2):  # the second began on the slow link
                begin, last = await stage.aggregated(begin, device=device) + 1e-6, begin
            others = [s for name in stage.cluster.gateway_names for s in stage.since(last, name, "job")]
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        assert not stage.since(last, "gateway-1", "lifecycle", what="device_given_up")
        assert not stage.since(last, "gateway-2", "lifecycle", what="device_given_up")
        assert len(others) > 4  # the others do not wait for it
        write_row(
            "link_160_kbit",
            "every link of a device at 160 kbit/s from the middle of an upload on",
            found,
            (None, "nobody: it is slow, not silent"),
            (
                begin - last,
                f"one whole round; two models of {MODEL_BYTES // 1000} kB take {2 * MODEL_BYTES / 20_000:.0f} s",
            ),
        )

    asyncio.run(play())


def test_messages_are_repeated_and_reordered(tmp_path: Path) -> None:
    """Connections break at random, some after a stall of the downlink: receipts are lost, packets that arrived are sent
    again, and small messages overtake large ones."""

    async def play() -> None:
        rng = random.Random(5)
        async with scene(
            tmp_path, devices_per_process=4, shape=Shape(rate=SLOW_ENOUGH.rate * 2, delay_s=0.05, jitter_s=0.1)
        ) as stage:
            begin = time.monotonic()
            breaks = 0
            while time.monotonic() < begin + 20:
                deaf = [link for link in stage.cluster.links.values() if rng.random() < 0.3]
                for link in deaf:
                    link.stall(up=False)
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                for link in deaf:
                    link.reset()
                    link.heal()
                breaks += len(deaf)
                await asyncio.sleep(0.5)
                stage.look()
            calm = time.monotonic()
            back = await stage.until_seen(calm, "cloud", "upload", reason="mixed")
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        assert found.sent_again > 0
        write_row(
            "repeats",
            f"connections broken {breaks} times in 20 s: messages come twice and out of order",
            found,
            (None, "receivers: by number, at once"),
            (back - calm, "the cloud mixes an upload"),
            f"{found.sent_again} models were sent again, {found.repeats} packets reached a node twice",
        )

    asyncio.run(play())


def test_a_third_of_the_devices_flaps_for_five_minutes(tmp_path: Path) -> None:
    async def play() -> None:
        rng = random.Random(9)
        async with scene(tmp_path, devices=10, devices_per_process=1, settings=("gateway.epochs=8",)) as stage:
            flapping = stage.cluster.device_names[:3]
            begin = time.monotonic()
            flaps = 0
            mixed = len(stage.since(0.0, "cloud", "upload"))
            while time.monotonic() < begin + 300:
                name = rng.choice(flapping)
                flaps += 1
                if rng.random() < 0.5:
                    await stage.kill(name)
                    await asyncio.sleep(rng.uniform(0.5, 4))
                    await stage.node(name).start()
                else:
                    for link in stage.links_of(name):
                        link.refuse()
                    await asyncio.sleep(rng.uniform(0.5, 4))
                    for link in stage.links_of(name):
                        link.heal()
                await asyncio.sleep(rng.uniform(0.5, 3))
                stage.look()
            calm = time.monotonic()
            numbers = stage.numbers("device")
            for name in flapping:
                back = await stage.aggregated(calm, device=numbers[name])
            uploads = len(stage.since(0.0, "cloud", "upload")) - mixed
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        assert uploads > 20
        write_row(
            "flapping",
            f"3 of 10 devices killed or cut off {flaps} times in 5 minutes",
            found,
            (None, "their gateways, each time"),
            (back - calm, "all three have had an update mixed"),
            f"{uploads} uploads were mixed meanwhile",
        )

    asyncio.run(play())


def test_a_restart_with_a_clock_set_back(tmp_path: Path) -> None:
    """The gateway returns as after a reboot with an empty battery: its monotonic clock is an hour behind and, with
    faketime, its wall clock twelve hours."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")

    async def play() -> None:
        behind = ["unshare", "-rT", "--monotonic=-3600", "--boottime=-3600", "--"]
        probe = await asyncio.create_subprocess_exec(*behind, "true")
        if await probe.wait() != 0:
            pytest.skip("setting a clock back needs a user and time namespace, and an hour since the machine started")
        faketime = sorted(glob("/usr/lib/*/faketime/libfaketime.so.1"))
        if faketime:  # preloaded, since the faketime program would be a process between the node and its parent
            behind += ["env", f"LD_PRELOAD={faketime[0]}", "FAKETIME=-12h", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        async with scene(tmp_path, devices_per_process=4) as stage:
            gateway = await stage.mid_upload("device-1")
            last = max(s.fields["at"] for s in stage.since(0.0, gateway, "sent"))
            killed = await stage.kill(gateway)
            noticed = await stage.until_seen(killed, "cloud", "PeerLost")
            node = stage.node(gateway)
            node.arguments = [*behind, *node.arguments]
            await node.start()
            back = await stage.aggregated(noticed, gateway=gateway)
            later = [s.fields["at"] for s in stage.since(noticed, gateway, "job")]
            assert min(later) >= last  # its own clock never went back
            assert max(later) < last + 60
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        wall = " and its wall clock twelve" if faketime else ""
        write_row(
            "clock_set_back",
            f"gateway killed and started again with its monotonic clock an hour{wall} behind",
            found,
            (noticed - killed, "the cloud"),
            (back - killed, "it mixes an update"),
        )

    asyncio.run(play())
