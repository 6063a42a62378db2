"""Two releases work together: the first one and this one mixed in both directions, and a run that is continued by this
one. What cannot work together is refused, with the versions of both."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from earlier_release import checked_out, run_by
from fault_scene import HANG_GUARD_S, Scene, assert_nothing_lost, scene

from async_hfl.assembly.runs.replay import replay
from async_hfl.core.errors import DataError
from async_hfl.deployment.cluster.local_cluster import LocalCluster
from async_hfl.deployment.cluster.proxy import Shape
from async_hfl.deployment.store.schema import FORMAT
from async_hfl.deployment.store.stored_node import StoredNode

pytestmark = pytest.mark.long
METHOD = "async-hfl"
"""A method without settings that the first release does not know; models travel as float32."""
FAST = Shape(rate=2_000_000)
NEW_HALF = ("gateway-1", "device-1", "device-2")
OLD_HALF = ("gateway-2", "device-3", "device-4")


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return checked_out(tmp_path_factory.mktemp("first release"))


def formats(stage: Scene, *names: str) -> set[int]:
    found = set()
    for name in names:
        with StoredNode(stage.cluster.state_of(name)) as stored:
            found.add(stored.format)
    return found


async def everybody_works(stage: Scene, since: float) -> None:
    """Wait until the cloud has mixed an upload of every gateway, and a gateway an update of every device."""
    for number in stage.numbers("device").values():
        await stage.aggregated(since, device=number)
    for number in stage.numbers("gateway").values():

        def mixed(number: int = number) -> bool:
            uploads = stage.since(since, "cloud", "upload", reason="mixed")
            return any(sight.fields["upload"][0] == number for sight in uploads)

        await stage.until(f"an upload of gateway {number} is mixed", mixed)


@pytest.mark.parametrize("cloud_is_new", [True, False])
def test_half_of_the_nodes_run_the_first_release(tmp_path: Path, first_release: list[str], cloud_is_new: bool) -> None:
    old = [*OLD_HALF, *([] if cloud_is_new else ["cloud"])]

    def mix(cluster: LocalCluster) -> None:
        run_by(cluster, old, first_release)

    async def play() -> None:
        async with scene(tmp_path, method=METHOD, shape=FAST, prepared=mix) as stage:
            await everybody_works(stage, 0.0)
            await everybody_works(stage, time.monotonic())
            assert formats(stage, *old) == {2}
            assert formats(stage, *NEW_HALF) == {FORMAT}
            await stage.drain()
        assert_nothing_lost(stage.audit(replayed=(*NEW_HALF, *(["cloud"] if cloud_is_new else []))))
        with pytest.raises(DataError, match=r"format 2.*replay it with"):
            replay(stage.cluster.state_of("device-3"))

    asyncio.run(play())


def test_a_run_of_the_first_release_is_continued(tmp_path: Path, first_release: list[str]) -> None:
    """Nodes are updated one by one while the run goes on; settings that were added since have their defaults."""

    def all_old(cluster: LocalCluster) -> None:
        run_by(cluster, list(cluster.nodes), first_release)

    async def play() -> None:
        async with scene(tmp_path, method=METHOD, shape=FAST, prepared=all_old) as stage:
            await everybody_works(stage, 0.0)
            names = ["gateway-1", "device-1", "cloud", "gateway-2", "device-2", "device-3", "device-4"]
            for name in names:
                killed = await stage.kill(name)
                assert formats(stage, name) == {2}
                run_by(stage.cluster, [name], [])
                await stage.node(name).start()
                await stage.aggregated(killed)
            await everybody_works(stage, time.monotonic())
            assert formats(stage, *names) == {FORMAT}
            await stage.drain()
        assert_nothing_lost(stage.audit())

    asyncio.run(play())


def test_what_the_first_release_does_not_know_is_refused_by_name(tmp_path: Path, first_release: list[str]) -> None:
    def old_gateway(cluster: LocalCluster) -> None:
        run_by(cluster, ["gateway-2"], first_release)

    async def play() -> None:
        async with scene(
            tmp_path,
            method=METHOD,
            settings=("transfer.encoding=int8",),
            shape=FAST,
            prepared=old_gateway,
            running=False,
        ) as stage:
            code = await asyncio.wait_for(stage.node("gateway-2").wait(), HANG_GUARD_S)
            words = stage.node("gateway-2").log_tail()
            assert code == 2
            assert "async-hfl 0.2.0" in words
            assert "this run is of async-hfl" in words
            assert "int8" in words

    asyncio.run(play())
