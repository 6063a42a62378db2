"""One device that does everything at once: the limits on conduct, on frames and on calls hold side by side.

Each limit has counters of its own. A device that runs into one of them could wear out another, or keep its session by
staying just below each; so the attacks here run at the same time, over the same certificate.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from attack import PLAIN, Attack, carry_out
from attacker import EVIL, Attacker
from harness import AttackResult, Federation, federation

from async_hfl.core.protocol import messages as m
from attacks import BY_NAME

WAVES = {
    "conduct": ("every job is dropped", "jobs are accepted and never answered"),
    "frames": ("updates of guessed jobs", "lists of invented updates", "offers of 1 GiB", "garbage in a session"),
    "connections": (
        "40 sessions of one certificate",
        "malformed HTTP/2 in TLS",
        "methods with names that are not UTF-8",
        "a flood of signs of life",
        "a flood of heartbeats",
        "packet numbers with gaps",
    ),
    "calls": (
        "requests to join, with invented incarnations",
        "joining over and over",
        "100 probes of 2 MB at a time",
        "offers of which nothing comes",
        "transfers that break off",
    ),
}
"""Attacks by the limit that they run into. The later ones join the earlier ones: a device that has used up its calls
has no session, and what is refused waits behind a flood, so that it would not reach the other limits."""
UPDATES = 40
LOGGED = {"connections": "connections to this node already", "calls": "too many calls", "frames": "is set aside for"}
"""Words of the gateway's log."""


async def over_and_over(honest: Federation, attack: Attack, evil: Attacker) -> None:
    while True:
        await carry_out(attack, honest, evil)
        await asyncio.sleep(0.05)


def noted(honest: Federation, limit: str) -> bool:
    """True if the gateway has noted that somebody has run into a limit."""
    if limit == "conduct":
        return any(one["what"] == "device_given_up" for one in honest.records(honest.gateway, "lifecycle"))
    return LOGGED[limit] in honest.cluster.nodes[honest.gateway].log.read_text(errors="replace")


def grown(honest: Federation) -> AttackResult:
    return honest.result("all at once", "", model_ok=True, attribution_ok=True, honest_share=1.0)


@pytest.mark.long
def test_a_device_that_does_everything_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, devices=4, settings=PLAIN) as honest:
            await honest.updates(10)
            honest.mark()
            async with honest.attacker() as evil:
                await honest.until("the attacker has a job", lambda: bool(evil.got(m.Train)))
                attacks: list[asyncio.Task[None]] = []
                try:
                    for limit, names in WAVES.items():
                        attacks += [asyncio.create_task(over_and_over(honest, BY_NAME[name], evil)) for name in names]
                        await honest.until(f"the limit of {limit}", lambda limit=limit: noted(honest, limit))
                        await honest.updates(UPDATES)
                finally:
                    for attack in attacks:
                        attack.cancel()
                    ended = await asyncio.gather(*attacks, return_exceptions=True)
                assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
            async with honest.attacker(f"{EVIL}-no-more") as newcomer:  # the limits are those of one certificate
                await honest.until("another device is given a job", lambda: bool(newcomer.got(m.Train)))
            epochs = honest.epochs()
            await honest.until("the cloud takes an upload", lambda: honest.epochs() > epochs)
            assert honest.harmed() == []
            await honest.until("the memory of calls and transfers is given back", lambda: grown(honest).rss_mb < 60)
            assert grown(honest).disk_mb < 300, "honest work alone takes some megabytes a second here"
            model = await honest.final_model()
            assert np.isfinite(model).all()
            assert np.abs(model).max() <= 10.0, "honest updates are between -1 and 1"

    asyncio.run(story())
