"""Attacks on a server's port before a peer has shown who it is, and with one certificate on many connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from attacker import EVIL
from harness import MB, Federation, federation

from async_hfl.deployment.transport import calls

DESCRIPTORS = 256


@contextmanager
def idle_connections(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Open TCP connections and say nothing on them."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]


def descriptors(honest: Federation) -> int:
    process = honest.cluster.nodes[honest.gateway].process
    assert process is not None
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def test_idle_connections_do_not_use_up_the_descriptors_of_a_gateway(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, gateway_limits=f"-n {DESCRIPTORS}") as honest:
            honest.mark()
            before = await honest.rate(2.0)
            with idle_connections(honest.cluster.addresses[honest.gateway], 400):
                during = await honest.rate(4.0)
                assert descriptors(honest) < DESCRIPTORS - 32, "no reserve is left"
            assert honest.alive()
            async with honest.attacker():  # a new device is admitted afterwards
                await honest.updates(5)
            result = honest.result(
                "400 idle connections", "closed", model_ok=True, attribution_ok=True, honest_share=during / before
            )
            assert during > 0, result
            assert result.rss_mb < 50, result
            assert result.disk_mb < 50, result

    asyncio.run(story())


def test_a_process_raises_its_limit_on_open_files(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path, gateway_limits="-Sn 128") as honest:
            process = honest.cluster.nodes[honest.gateway].process
            assert process is not None
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            _, soft, hard, _ = next(line for line in limits.splitlines() if "open files" in line).rsplit(maxsplit=3)
            assert soft == hard != "128"

    asyncio.run(story())


def test_one_certificate_has_few_connections(tmp_path: Path) -> None:
    async def story() -> None:
        async with federation(tmp_path) as honest, AsyncExitStack() as opened:
            streams = []
            for _ in range(40):
                channel = await opened.enter_async_context(honest.channel())
                streams.append(calls.call(channel, calls.SESSION)())
            ended = [asyncio.ensure_future(stream.code()) for stream in streams]
            await honest.until("some sessions end", lambda: sum(end.done() for end in ended) >= 32)
            assert {end.result() for end in ended if end.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert sum(end.done() for end in ended) == 32
            for end in ended:
                end.cancel()
            await honest.updates(5)

    asyncio.run(story())


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
def test_a_message_never_takes_more_memory_than_a_frame(tmp_path: Path, compression: grpc.Compression) -> None:
    """200 MB, as they are or in 200 kB of gzip: neither is kept in memory."""

    async def story() -> None:
        async with federation(tmp_path) as honest:
            honest.mark()
            target = honest.cluster.addresses[honest.gateway]
            honest.credentials()
            arguments = [target, honest.cluster.certificates(EVIL), 200 * MB, int(compression)]
            program = [sys.executable, Path(__file__).with_name("send_much.py"), *arguments]
            sending = await asyncio.create_subprocess_exec(*map(str, program), stdout=asyncio.subprocess.PIPE)
            most = 0.0
            while sending.returncode is None:
                most = max(most, *(usage.rss_mb for usage in honest.usage().values()))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(sending.wait(), 0.05)
            assert sending.stdout is not None
            status = (await sending.stdout.read()).decode().strip()
            assert status == ("UNIMPLEMENTED" if compression == grpc.Compression.Gzip else "RESOURCE_EXHAUSTED")
            assert most - max(usage.rss_mb for usage in honest.before.values()) < 60
            await honest.updates(5)

    asyncio.run(story())
