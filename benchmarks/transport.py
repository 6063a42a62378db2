"""Throughput of model transfers: one server, and many clients that each upload and download.

    python benchmarks/transport.py --clients 50 --sizes 0.285,1.6,43 --json
    python benchmarks/transport.py --clients 50 --sizes 1.6 --tls
    python benchmarks/transport.py --clients 50 --sizes 1.6 --bare

The server is one process, as a gateway is; the clients are spread over a few processes, which share the machine with
it. A transfer lasts from the start of sending until its receiver has checked and decoded the whole model; the server
spools to disk. MB/s is the sum over both directions and all clients; memory is that of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import transport_bare
from async_hfl.core.identifiers import Address, JobId, gateway_address
from async_hfl.core.protocol.messages import Train, Update
from async_hfl.deployment.identity.authority import Authority
from async_hfl.deployment.identity.credentials import Certified, Credentials, Insecure
from async_hfl.deployment.transport.admission import Admission, Joining
from async_hfl.deployment.transport.limits import Limits
from async_hfl.deployment.transport.link import Link
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Packet

GATEWAY = gateway_address(0)
QUICK_LIMITS = Limits(silence_s=120.0, packets_per_s=1e9, packets_at_once=1e9)
"""The machine is overloaded on purpose, so timeouts are long."""


def weights(megabytes: float) -> Any:
    made = np.random.default_rng(1).normal(size=int(megabytes * 1e6 / 4)).astype(np.float32)
    made.flags.writeable = False
    return made


class Counting:
    """An inbox that counts uploads and answers each with a download."""

    def __init__(self) -> None:
        self.transport: Transport
        self.model: Any = None
        self.joined = 0
        self.uploads = 0

    def arrived(self, sender: Address, content: Content, transfer_s: float, spooled: Any = None) -> None:
        self.uploads += 1
        assert isinstance(content, Packet)
        message = Train(JobId(0, 1, content.number), self.model, 1, 1, 1)
        self.transport.send(sender, Packet(1, 1, content.number, message))

    def transfer_over(self, to: Address, number: int) -> None: ...

    def peer_joined(self, peer: Address) -> None:
        self.joined += 1

    def peer_lost(self, peer: Address, why: str) -> None: ...


async def serve(pipe: Connection, folder: Path, credentials: Credentials) -> None:
    inbox = Counting()
    inbox.transport = Transport(inbox, folder, limits=QUICK_LIMITS)
    numbers: dict[str, int] = {}

    async def admit(joining: Joining, probe_s: float) -> Admission:
        return Admission(1, GATEWAY, numbers.setdefault(joining.name, len(numbers)), 0.0, "{}", "")

    server = Server(inbox.transport, "127.0.0.1:0", admit, credentials)
    pipe.send(await server.start())
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        if order == "memory":
            pipe.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time()))
        elif order == "joined":
            pipe.send(inbox.joined)
        else:
            inbox.model = weights(order)
            pipe.send("ready")
    await server.close()


def server_process(pipe: Connection, folder: str, tls: str, bare: bool) -> None:
    logging.disable(logging.WARNING)
    credentials = Certified(Path(tls) / "g") if tls else Insecure()
    if bare:
        asyncio.run(transport_bare.serve(pipe, credentials))
    else:
        asyncio.run(serve(pipe, Path(folder), credentials))


class Timing:
    """The inbox of a client, which records the time of each transfer."""

    def __init__(self) -> None:
        self.up: asyncio.Event = asyncio.Event()
        self.down: asyncio.Event = asyncio.Event()
        self.here: asyncio.Event = asyncio.Event()

    def arrived(self, sender: Address, content: Content, transfer_s: float, spooled: Any = None) -> None:
        self.down.set()

    def transfer_over(self, to: Address, number: int) -> None:
        self.up.set()

    def peer_joined(self, peer: Address) -> None:
        self.here.set()

    def peer_lost(self, peer: Address, why: str) -> None: ...


async def dial(pipe: Connection, names: list[str], port: int, folder: Path, credentials: Credentials) -> None:
    clients = []
    for name in names:
        inbox = Timing()
        transport = Transport(inbox, folder / name, limits=QUICK_LIMITS)
        link = Link(
            transport,
            f"127.0.0.1:{port}",
            "gateway",
            credentials,
            joining=Joining("device", name, 1),
            admitted=lambda admission: None,
            refused=lambda refusal: pipe.send(f"refused: {refusal}"),
        )
        link.start()
        clients.append((inbox, transport, link))
    for inbox, _, _ in clients:
        await inbox.here.wait()
    pipe.send("ready")
    number = 0
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        megabytes, rounds = order
        model = weights(megabytes)

        async def one(
            inbox: Timing, transport: Transport, first: int, model: Any = model, rounds: int = rounds
        ) -> list[float]:
            took = []
            for extra in range(rounds):
                inbox.up.clear()
                inbox.down.clear()
                begun = time.monotonic()
                update = Update(JobId(0, 1, first + extra), model, 1, 1, 0.0, 0.0, None, 0.0, 0.0)
                transport.send(GATEWAY, Packet(1, 1, first + extra, update))
                await inbox.up.wait()
                await inbox.down.wait()
                took.append(time.monotonic() - begun)
            return took

        found = await asyncio.gather(*(one(inbox, transport, number + 1) for inbox, transport, _ in clients))
        number += rounds
        pipe.send([seconds for some in found for seconds in some])
    for _, _, link in clients:
        await link.close()


def client_process(pipe: Connection, names: list[str], port: int, folder: str, tls: str, bare: bool) -> None:
    logging.disable(logging.WARNING)
    credentials = Certified(Path(tls) / "d") if tls else Insecure()
    if bare:
        asyncio.run(transport_bare.dial(pipe, len(names), port, credentials))
    else:
        asyncio.run(dial(pipe, names, port, Path(folder), credentials))


def measure(options: argparse.Namespace, sizes: list[float]) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        names = [f"d{number}" for number in range(options.clients)]
        tls = ""
        if options.tls:
            tls = folder
            authority = Authority.create(Path(folder) / "ca", "bench")
            authority.bundle("gateway", ["g"], Path(folder) / "g")
            authority.bundle("device", names, Path(folder) / "d")
        for size in sizes:  # a fresh server for each size, to measure its memory
            ours, theirs = context.Pipe()
            server = context.Process(target=server_process, args=(theirs, f"{folder}/spool", tls, options.bare))
            server.start()
            port = ours.recv()
            groups = [names[start :: options.processes] for start in range(options.processes)]
            clients = []
            for number, group in enumerate(groups):
                mine, his = context.Pipe()
                arguments = (his, group, port, f"{folder}/clients{number}", tls, options.bare)
                process = context.Process(target=client_process, args=arguments)
                process.start()
                clients.append((mine, process))
            for mine, _ in clients:
                assert mine.recv() == "ready"
            ours.send(size)
            assert ours.recv() == "ready"
            ours.send("memory")
            memory_before, cpu_before = ours.recv()
            rounds = options.rounds or max(1, min(20, int(400 / (size * options.clients))))
            begun = time.monotonic()
            for mine, _ in clients:
                mine.send((size, rounds))
            took = [seconds for mine, _ in clients for seconds in mine.recv()]
            wall = time.monotonic() - begun
            ours.send("memory")
            memory, cpu = ours.recv()
            for mine, process in clients:
                mine.send(None)
                process.join()
            ours.send(None)
            server.join()
            moved = 2 * size * options.clients * rounds
            rows.append(
                {
                    "megabytes": size,
                    "clients": options.clients,
                    "rounds": rounds,
                    "tls": options.tls,
                    "bare": options.bare,
                    "MB_per_s": round(moved / wall, 1),
                    "p50_s": round(statistics.median(took), 3),
                    "p99_s": round(float(np.quantile(took, 0.99)), 3),
                    "server_memory_MB": round(memory),
                    "server_memory_before_MB": round(memory_before),
                    "server_cpu_s": round(cpu - cpu_before, 2),
                    "MB_per_server_cpu_s": round(moved / (cpu - cpu_before)),
                    "wall_s": round(wall, 2),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2, help="the number of processes that run the clients")
    parser.add_argument("--sizes", default="0.285,1.6,43", help="model sizes in MB")
    parser.add_argument("--rounds", type=int, default=0, help="uploads per client (default: about 800 MB in total)")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--bare", action="store_true", help="plain gRPC with chunks, as a baseline")
    parser.add_argument("--folder", help="the folder of the spools (default: the system's temporary folder)")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    measure(options, [float(size) for size in options.sizes.split(",")])


if __name__ == "__main__":
    main()
