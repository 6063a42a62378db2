"""The throughput of honest devices while another one attacks: at least 80 % of that in the turns between.

Shares are measured with their error, on a machine that may have other work; what is asserted is that no share is
surely lower. `benchmarks/attacks.py` measures all attacks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attacker import EVIL
from harness import federation
from measuring import DIGITS, LIMITED, tried

from attacks import BY_NAME

ENOUGH = 0.8
NAMES = (
    "updates of guessed jobs",
    "an update of norm 1e6",
    "lists of invented updates",
    "2^63 - 1 samples",
    "a gradient of the wrong length",
    "400 idle connections",
    "a message of 32 MB as 32 kB",
    "offers of 1 GiB",
    "packets of other incarnations",
)


@pytest.mark.long
def test_honest_devices_keep_their_throughput(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, devices=5, settings=DIGITS, task="digits") as honest:
            for number, name in enumerate(NAMES):
                row = await tried(honest, BY_NAME[name], f"{EVIL}{number}", 1.2)
                assert row.model_ok, row
                assert row.attribution_ok, row
                assert row.high >= ENOUGH, row

    asyncio.run(story())


@pytest.mark.long
def test_honest_devices_keep_their_throughput_beside_a_silent_one(tmp_path: Path) -> None:
    """The bandwidth suffices for one device at a time."""

    async def story() -> None:
        async with federation(tmp_path, devices=5, settings=LIMITED, task="digits") as honest:
            row = await tried(honest, BY_NAME["jobs are accepted and never answered"], EVIL, 3.0, compute_s=0.2)
            assert row.high >= ENOUGH, row

    asyncio.run(story())
