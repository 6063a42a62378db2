"""The measurement of one attack: what it does to the model, to others, to memory and disk, and to throughput.

Turns with and without the attack come in pairs, and each pair in the other order than the one before, so that a machine
that becomes slower or faster changes both alike. The attacker joins for its turn, attacks and leaves. Turns go on until
the share is known well enough, or time is up.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from dataclasses import dataclass
from datetime import date
from math import exp, log, sqrt

from attack import PLAIN, Attack, carry_out
from attacker import Attacker
from harness import AttackResult, Federation, Usage
from scipy.stats import t as student

DIGITS = (*PLAIN, "gateway.epochs=8", "task.target=1.0", "cloud.epochs_after_target=1000000")
LIMITED = (*DIGITS, "task.partition=iid", "gateway.bandwidth=500000")
"""Settings of a federation that learns digits for as long as it is asked to. The bandwidth of LIMITED suffices for one
device at a time; its devices have all classes, as they train one after the other."""
FEWEST_PAIRS, MOST_S = 8, 40.0
KNOWN_WELL = 0.1
"""Half the width of the 95 % interval of a share."""
JOIN_S, SETTLE_S = 1.0, 0.3


@dataclass(frozen=True)
class Row(AttackResult):
    """An attack with the precision of its figures, and the machine that they were measured on."""

    low: float
    high: float
    """95 % interval of the share."""
    alone: float
    """Updates of the honest devices a second in the turns without the attack."""
    pairs: int
    """Pairs of turns, with the attack and without it."""
    seconds: float
    """Duration of a turn."""
    load: float
    """Of the machine while it was measured: processes that want to run."""
    cores: int
    """Of the nodes."""
    python: str
    date: str
    harm: str = ""
    """Records of harm to others, if there are any."""


@dataclass(frozen=True)
class Turn:
    rate: float
    """Updates of the honest devices a second."""
    start: dict[str, Usage]
    end: dict[str, Usage]


async def tried(
    honest: Federation, attack: Attack, name: str, seconds: float, note: str = "", compute_s: float = 0.01
) -> Row:
    """Carry out one attack again and again."""
    evil = honest.outsider(name)
    evil.acknowledges = attack.acknowledges
    accuracy, earlier, before = _accuracy(honest), honest.harmed(), honest.usage()
    pairs: list[tuple[Turn, Turn]] = []
    load, began = 0.0, time.monotonic()
    while len(pairs) < FEWEST_PAIRS or (_half_width(_rates(pairs)) > KNOWN_WELL and time.monotonic() - began < MOST_S):
        if len(pairs) % 2 == 0:
            alone = await _alone(honest, seconds)
            attacked = await _attacked(honest, attack, evil, seconds, compute_s)
        else:
            attacked = await _attacked(honest, attack, evil, seconds, compute_s)
            alone = await _alone(honest, seconds)
        pairs.append((alone, attacked))
        load += os.getloadavg()[0]
    harm = [record for record in honest.harmed() if record not in earlier]
    rates = _rates(pairs)
    share, error = _share(rates), _quantile(rates) * _error(rates)
    return Row(
        attack.name + note,
        _outcome(honest, evil.name, attack) if honest.alive() else "a process ended",
        model_ok=_accuracy(honest) >= accuracy - 0.05,
        attribution_ok=not harm,
        rss_mb=max(one.end[node].rss_mb - before[node].rss_mb for _, one in pairs for node in before),
        disk_mb=max(sum(_disk(attacked, node) - _disk(alone, node) for alone, attacked in pairs) for node in before),
        honest_share=share,
        low=share * exp(-error),
        high=share * exp(error),
        alone=sum(rate for rate, _ in rates) / len(rates),
        pairs=len(pairs),
        seconds=seconds,
        load=load / len(pairs),
        cores=honest.cores(),
        python=platform.python_version(),
        date=date.today().isoformat(),
        harm="; ".join(map(str, harm[:3])),
    )


async def _alone(honest: Federation, seconds: float) -> Turn:
    start = honest.usage()
    return Turn(await honest.rate(seconds), start, honest.usage())


async def _attacked(honest: Federation, attack: Attack, evil: Attacker, seconds: float, compute_s: float) -> Turn:
    async with honest.dialling(evil, compute_s=compute_s):
        await _until_joined(evil)
        start = honest.usage()
        striking = asyncio.create_task(_strike(honest, attack, evil))
        turn = Turn(await honest.rate(seconds), start, honest.usage())
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)
    await asyncio.sleep(SETTLE_S)
    return turn


def _rates(pairs: list[tuple[Turn, Turn]]) -> list[tuple[float, float]]:
    return [(alone.rate, attacked.rate) for alone, attacked in pairs]


def _share(rates: list[tuple[float, float]]) -> float:
    alone, attacked = (sum(values) for values in zip(*rates, strict=True))
    return max(attacked, 1e-3) / max(alone, 1e-3)


def _error(rates: list[tuple[float, float]]) -> float:
    """Return the standard error of the logarithm of the share: the jackknife over the pairs of turns."""
    count = len(rates)
    left_out = [log(_share(rates[:place] + rates[place + 1 :])) for place in range(count)]
    mean = sum(left_out) / count
    return sqrt((count - 1) / count * sum((value - mean) ** 2 for value in left_out))


def _quantile(rates: list[tuple[float, float]]) -> float:
    """Return the factor from a standard error to half a 95 % interval."""
    return float(student.ppf(0.975, len(rates) - 1))


def _half_width(rates: list[tuple[float, float]]) -> float:
    return _share(rates) * _quantile(rates) * _error(rates)


def _disk(turn: Turn, node: str) -> float:
    return turn.end[node].disk_mb - turn.start[node].disk_mb


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
