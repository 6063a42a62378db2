"""The fault table, gateways that return with their disk after they were declared lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fault_rows import write_row
from fault_scene import HANG_GUARD_S, Scene, scene

from async_hfl.assembly.deployments.update_audit import records

pytestmark = pytest.mark.long
IMPATIENT = ("gateway.epochs=8", "cloud.gateway_patience=2", "cloud.lost_patience=1")


async def killed_with_something_to_lose(stage: Scene) -> tuple[str, float, float]:
    """Return the gateway, the time it was killed, and the time the cloud listed updates of it as lost."""
    gateway = await stage.mid_upload("device-1")
    await stage.until("it has something to lose", lambda: stage.mixed_and_not_uploaded(gateway) >= 3)
    killed = await stage.kill(gateway)
    return gateway, killed, await stage.until_seen(killed, "cloud", "lost")


def test_a_gateway_returns_after_it_was_declared_lost(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, settings=IMPATIENT) as stage:
            gateway, killed, noticed = await killed_with_something_to_lose(stage)
            before = len([1 for sight in stage.since(0.0, "cloud", "upload") if sight.fields["reason"] == "mixed"])
            await stage.node(gateway).start()
            await stage.until_seen(noticed, "cloud", "found")
            number = stage.numbers("gateway")[gateway]

            def its_upload_is_mixed() -> bool:
                uploads = stage.since(noticed, "cloud", "upload", reason="mixed")
                return any(sight.fields["upload"][0] == number for sight in uploads)

            back = await stage.until("what it had is mixed", its_upload_is_mixed)
            assert before > 0
            await stage.aggregated(back, gateway=gateway)
            await stage.drain()
        found = stage.audit()
        assert len(found.found_again) >= 1
        assert found.listed == set()
        assert found.lost == set()
        assert found.doubled == set()
        assert found.unaccounted == []
        write_row(
            "gateway_back_late",
            "gateway killed, held for lost, back with its disk",
            found,
            (noticed - killed, "the cloud, which lists what it had (here after 3 s without it)"),
            (back - killed, "what it had mixed is in the global model"),
            f"{len(found.found_again)} listed as lost and found again",
        )

    asyncio.run(play())


def test_a_gateway_returns_after_the_end_of_the_run(tmp_path: Path) -> None:
    async def play() -> None:
        async with scene(tmp_path, devices_per_process=4, settings=(*IMPATIENT, "cloud.linger=20")) as stage:
            gateway, killed, noticed = await killed_with_something_to_lose(stage)
            await stage.drain()
            assert not stage.node("cloud").running
            # The cloud is started again for nodes that were away; it stays for cloud.linger.
            await asyncio.gather(stage.node("cloud").start(), stage.node(gateway).start())
            codes = await asyncio.wait_for(
                asyncio.gather(stage.node(gateway).wait(), stage.node("cloud").wait()), HANG_GUARD_S
            )
            assert codes == [0, 0], stage.node(gateway).log_tail()
        found = stage.audit()
        own = list(records(stage.cluster.state_of(gateway), "late"))
        assert len(own) >= 3
        assert "updates that this gateway acknowledged" in stage.node(gateway).log_tail()
        assert found.lost == set()
        assert found.doubled == set()
        assert found.unaccounted == []
        write_row(
            "gateway_back_after_the_end",
            "gateway killed, held for lost, back with its disk when the run is over",
            found,
            (noticed - killed, "the cloud, which lists what it had"),
            (None, "it is told `finished` and exits with 0"),
            f"{len(own)} updates listed by it as too late (`late`)",
        )

    asyncio.run(play())
