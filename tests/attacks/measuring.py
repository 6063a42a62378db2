"""The measurement of one attack: what it does to the model, to others, to memory and disk, and to throughput.

Turns with and without the attack alternate, as the machine may have other work: the attacker joins, attacks and leaves,
then the honest devices have a turn alone. Turns go on until the share is known well enough.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from dataclasses import dataclass
from datetime import date
from math import exp, log, sqrt

from attack import Attack, carry_out
from attacker import Attacker
from harness import AttackResult, Federation, Usage

FEWEST_TURNS, MOST_TURNS = 5, 6
KNOWN_WELL = 0.08
"""Standard error of the logarithm of a share."""
JOIN_S, SETTLE_S = 2.0, 0.3


@dataclass(frozen=True)
class Row(AttackResult):
    """An attack with the precision of its figures, and the machine that they were measured on."""

    low: float
    high: float
    """95 % interval of the share."""
    turns: int
    load: float
    """Of the machine while it was measured: processes that want to run."""
    cores: int
    python: str
    date: str
    harm: str = ""
    """Records of harm to others, if there are any."""


async def tried(
    honest: Federation, attack: Attack, name: str, seconds: float, note: str = "", compute_s: float = 0.01
) -> Row:
    """Carry out one attack again and again."""
    evil = honest.outsider(name)
    evil.acknowledges = attack.acknowledges
    accuracy, harmed, began = _accuracy(honest), len(honest.harmed()), honest.usage()
    most = dict.fromkeys(began, 0.0)
    disk = dict.fromkeys(began, 0.0)
    pairs: list[tuple[float, float]] = []
    load = 0.0
    while len(pairs) < FEWEST_TURNS or (len(pairs) < MOST_TURNS and _error(pairs) > KNOWN_WELL):
        start = honest.usage()
        alone = await honest.rate(seconds)
        middle = honest.usage()
        async with honest.dialling(evil, compute_s=compute_s):
            await _until_joined(evil)
            striking = asyncio.create_task(_strike(honest, attack, evil))
            pairs.append((alone, await honest.rate(seconds)))
            end = honest.usage()
            striking.cancel()
            await asyncio.gather(striking, return_exceptions=True)
        await asyncio.sleep(SETTLE_S)
        for node in began:
            most[node] = max(most[node], end[node].rss_mb - began[node].rss_mb)
            disk[node] += _disk(middle, end, node) - _disk(start, middle, node)
        load += os.getloadavg()[0]
    harm = honest.harmed()[harmed:]
    share, error = _share(pairs), 1.96 * _error(pairs)
    after = _accuracy(honest)
    return Row(
        attack.name + note,
        _outcome(honest, evil.name, attack) if honest.alive() else "a process ended",
        model_ok=after != after or after >= accuracy - 0.05,
        attribution_ok=not harm,
        rss_mb=max(most.values()),
        disk_mb=max(disk.values()),
        honest_share=share,
        low=share * exp(-error),
        high=share * exp(error),
        turns=len(pairs),
        load=load / len(pairs),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        date=date.today().isoformat(),
        harm="; ".join(map(str, harm[:3])),
    )


def _share(pairs: list[tuple[float, float]]) -> float:
    before, during = (sum(values) for values in zip(*pairs, strict=True))
    return max(during, 1e-3) / max(before, 1e-3)


def _error(pairs: list[tuple[float, float]]) -> float:
    """Return the standard error of the logarithm of the share: the jackknife over the pairs of turns."""
    count = len(pairs)
    left_out = [log(_share(pairs[:place] + pairs[place + 1 :])) for place in range(count)]
    mean = sum(left_out) / count
    return sqrt((count - 1) / count * sum((value - mean) ** 2 for value in left_out))


def _disk(start: dict[str, Usage], end: dict[str, Usage], node: str) -> float:
    return end[node].disk_mb - start[node].disk_mb


async def _until_joined(evil: Attacker) -> None:
    """Wait until the attacker has joined. If it is set aside, it goes on asking."""
    end = time.monotonic() + JOIN_S
    while not evil.connected and time.monotonic() < end:
        await asyncio.sleep(0.02)


async def _strike(honest: Federation, attack: Attack, evil: Attacker) -> None:
    while True:
        began = time.monotonic()
        carried_out = evil.admission is not None and await carry_out(attack, honest, evil)
        took = time.monotonic() - began
        await asyncio.sleep(max(took, 0.02) if carried_out else 0.2)  # the attacker's own work must not be the cost


def _outcome(honest: Federation, name: str, attack: Attack) -> str:
    """Return what the gateway's log and journal say about the attacker."""
    number = honest.numbers().get(name)
    who = f"d{number}"
    records = [one for one in honest.records(honest.gateway, "lifecycle") if one["node"] == who]
    log_lines = honest.cluster.nodes[honest.gateway].log.read_text(errors="replace").splitlines()
    about = [line for line in log_lines if f" {who} " in line or f" {who}:" in line or f" {name} " in line]
    found = []
    refused = sum(one["what"] == "refused" for one in records) + sum("refused" in line for line in about)
    if refused:
        found.append("refused")
    if any("set aside" in one["detail"] for one in records):
        found.append("no jobs for a while")
    if any("is set aside" in line for line in about):
        found.append("session ended")
    return ", ".join(found) or attack.outcome


def _accuracy(honest: Federation) -> float:
    """Return the highest of the last metrics, which vary from epoch to epoch."""
    return max((one["metric"] for one in honest.records("cloud", "epoch")[-5:]), default=float("nan"))
