"""Attacks on a local federation, each by a device with a valid certificate: one row for each, with what it cost.

    python benchmarks/attacks.py [--seconds 4] [--only "offers of 1 GiB"] [--json FILE]

Cloud, a gateway and five devices learn handwritten digits as processes of this machine; everything stays on the
loopback. Each attack is repeated for some seconds by a device of its own. Seconds with and without it take turns, as
the machine may have other work. Memory and disk are what the node that grew most has grown more with the attack than
without it. Throughput is the number of updates of honest devices, as a share of that without the attack. Silent
devices are also tried at a gateway whose bandwidth suffices for one device at a time. The attacks are those of
`tests/attacks/attacks.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "attacks"))

import numpy as np
from harness import EVIL, AttackResult, Federation, Usage, federation

from attacks import ATTACKS, BY_NAME, PLAIN, Attack, carry_out

DIGITS = (*PLAIN, "gateway.epochs=8", "task.target=1.0", "cloud.epochs_after_target=1000000")
LIMITED = (*PLAIN, "gateway.bandwidth=100000")
TURNS = 4
SILENT = ("jobs are accepted and never answered", "nothing is acknowledged", "a transfer of 5 bytes a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of an attack")
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME), help="carry out this attack; repeatable")
    parser.add_argument("--json", type=Path, help="also write the rows as JSON lines")
    options = parser.parse_args()
    chosen = [attack for attack in ATTACKS if not options.only or attack.name in options.only]
    rows = asyncio.run(_all(chosen, options.seconds))
    print("| attack | outcome | model | harm to others | memory, MB | disk, MB | honest throughput |")
    print("|---|---|---|---|---|---|---|")
    for result in rows:
        print(_row(result))
    if options.json is not None:
        options.json.write_text("".join(f"{result.line()}\n" for result in rows))


async def _all(attacks: list[Attack], seconds: float) -> list[AttackResult]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="async-hfl-attacks-") as folder:
        async with federation(Path(folder) / "open", devices=5, settings=DIGITS, task="digits") as honest:
            rows += [await _tried(honest, attack, number, seconds) for number, attack in enumerate(attacks)]
        silent = [attack for attack in attacks if attack.name in SILENT]
        if silent:
            place = Path(folder) / "limited"
            async with federation(place, devices=4, numbers=2000, settings=LIMITED) as honest:
                for number, attack in enumerate(silent):
                    note = ", little bandwidth"
                    rows.append(await _tried(honest, attack, number, 3 * seconds, note, compute_s=0.2))
    return rows


async def _tried(
    honest: Federation, attack: Attack, number: int, seconds: float, note: str = "", compute_s: float = 0.01
) -> AttackResult:
    """Carry out one attack again and again."""
    accuracy = _accuracy(honest)
    before, during = 0.0, 0.0
    grown = {name: np.zeros(2) for name in honest.usage()}
    harmed = len(honest.harmed())
    async with honest.attacker(f"{EVIL}{number}", compute_s=compute_s) as evil:
        assert evil.admission is not None
        evil.model_size = int(evil.admission.facts["model_size"])
        evil.acknowledges = attack.acknowledges
        now = asyncio.Event()
        striking = asyncio.create_task(_strike(honest, attack, evil, now))
        for _ in range(TURNS):
            start = honest.usage()
            before += await honest.rate(seconds / TURNS)
            middle = honest.usage()
            now.set()
            during += await honest.rate(seconds / TURNS)
            now.clear()
            for name, end in honest.usage().items():
                grown[name] += _growth(middle[name], end) - _growth(start[name], middle[name])
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)
    outcome = _outcome(honest, evil.name, attack) if honest.alive() else "a process ended"
    after = _accuracy(honest)
    result = AttackResult(
        attack.name + note,
        outcome,
        model_ok=after != after or after >= accuracy - 0.05,
        attribution_ok=len(honest.harmed()) == harmed,
        rss_mb=max(memory for memory, _ in grown.values()),
        disk_mb=max(disk for _, disk in grown.values()),
        honest_share=during / before if before else float("nan"),
    )
    print(_row(result), file=sys.stderr, flush=True)
    return result


def _growth(start: Usage, end: Usage) -> Any:
    return np.array([end.rss_mb - start.rss_mb, end.disk_mb - start.disk_mb])


async def _strike(honest: Federation, attack: Attack, evil: Any, now: asyncio.Event) -> None:
    while True:
        await now.wait()
        began = time.monotonic()
        carried_out = await carry_out(attack, honest, evil)
        took = time.monotonic() - began
        await asyncio.sleep(max(took, 0.02) if carried_out else 0.2)  # the attacker's own work must not be the cost


def _outcome(honest: Federation, name: str, attack: Attack) -> str:
    """Return what the gateway's log and journal say about the attacker."""
    number = honest.numbers().get(name)
    who = f"d{number}"
    records = [one for one in honest.records(honest.gateway, "lifecycle") if one["node"] == who]
    log = honest.cluster.nodes[honest.gateway].log.read_text(errors="replace").splitlines()
    about = [line for line in log if f" {who} " in line or f" {who}:" in line or f" {name} " in line]
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
    metrics: Iterable[float] = (one["metric"] for one in honest.records("cloud", "epoch")[-5:])
    return max(metrics, default=float("nan"))


def _row(result: AttackResult) -> str:
    share = f"{100 * result.honest_share:.0f} %"
    cells = (
        result.name,
        result.outcome,
        "unharmed" if result.model_ok else "HARMED",
        "none" if result.attribution_ok else "SOME",
        f"{result.rss_mb:+.0f}",
        f"{result.disk_mb:+.1f}",
        share,
    )
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
