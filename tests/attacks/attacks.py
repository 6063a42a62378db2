"""The attacks by one device with a valid certificate, with their names; most send messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import below_messages as below
import grpc
import numpy as np
from attack import Act, Attack, SetAside, model, own_job, update
from attacker import Attacker
from harness import Federation

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import frozen

GIB = 2**30


def answers(**changes: Any) -> Act:
    """Answer a job of its own with an update in which something is wrong."""

    async def act(honest: Federation, evil: Attacker) -> None:
        train = await own_job(honest, evil)
        weights = np.asarray(train.weights).copy()
        facts = dict(changes)
        if (huge := facts.pop("huge", None)) is not None:
            weights[0] += huge
        if (scaled := facts.pop("norm", None)) is not None:
            weights += np.float32(scaled / np.sqrt(weights.size))
        if (extra := facts.pop("longer", None)) is not None:
            weights = np.zeros(weights.size + extra, np.float32)
        if (length := facts.pop("gradient_length", None)) is not None:
            facts["gradient"] = frozen(np.ones(weights.size if length == 0 else length, np.float32))
        evil.send(update(train.job, frozen(weights), warmup=train.warmup, **facts))

    return act


def guesses(message: Callable[[Attacker, JobId], m.Message]) -> Act:
    """Send messages about the jobs that others may have."""

    async def act(honest: Federation, evil: Attacker) -> None:
        train = evil.got(m.Train)[-1] if evil.got(m.Train) else await own_job(honest, evil)
        for number in range(train.job.number + 1, train.job.number + 41):
            evil.send(message(evil, JobId(train.job.gateway, train.job.incarnation, number)))

    return act


async def drops(honest: Federation, evil: Attacker) -> None:
    train = await own_job(honest, evil)
    evil.send(m.JobDropped(train.job, "device_lost", 2**62))


async def silence(honest: Federation, evil: Attacker) -> None:
    evil.send(m.Alive())


def floods(message: Callable[[Attacker], m.Message], count: int = 300) -> Act:
    async def act(honest: Federation, evil: Attacker) -> None:
        for _ in range(count):
            if not evil.connected:
                raise SetAside
            evil.send(message(evil))
        await asyncio.sleep(0)

    return act


async def invented_lists(honest: Federation, evil: Attacker) -> None:
    """Updates of other gateways and of incarnations that never were, as many as a list may have."""
    for _ in range(5):
        if not evil.connected:
            raise SetAside
        evil.invented += m.MOST_UNSETTLED
        jobs = (JobId(1, evil.invented % 7 + 2, evil.invented + number) for number in range(m.MOST_UNSETTLED))
        evil.send(m.Unsettled(None, tuple(jobs)))
    await asyncio.sleep(0)


async def long_list(honest: Federation, evil: Attacker) -> None:
    if not evil.connected:
        raise SetAside
    evil.send(m.Unsettled(None, tuple(JobId(1, 1, number) for number in range(200_000))))


async def wrong_kinds(honest: Federation, evil: Attacker) -> None:
    for message in (
        m.Hello(2),
        m.Upload(UploadId(0, 1, 1), model(evil), 1, 1, 1, False, 1, ()),
        m.Finish(1),
        m.Fenced(1),
        m.Refused("stop"),
        m.LeasesRevoked(1, ()),
    ):
        evil.send(message)


async def other_incarnations(honest: Federation, evil: Attacker) -> None:
    for number in range(20):
        evil.send(m.Alive(), incarnation=1000 + number)


async def gaps(honest: Federation, evil: Attacker) -> None:
    for _ in range(200):
        evil.number += 2
        evil.send(m.Alive(), number=evil.number)
    await asyncio.sleep(0)


NAN = float("nan")
ATTACKS = (
    Attack("updates of guessed jobs", guesses(lambda evil, job: update(job, model(evil))), "refused, set aside"),
    Attack(
        "guessed jobs are dropped", guesses(lambda _, job: m.JobDropped(job, "device_lost", 1)), "refused, set aside"
    ),
    Attack("packets of other incarnations", other_incarnations, "refused, set aside"),
    Attack("an update of norm 1e6", answers(norm=1e6), "refused, set aside"),
    Attack("one weight of 3.4e38", answers(huge=3.4e38), "refused, set aside"),
    Attack("weights of NaN", answers(huge=NAN), "refused, set aside"),
    Attack("a loss of 1e300", answers(loss=1e300), "refused, set aside"),
    Attack("2^63 - 1 samples", answers(samples=2**63 - 1), "refused"),
    Attack("1e10 samples", answers(samples=10**10), "refused"),
    Attack("a download of infinite duration", answers(download_s=float("inf")), "refused"),
    Attack("a model that is too long", answers(longer=1), "refused"),
    Attack("a model of 8 MB, where others have 8 kB", answers(longer=2_000_000), "refused", most_sent=2**20),
    Attack("a gradient of the wrong length", answers(gradient_length=17), "refused"),
    Attack("a projected gradient, where none are", answers(gradient_length=4, compressed=True), "refused"),
    Attack("lists of invented updates", invented_lists, "refused, set aside"),
    Attack("a list of 200,000 updates", long_list, "refused", most_sent=2**20),
    Attack("messages of a cloud and of a gateway", wrong_kinds, "refused, set aside"),
    Attack("jobs are accepted and never answered", silence, "its bandwidth is freed"),
    Attack("every job is dropped", drops, "set aside"),
    Attack("a flood of signs of life", floods(lambda _: m.Alive()), "slowed down"),
    Attack("a flood of evaluations", floods(lambda _: m.EvaluateResult(1, 1e308, 0.0)), "slowed down"),
    Attack("receipts for nothing", below.receipts, "slowed down"),
    Attack("packets of another run", below.foreign_run, "ignored"),
    Attack("packet numbers with gaps", gaps, "bounded"),
    Attack("nothing is acknowledged", silence, "its bandwidth is freed", acknowledges=False),
    Attack("updates, and nothing is acknowledged", answers(), "set aside", acknowledges=False),
    Attack("offers of 1 GiB", below.offers(GIB, 20), "refused, set aside"),
    Attack("offers of which nothing comes", below.offers(70_000, 50), "bounded"),
    Attack("transfers that break off", below.pushes(70_000, 60_000, right=False), "bounded"),
    Attack("garbage of the right digest", below.parallel_pushes, "refused, set aside"),
    Attack("a transfer of 5 bytes a second", below.drip, "its bandwidth is freed"),
    Attack("garbage in a session", below.garbage, "refused, set aside"),
    Attack("transfers that break off after a byte", below.broken_bits, "bounded"),
    Attack("a flood of heartbeats", below.heartbeats, "slowed down"),
    Attack("joining under another name", below.impersonation, "refused", own_devices=False),
    Attack("joining with impossible numbers", below.impossible_joins, "refused", own_devices=False),
    Attack("joining over and over", below.reconnects, "served", own_devices=False),
    Attack("requests to join, with invented incarnations", below.requests_to_join, "refused", own_devices=False),
    Attack("100 probes of 2 MB at a time", below.probes, "32 at a time", own_devices=False),
    Attack("40 sessions of one certificate", below.many_sessions, "8 are served", own_devices=False),
    Attack("a message of 32 MB", below.huge_calls(grpc.Compression.NoCompression), "refused", own_devices=False),
    Attack("a message of 32 MB as 32 kB", below.huge_calls(grpc.Compression.Gzip), "refused", own_devices=False),
    Attack("400 idle connections", below.idle_connections, "closed", own_devices=False),
    Attack("malformed HTTP/2 in TLS", below.malformed_frames, "closed", own_devices=False),
    Attack("methods with names that are not UTF-8", below.odd_methods, "refused", own_devices=False),
    Attack("random bytes at the port", below.raw_bytes, "closed", own_devices=False),
)
BY_NAME = {attack.name: attack for attack in ATTACKS}
