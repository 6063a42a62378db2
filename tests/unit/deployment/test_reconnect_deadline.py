"""The deadline after which a process without contact gives up."""

from __future__ import annotations

import asyncio
import math

import pytest

from async_hfl.core.errors import SettingsError, UnreachableError
from async_hfl.deployment.processes.reconnect_deadline import GIVE_UP_S, ReconnectDeadline, parse_duration

HANG_GUARD_S = 30.0


def test_durations() -> None:
    assert [parse_duration(text) for text in ("90s", "1.5m", "24h", "7d")] == [90.0, 90.0, GIVE_UP_S, 7 * 86400.0]
    assert parse_duration("never") == math.inf


@pytest.mark.parametrize("text", ["", "90", "h", "-3s", "0s", "infs", "nans", "3 weeks"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="write it as 90s"):
        parse_duration(text)


def test_it_expires_and_names_the_targets() -> None:
    async def play() -> None:
        deadline = ReconnectDeadline(0.1, "g1.lab:7200")
        await asyncio.wait_for(deadline.watch(lambda: False), HANG_GUARD_S)

    with pytest.raises(UnreachableError, match=r"gave up after 0\.1 s without an answer from g1\.lab:7200"):
        asyncio.run(play())


def test_it_does_not_expire_while_there_are_answers() -> None:
    async def play() -> int:
        looks = 0

        def in_touch() -> bool:
            nonlocal looks
            looks += 1
            return looks < 50

        deadline = ReconnectDeadline(0.2, "anybody")
        with pytest.raises(UnreachableError):
            await asyncio.wait_for(deadline.watch(in_touch), HANG_GUARD_S)
        return looks

    assert asyncio.run(play()) >= 50
