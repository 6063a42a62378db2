"""The harness itself: an attacker that behaves well is served like any other device."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
from attack import PLAIN
from attacker import EVIL
from harness import federation

from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import frozen


def test_an_attacker_that_behaves_is_a_device_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, settings=PLAIN) as honest:
            honest.mark()
            async with honest.attacker() as evil:
                await honest.until("the attacker gets a job", lambda: bool(evil.got(m.Train)))
                train = evil.got(m.Train)[-1]
                model = frozen(np.asarray(train.weights).copy())
                evil.send(m.Update(train.job, model, 10, 1, 0.5, 0.25, None, 0.1, 0.1, warmup=train.warmup))
                number = honest.numbers()[EVIL]
                await honest.until(
                    "its update is aggregated",
                    lambda: any(
                        (record["device"], record["reason"]) == (number, "aggregated")
                        for record in honest.records(honest.gateway, "job")
                    ),
                )
                await honest.updates(5)
            result = honest.result("none", "served", model_ok=True, attribution_ok=True, honest_share=1.0)
            assert result.rss_mb < 100
            assert result.disk_mb < 100

    asyncio.run(story())
