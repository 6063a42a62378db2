"""Invented lists of unsettled updates, and restarts: what a device may claim is limited for ever, not for each process.

The lists name a real incarnation of the other gateway, so that the cloud has to take them seriously. They arrive before
a restart of gateway and cloud, and after it; what is left is measured after another one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from attack import PLAIN
from attacker import Attacker
from harness import Federation, federation

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.nodes.cloud.update_ledger import MOST_CLAIMS

LISTS = 250
"""Each of 1,024 updates: 60 times what one device may claim."""


async def restart(honest: Federation, *names: str) -> None:
    """Kill these nodes, and start them again with their disks."""
    nodes = [honest.cluster.nodes[name] for name in names]
    for node in nodes:
        node.kill()
        await node.wait()
    for node in nodes:
        await node.start()


def joined(honest: Federation, evil: Attacker, sessions: int) -> bool:
    return evil.connected and evil.sessions > sessions


async def invent(honest: Federation, evil: Attacker, claimed: JobId) -> None:
    """Send the lists, and wait until the gateway has refused some and ended the session."""
    refused = len(refusals(honest))
    for _ in range(LISTS):
        first = evil.invented = evil.invented + m.MOST_UNSETTLED
        numbers = range(first, first + m.MOST_UNSETTLED)
        evil.send(m.Unsettled(None, tuple(JobId(claimed.gateway, claimed.incarnation, number) for number in numbers)))
    await honest.until("lists are refused", lambda: len(refusals(honest)) > refused and not evil.connected)


def refusals(honest: Federation) -> list[str]:
    records = honest.records(honest.gateway, "lifecycle")
    return [record["detail"] for record in records if "more lists" in record["detail"]]


def confirmed(evil: Attacker) -> set[JobId]:
    """Return the invented updates that the cloud has noted."""
    return {job for ack in evil.got(m.SettledAck) for job in ack.jobs}


def test_invented_lists_stay_few_through_restarts(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, gateways=2, devices=4, settings=PLAIN) as honest:
            await honest.updates(5)
            gateway, other = honest.cluster.gateway_names
            await honest.until("the other gateway works", lambda: bool(honest.records(other, "job")))
            claimed = JobId(*honest.records(other, "job")[0]["job"])
            honest.mark()
            async with honest.attacker() as evil:
                await invent(honest, evil, claimed)
                await honest.until("the cloud notes some", lambda: len(confirmed(evil)) >= m.MOST_UNSETTLED)
                sessions = evil.sessions
                await restart(honest, gateway, "cloud")
                await honest.until("the attacker is back", lambda: joined(honest, evil, sessions))
                await invent(honest, evil, claimed)
                sessions = evil.sessions
                await restart(honest, gateway, "cloud")
                await honest.until("the attacker is back", lambda: joined(honest, evil, sessions))
                await honest.updates(20)
                assert m.MOST_UNSETTLED <= len(confirmed(evil)) <= MOST_CLAIMS
            result = honest.result("lists", "refused", model_ok=True, attribution_ok=True, honest_share=1.0)
            assert result.rss_mb < 40, result
            assert result.disk_mb < 40, result
            evil_numbers = {f"d{number}" for number in honest.evil_numbers()}
            records = honest.records(gateway, "lifecycle")
            assert {one["node"] for one in records if one["what"] == "refused"} == evil_numbers
            assert not honest.records("cloud", "lost")

    asyncio.run(story())
