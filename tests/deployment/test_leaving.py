"""Every process exits: nodes that were disconnected at the end are informed later, unreachable ones give up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fault_scene import HANG_GUARD_S, scene

from async_hfl.deployment.cluster.local_cluster import LocalCluster
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.transport.link import operate

pytestmark = pytest.mark.long
GAVE_UP = 3


def impatient(cluster: LocalCluster) -> None:
    for name, node in cluster.nodes.items():
        if name != "cloud":
            node.arguments += ["--give-up", "4s"]


def test_a_device_that_was_silent_at_the_end_is_told_and_exits(tmp_path: Path) -> None:
    """One gateway is gone for good; a device is cut off while the other says goodbye, and returns a little later."""

    async def play() -> None:
        async with scene(tmp_path, settings=("cloud.gateway_patience=2",)) as stage:
            gone, stays = stage.cluster.gateway_names
            await stage.kill(gone)
            for link in stage.links_of("device-1"):
                link.stall()
            credentials = Certified(stage.cluster.certificates("operator"))
            await operate(stage.cluster.addresses["cloud"], "cloud", credentials, "drain")
            others = [name for name in stage.cluster.device_names if name != "device-1"]
            nodes = [stage.node(name) for name in ("cloud", *others)]
            assert await asyncio.wait_for(asyncio.gather(*(node.wait() for node in nodes)), HANG_GUARD_S) == [0] * 4
            assert stage.node(stays).running
            for link in stage.links_of("device-1"):
                link.reset()
                link.heal()
            told = asyncio.gather(stage.node("device-1").wait(), stage.node(stays).wait())
            assert await asyncio.wait_for(told, HANG_GUARD_S) == [0, 0]

    asyncio.run(play())


def test_devices_give_up_where_no_gateway_answers(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=2, prepared=impatient) as stage:
            await stage.kill(*stage.cluster.gateway_names)
            hosts = stage.cluster.hosts
            codes = await asyncio.wait_for(asyncio.gather(*(host.wait() for host in hosts)), HANG_GUARD_S)
            assert codes == [GAVE_UP] * len(hosts)
            assert "gave up after 4 s without an answer" in hosts[0].log_tail()

    asyncio.run(play())


def test_a_gateway_gives_up_where_the_cloud_does_not_answer(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, prepared=impatient) as stage:
            await stage.kill("cloud")
            nodes = [node for node in stage.cluster.nodes.values() if node.name != "cloud"]
            codes = await asyncio.wait_for(asyncio.gather(*(node.wait() for node in nodes)), HANG_GUARD_S)
            assert codes == [GAVE_UP] * len(nodes)
            assert "the cloud at" in stage.node(stage.cluster.gateway_names[0]).log_tail()

    asyncio.run(play())
