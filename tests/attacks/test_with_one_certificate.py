"""Attacks by devices with a valid certificate, through real sessions: others are served, and none of it is theirs.

The attacks follow each other in one federation, each by a device of its own. What is asserted is the work of the honest
devices afterwards, never a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from attack import PLAIN, Attack, carry_out
from attacker import EVIL
from harness import Federation, federation

from attacks import ATTACKS, BY_NAME

NUMBERS = 2000
STRIKES = 3


async def survive(honest: Federation, attack: Attack, number: int) -> None:
    """Carry out an attack some times; the honest devices go on all the while, and nobody is harmed."""
    async with honest.attacker(f"{EVIL}{number}") as evil:
        evil.acknowledges = attack.acknowledges
        for _ in range(STRIKES):
            if not await carry_out(attack, honest, evil):
                break
            await honest.updates(2)
        sent = sum(count.sent for count in evil.transport.traffic().values())
        assert sent < attack.most_sent, attack.name
    epochs = honest.epochs()
    await honest.updates(5)
    await honest.until("the cloud takes an upload", lambda: honest.epochs() > epochs)
    assert honest.harmed() == [], attack.name


async def survive_all(folder: Path, attacks: Sequence[Attack], settings: Sequence[str] = ()) -> list[dict[str, str]]:
    """Carry out the attacks one after the other; return the records of refusals."""
    async with federation(folder, devices=4, numbers=NUMBERS, settings=(*PLAIN, *settings)) as honest:
        honest.mark()
        for number, attack in enumerate(attacks):
            await survive(honest, attack, number)
        result = honest.result("all", "", model_ok=True, attribution_ok=True, honest_share=1.0)
        assert result.rss_mb < 100, result
        assert result.disk_mb < 100, result
        refused = [one for one in honest.records(honest.gateway, "lifecycle") if one["what"] == "refused"]
        evil = honest.evil_numbers()
        model = await honest.final_model()
        assert np.isfinite(model).all()
        assert np.abs(model).max() <= 10.0, "honest updates are between -1 and 1"
        assert {int(one["node"][1:]) for one in refused} <= evil
    return refused


def test_updates_that_guess_exaggerate_or_lie(tmp_path: Path) -> None:
    names = (
        "updates of guessed jobs",
        "guessed jobs are dropped",
        "an update of norm 1e6",
        "one weight of 3.4e38",
        "2^63 - 1 samples",
        "a gradient of the wrong length",
        "packets of other incarnations",
    )
    refused = asyncio.run(survive_all(tmp_path, [BY_NAME[name] for name in names]))
    details = " ".join(one["detail"] for one in refused)
    assert "a job that was never sent" in details or "the job of another device" in details
    assert "times what is usual" in details


def test_lists_offers_and_floods(tmp_path: Path) -> None:
    names = (
        "lists of invented updates",
        "a list of 200,000 updates",
        "a model of 8 MB, where others have 8 kB",
        "offers of 1 GiB",
        "offers of which nothing comes",
        "transfers that break off",
        "a flood of signs of life",
        "garbage in a session",
        "methods with names that are not UTF-8",
    )
    asyncio.run(survive_all(tmp_path, [BY_NAME[name] for name in names]))


def test_a_silent_device_does_not_keep_the_bandwidth(tmp_path: Path) -> None:
    """The bandwidth is too small for an honest device: one at a time is triggered, when nothing is in flight. The
    silent one claims to be slow, so that it fits, and keeps its session. It has ten minutes to answer, and the honest
    ones make their updates long before."""

    async def story() -> None:
        limited = (*PLAIN, "gateway.bandwidth=100000", "gateway.patience_floor=600")
        async with (
            federation(tmp_path, devices=3, settings=limited) as honest,
            honest.attacker(f"{EVIL}0", compute_s=0.2) as evil,
        ):
            await honest.until("the attacker has a job", lambda: bool(evil.jobs_to_aggregate()))
            await honest.updates(30)
            jobs = [record for record in honest.records(honest.gateway, "job") if record["reason"] == "aggregated"]
            assert len({record["device"] for record in jobs} - honest.evil_numbers()) == 3
            assert honest.harmed() == []

    asyncio.run(story())


@pytest.mark.long
def test_every_attack(tmp_path: Path) -> None:
    asyncio.run(survive_all(tmp_path, ATTACKS))
