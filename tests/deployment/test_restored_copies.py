"""State that went back in time: a node is killed, its state directory replaced by an older copy, and it is started."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from fault_scene import HANG_GUARD_S, Scene, scene
from restore_rows import write_row

from async_hfl.assembly.deployments.update_audit import records
from async_hfl.core.identifiers import gateway_address
from async_hfl.deployment.cluster.proxy import Shape

FAST = Shape(rate=2_000_000)


async def put_back(stage: Scene, name: str, folder: Path) -> float:
    """Copy a node's state while it is stopped; let it continue for some uploads, then bring back the copy."""
    state, copy = stage.cluster.state_of(name), folder / "copy"
    copied_at = await stage.kill(name)
    shutil.copytree(state, copy)
    await stage.node(name).start()
    if name.startswith("device"):
        device = stage.numbers("device")[name]
        for _ in range(2):
            copied_at = await stage.aggregated(copied_at + 1e-6, device=device)
    else:
        sender = name if name.startswith("gateway") else "gateway-1"
        for _ in range(3):
            copied_at = await stage.until_seen(copied_at + 1e-6, sender, "sent", message="Upload")
        await stage.until_seen(copied_at, "cloud", "upload", reason="mixed")
    killed = await stage.kill(name)
    shutil.rmtree(state)
    copy.rename(state)
    stage.watches[name].skip()
    return killed


def _known_epoch(fields: dict[str, Any]) -> int:
    return int(fields["detail"].partition("cloud epoch ")[2].partition(",")[0])


def words(stage: Scene, name: str) -> str:
    return stage.node(name).log.read_text()


@pytest.mark.long
def test_an_old_device_joins_as_a_new_incarnation(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, gateways=1, devices=2, shape=FAST) as stage:
            device = stage.numbers("device")["device-1"]
            killed = await put_back(stage, "device-1", tmp_path)
            await stage.node("device-1").start()
            await stage.until(
                "it is named", lambda: "the state of device device-1 is an older copy" in words(stage, "gateway-1")
            )
            await stage.aggregated(killed, device=device)
            await stage.drain()
        assert "it was moved to" in words(stage, "device-1")
        assert "it has sent messages up to number" in words(stage, "device-1")
        assert (stage.cluster.state_of("device-1").parent / "set-aside" / "device-1-1").is_dir()
        found = stage.audit()
        assert (found.lost, found.listed, found.doubled, found.unaccounted) == (set(), set(), set(), [])
        named = "`the state of device device-1 is an older copy: it has sent messages up to number ...`"
        outcome = "it sets the copy aside and joins as a new incarnation"
        write_row("old_device", "device: an older copy", "the gateway, as it joins", named, outcome, found)

    asyncio.run(play())


@pytest.mark.long
def test_an_old_gateway_joins_as_a_new_incarnation_and_its_losses_are_listed(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, shape=FAST, settings=("gateway.epochs=4",)) as stage:
            killed = await put_back(stage, "gateway-1", tmp_path)
            await stage.node("gateway-1").start()
            lost = await stage.until_seen(killed, "cloud", "lifecycle", what="gateway_lost")
            await stage.aggregated(lost, gateway="gateway-1")
            await stage.drain()
        assert "the state of gateway gateway-1 is an older copy" in words(stage, "cloud")
        aside = stage.cluster.state_of("gateway-1").parent / "set-aside" / "gateway-1-1"
        found = stage.audit(dead=(aside,))
        assert found.doubled == set()
        assert found.lost - found.listed <= found.with_devices
        assert {job[:2] for job in found.listed} <= {job[:2] for job in found.lost}
        named = "`the state of gateway gateway-1 is an older copy: it has sent messages up to number ...`"
        outcome = "it sets the copy aside and joins as a new incarnation"
        beyond = len(found.listed - found.lost)
        note = f"the cloud also lists {beyond} updates that no disk holds any more" if beyond else ""
        write_row("old_gateway", "gateway: an older copy", "the cloud, as it joins", named, outcome, found, note)

    asyncio.run(play())


def test_an_old_cloud_stops_by_name_and_continues_when_its_operator_knows(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, shape=FAST) as stage:
            killed = await put_back(stage, "cloud", tmp_path)
            epoch = max(sight.fields["epoch"] for sight in stage.since(0.0, "cloud", "epoch"))
            cloud = stage.node("cloud")
            await cloud.start()
            assert await asyncio.wait_for(cloud.wait(), HANG_GUARD_S) == 2
            told = words(stage, "cloud")
            assert "this cloud's state is an older copy" in told
            assert "start the cloud with --restored" in told
            assert all(stage.node(name).running for name in stage.cluster.gateway_names)
            cloud.arguments.append("--restored")
            await cloud.start()
            restored = await stage.until_seen(killed, "cloud", "lifecycle", what="restored", node="cloud")
            for gateway, number in stage.numbers("gateway").items():
                back = await stage.until_seen(restored, "cloud", "lifecycle", what="gateway_joined", node=f"g{number}")
                await stage.aggregated(back, gateway=gateway)
            await stage.until_seen(restored, "cloud", "epoch", epoch=epoch + 1)
            # Later it is started as before: there is nothing left to confirm.
            again = await stage.kill("cloud")
            cloud.arguments.remove("--restored")
            await cloud.start()
            for number in stage.numbers("gateway").values():
                await stage.until_seen(again, "cloud", "PeerJoined", peer=gateway_address(number))
            await stage.until_seen(again, "cloud", "upload", reason="mixed")
            await stage.drain()
        lines = [
            fields
            for _, fields in records(stage.cluster.state_of("cloud"), "lifecycle")
            if fields["what"] == "restored"
        ]
        assert {fields["node"] for fields in lines} == {"cloud", "g0", "g1"}
        assert "knew cloud epoch" in lines[-1]["detail"]
        assert lines[0]["node"] == "cloud"
        found = stage.audit()
        assert found.doubled == set()
        write_row(
            "old_cloud",
            "cloud: an older copy",
            "itself, as the first gateway joins",
            "`this cloud's state is an older copy, of cloud epoch ...: it has sent messages up to number ...`",
            "refused, exit code 2, with the remedy; with `--restored` it continues, its gateways as new incarnations",
            found,
            f"the journal says: {max(lines[1:], key=_known_epoch)['detail']}",
        )

    asyncio.run(play())
