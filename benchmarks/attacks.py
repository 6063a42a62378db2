"""Attacks on a local federation, each by a device with a valid certificate: one row for each, with what it cost.

    python benchmarks/attacks.py --rows build/attacks.jsonl [--only "offers of 1 GiB"] [--page docs/results/attacks.md]

Cloud, a gateway and five devices learn handwritten digits as processes of this machine; everything stays on the
loopback. Each attack is repeated again and again by a device of its own (see `tests/attacks/measuring.py`). Silent
devices are also tried at a gateway whose bandwidth suffices for one device at a time. The attacks are those of
`tests/attacks/attacks.py`.

A row is written as soon as it is measured; rows that the file has already are not measured again. `--page` writes the
page from the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "attacks"))

import msgspec
from attack import PLAIN, Attack
from attacker import EVIL
from harness import federation
from measuring import Row, tried

from attack_page import page
from attacks import ATTACKS, BY_NAME

DIGITS = (*PLAIN, "gateway.epochs=8", "task.target=1.0", "cloud.epochs_after_target=1000000")
LIMITED = (*PLAIN, "gateway.bandwidth=100000")
SILENT = ("jobs are accepted and never answered", "nothing is acknowledged", "a transfer of 5 bytes a second")
LITTLE = ", little bandwidth"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file of the rows, one line of JSON each")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of a turn")
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME), help="carry out this attack; repeatable")
    parser.add_argument("--page", type=Path, help="also write the page")
    parser.add_argument("--note", default="", help="a sentence about this measurement, for the end of the page")
    options = parser.parse_args()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    wanted = [attack for attack in ATTACKS if not options.only or attack.name in options.only]
    asyncio.run(_measure(wanted, options.rows, options.seconds))
    if options.page is not None:
        known = {row["name"]: row for row in _rows(options.rows)}
        names = [attack.name for attack in ATTACKS] + [name + LITTLE for name in SILENT]
        options.page.write_text(page([known[name] for name in names if name in known], len(names), options.note))


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [msgspec.json.decode(line) for line in lines]


async def _measure(attacks: list[Attack], rows: Path, seconds: float) -> None:
    """Measure the attacks that have no row yet."""
    known = {row["name"] for row in _rows(rows)}
    plain = [attack for attack in attacks if attack.name not in known]
    silent = [attack for attack in attacks if attack.name in SILENT and attack.name + LITTLE not in known]
    with tempfile.TemporaryDirectory(prefix="async-hfl-attacks-") as folder:
        if plain:
            async with federation(Path(folder) / "open", devices=5, settings=DIGITS, task="digits") as honest:
                for number, attack in enumerate(plain):
                    _keep(rows, await tried(honest, attack, f"{EVIL}{number}", seconds))
        if silent:
            place = Path(folder) / "limited"
            async with federation(place, devices=4, numbers=2000, settings=LIMITED) as honest:
                for number, attack in enumerate(silent):
                    name = f"{EVIL}{number}"
                    _keep(rows, await tried(honest, attack, name, 2 * seconds, LITTLE, compute_s=0.2))


def _keep(path: Path, row: Row) -> None:
    line = msgspec.json.encode(asdict(row)).decode()
    with path.open("a") as file:
        file.write(f"{line}\n")
    print(f"{row.name}: {row.honest_share:.2f} ({row.low:.2f} to {row.high:.2f}), {row.turns} turns", file=sys.stderr)


if __name__ == "__main__":
    main()
