"""An attack by one device with a valid certificate, and what all attacks need.

An attack is a function that sends what it has to, and returns. The tests carry each out a few times and check what is
left; `benchmarks/attacks.py` repeats it for some time and measures what it costs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from attacker import Attacker
from harness import Federation

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import frozen

Act = Callable[[Federation, Attacker], Awaitable[None]]
PLAIN = ("transfer.encoding=float32", "transfer.up=float32", "transfer.down=float32")
"""Settings with which an attack can write the numbers that it wants."""


@dataclass(frozen=True)
class Attack:
    name: str
    act: Act
    outcome: str
    """What is expected to become of it, in a few words."""
    own_devices: bool = True
    """It joins as a device; otherwise `act` opens its own connections."""
    acknowledges: bool = True
    most_sent: int = 2**30
    """Bytes that the gateway takes from it in a few strikes."""


def update(job: JobId, weights: Any, **changes: Any) -> m.Update:
    fields: dict[str, Any] = {"samples": 10, "steps": 1, "loss": 0.5, "squared_loss": 0.25, "gradient": None}
    return m.Update(job, weights, **{**fields, "download_s": 0.1, "training_s": 0.1, **changes})


async def own_job(honest: Federation, evil: Attacker) -> m.Train:
    """Wait for the next job of the attacker's own."""
    seen = len(evil.got(m.Train))
    last = evil.got(m.Train)[-1] if seen else None
    if last is not None and last.job not in evil.answered:
        evil.answered.add(last.job)
        return last
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5.0):
            while len(evil.got(m.Train)) == seen:
                await asyncio.sleep(0.02)
    if len(evil.got(m.Train)) == seen:
        raise SetAside
    train = evil.got(m.Train)[-1]
    evil.answered.add(train.job)
    return train


class SetAside(Exception):
    """The attacker is given no more jobs."""


def model(evil: Attacker) -> Any:
    size = evil.got(m.Train)[-1].weights.size if evil.got(m.Train) else evil.model_size
    return frozen(np.zeros(size, np.float32))


async def carry_out(attack: Attack, honest: Federation, evil: Attacker) -> bool:
    """Carry out an attack once; return False if the attacker is set aside already."""
    try:
        if attack.own_devices and not evil.connected:
            raise SetAside
        await attack.act(honest, evil)
    except SetAside:
        return False
    return True
