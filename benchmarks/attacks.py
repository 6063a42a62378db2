"""Attacks on a local federation, each by a device with a valid certificate: one row for each, with what it cost.

    python benchmarks/attacks.py --rows build/attacks.jsonl [--only "offers of 1 GiB"] [--page docs/results/attacks.md]

Cloud, a gateway and five devices learn handwritten digits as processes of this machine; everything stays on the
loopback. Each attack is repeated again and again by a device of its own, on a core of its own (see
`tests/attacks/measuring.py`). Silent devices are also tried at a gateway whose bandwidth suffices for one device at a
time. The attacks are those of `tests/attacks/attacks.py`.

A row is written as soon as it is measured; rows that the file has already are not measured again. `--part 2/4` measures
the second quarter of the rows on the second quarter of the cores, so that four of these commands can run side by side
with one file of rows. `--page` writes the page from the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "attacks"))

import msgspec
from attack import Attack
from attacker import EVIL
from harness import federation
from measuring import DIGITS, LIMITED, Row, tried

from attack_page import page
from attacks import ATTACKS, BY_NAME

SILENT = ("jobs are accepted and never answered", "nothing is acknowledged", "a transfer of 5 bytes a second")
LITTLE = ", little bandwidth"
CASES = [(attack, "") for attack in ATTACKS] + [(BY_NAME[name], LITTLE) for name in SILENT]
FEWEST_CORES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file of the rows, one line of JSON each")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of a turn")
    parser.add_argument("--only", action="append", choices=sorted(BY_NAME), help="carry out this attack; repeatable")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="measure part K of N on part K of N of the cores")
    parser.add_argument("--page", type=Path, help="also write the page")
    parser.add_argument("--note", default="", help="a sentence about this measurement, for the end of the page")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.part.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--part {options.part}: write K/N with K from 1 to N")
    all_cores = sorted(os.sched_getaffinity(0))
    cores = all_cores[(part - 1) * len(all_cores) // parts : part * len(all_cores) // parts]
    if len(cores) < FEWEST_CORES:
        parser.error(f"{len(all_cores)} cores for {parts} parts: each needs one for the nodes and one for the attacker")
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    known = {row["name"] for row in _rows(options.rows)}
    wanted = [case for case in CASES if not options.only or case[0].name in options.only]
    missing = [(attack, note) for attack, note in wanted[part - 1 :: parts] if attack.name + note not in known]
    asyncio.run(_measure(missing, options.rows, options.seconds, cores))
    if options.page is not None:
        rows = {row["name"]: row for row in _rows(options.rows)}
        names = [attack.name + note for attack, note in CASES]
        options.page.write_text(page([rows[name] for name in names if name in rows], len(names), options.note))


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [msgspec.json.decode(line) for line in lines]


async def _measure(cases: Sequence[tuple[Attack, str]], rows: Path, seconds: float, cores: Sequence[int]) -> None:
    plain = [attack for attack, note in cases if not note]
    silent = [attack for attack, note in cases if note]
    with tempfile.TemporaryDirectory(prefix="async-hfl-attacks-") as folder:
        if plain:
            place = Path(folder) / "open"
            async with federation(place, devices=5, settings=DIGITS, task="digits", cores=cores) as honest:
                for number, attack in enumerate(plain):
                    _keep(rows, await tried(honest, attack, f"{EVIL}{number}", seconds))
        if silent:
            place = Path(folder) / "limited"
            async with federation(place, devices=5, settings=LIMITED, task="digits", cores=cores) as honest:
                for number, attack in enumerate(silent):
                    name = f"{EVIL}{number}"
                    _keep(rows, await tried(honest, attack, name, 4 * seconds, LITTLE, compute_s=0.2))


def _keep(path: Path, row: Row) -> None:
    line = msgspec.json.encode(asdict(row)).decode()
    with path.open("a") as file:
        file.write(f"{line}\n")
    print(
        f"{row.name}: {row.honest_share:.2f} ({row.low:.2f} to {row.high:.2f}), {row.pairs} pairs of turns",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
