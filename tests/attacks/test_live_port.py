"""Raw bytes, malformed frames and joins at the port of a gateway in a running federation, in great numbers.

Afterwards the honest devices and the cloud work on, connections and descriptors are as before, and memory and disk
have grown by no more than honest work takes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import grpc
import malformed
import numpy as np
import pytest
from attack import PLAIN
from attacker import EVIL
from harness import Federation, federation

from async_hfl.core.errors import IdentityError
from async_hfl.core.protocol import messages as m
from async_hfl.deployment.identity import authority as authority_module
from async_hfl.deployment.identity.authority import Authority
from async_hfl.deployment.identity.certificate_info import now
from async_hfl.deployment.identity.credentials import Certified
from async_hfl.deployment.transport import calls, joining
from async_hfl.deployment.transport.admission import Joining

log = logging.getLogger(__name__)
AT_ONCE = 20
LEFT = timedelta(seconds=40)
REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
"""By the node, and by HTTP/2 while too many streams of one connection are open."""
NAMES = [f"{EVIL}{number}" for number in range(100)]


def descriptors(honest: Federation) -> int:
    process = honest.cluster.nodes[honest.gateway].process
    assert process is not None
    return len(os.listdir(f"/proc/{process.pid}/fd"))


async def survives(honest: Federation, attack: Callable[[str, int], Awaitable[None]]) -> None:
    """Carry out an attack on the gateway's host and port, and check what is left of it."""
    await honest.updates(10)
    honest.mark()
    open_before = descriptors(honest)
    host, _, port = honest.cluster.addresses[honest.gateway].rpartition(":")
    await attack(host, int(port))
    before = honest.epochs()
    await honest.updates(10)
    await honest.until("another cloud epoch", lambda: honest.epochs() > before)
    await honest.until("its connections are closed", lambda: descriptors(honest) <= open_before + 8)
    async with honest.attacker(f"{EVIL}-no-more"):  # sessions that were open before could outlive a port that is closed
        await honest.updates(5)
    result = honest.result("", "", model_ok=True, attribution_ok=honest.harmed() == [], honest_share=1.0)
    log.info("%+.0f MB of memory, %+.0f MB of disk", result.rss_mb, result.disk_mb)
    assert result.attribution_ok
    assert result.rss_mb < 100, result
    assert result.disk_mb < 300, result  # honest work alone takes half a megabyte a second
    model = await honest.final_model()
    assert np.isfinite(model).all()
    assert np.abs(model).max() <= 10.0, "honest updates are between -1 and 1"


async def in_parallel(count: int, work: Callable[[np.random.Generator], Awaitable[int]]) -> None:
    """Let some workers do so many pieces of work; each call of `work` returns how many it has done."""
    left = count

    async def worker(seed: int) -> None:
        nonlocal left
        random = np.random.default_rng(seed)
        while left > 0:
            done = await work(random)
            left -= max(done, 1)

    await asyncio.gather(*(worker(seed) for seed in range(AT_ONCE)))


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_raw_bytes_and_malformed_frames(tmp_path: Path, count: int) -> None:
    """As many strings of bytes before the handshake as HTTP/2 frames after one with a valid certificate."""

    async def story() -> None:
        async with federation(tmp_path, settings=PLAIN) as honest:
            honest.credentials()
            context, hello = malformed.tls(honest.cluster.certificates(EVIL)), malformed.client_hello()

            async def attack(host: str, port: int) -> None:
                async def one_string(random: np.random.Generator) -> int:
                    await malformed.send_raw(host, port, malformed.raw(random, hello))
                    return 1

                await in_parallel(count, one_string)
                await in_parallel(count, lambda random: malformed.send_frames(host, port, context, random))

            await survives(honest, attack)

    asyncio.run(story())


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.long)])
def test_joins(tmp_path: Path, count: int) -> None:
    """A hundred devices ask to join again and again, each time as another incarnation."""

    async def story() -> None:
        async with federation(tmp_path, settings=PLAIN) as honest:
            folder = honest.cluster.certificates(EVIL)
            Authority(honest.cluster.folder / "certificates" / "authority").bundle("device", NAMES, folder)
            answers = {"admitted": 0, "too many": 0}
            asked = 0

            async def attack(host: str, port: int) -> None:
                options = calls.options(5.0, server=False)
                async with Certified(folder).channel(f"{host}:{port}", "gateway", options) as channel:

                    async def ask(random: np.random.Generator) -> int:
                        nonlocal asked
                        asked += 1
                        stated = Joining("device", NAMES[asked % len(NAMES)], asked, samples=10, compute_s=0.1)
                        call = calls.call(channel, calls.ENLIST)
                        try:
                            answer = await call(joining.hello(stated, "9", 0.1), timeout=60.0)
                        except grpc.aio.AioRpcError as error:
                            if error.code() not in REFUSED:
                                raise
                            answers["too many"] += 1
                        else:
                            assert answer.admission, answer
                            answers["admitted"] += 1
                        return 1

                    await in_parallel(count, ask)

            await survives(honest, attack)
            assert answers["admitted"] >= min(count, 20 * len(NAMES)) // 2
            assert len(honest.numbers()) == 3 + len(NAMES) + 1  # with the one that joins afterwards
            log.info("%s", answers)

    asyncio.run(story())


@pytest.mark.long
def test_a_certificate_that_expires_while_its_device_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with federation(tmp_path, settings=PLAIN) as honest, AsyncExitStack() as opened:
            folder = honest.cluster.certificates(EVIL)
            authority = Authority(honest.cluster.folder / "certificates" / "authority")
            with monkeypatch.context() as yesterday:
                yesterday.setattr(authority_module, "now", lambda: now() - timedelta(days=1) + LEFT)
                authority.bundle("device", [EVIL], folder, days=1)
            evil = await opened.enter_async_context(honest.attacker())
            await honest.until("it has a job", lambda: bool(evil.got(m.Train)))
            await honest.until("its session ends", lambda: not evil.connected)
            lines = honest.cluster.nodes[honest.gateway].log.read_text()
            assert "expired on" in lines
            with pytest.raises(IdentityError, match="expired on"):
                honest.credentials()
            await honest.updates(10)
            assert not evil.connected

    asyncio.run(story())
