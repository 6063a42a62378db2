"""The page of the attacks, from rows of `attacks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import mean, stdev
from typing import Any

HEAD = """# Attacks

Each row is an attack on real processes by a device with one valid certificate, made by

    python benchmarks/attacks.py --rows build/attacks.jsonl --page docs/results/attacks.md

on {cores} cores with Python {python}, {dates}, while the machine had other work (load {load_low:.0f} to
{load_high:.0f}). Cloud, a gateway and five devices learn handwritten digits on the loopback; the attacker repeats its
attack as fast as it can, and rests for as long as it worked. In the rows with little bandwidth, the gateway's suffices
for one device at a time.

* *outcome*: what the gateway's log and journal say about the attacker; where they say nothing, what is expected.
* *model*: `unharmed` if the best of the last five accuracies is no more than 0.05 below that before.
* *others*: jobs of honest devices that were refused, dropped or recorded as lost, and honest devices set aside.
* *memory*: the most that the node that grew most has grown since before the attack. *disk*: its growth with the attack
  less its growth in as much time without it.
* *throughput*: updates of the honest devices, as a share of those without the attack, in turns of a second or two; with
  its 95 % interval. It is about the machine, too: five devices, gateway and attacker share its cores.

| attack | outcome | model | others | memory, MB | disk, MB | throughput, % |
|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[dict[str, Any]], attacks: int, note: str = "") -> str:
    """Return the page. `attacks`: the number of rows that there could be. `note`: about this measurement."""
    dates = sorted({row["date"] for row in rows})
    loads = [row["load"] for row in rows]
    head = HEAD.format(
        cores=rows[0]["cores"],
        python=rows[0]["python"],
        dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))),
        load_low=min(loads),
        load_high=max(loads),
    )
    missing = "" if len(rows) == attacks else f"\n{attacks - len(rows)} attacks were not measured.\n"
    return head + "\n".join(map(_line, rows)) + "\n" + missing + "\n" + _summary(rows) + (f"\n{note}\n" if note else "")


def _pooled(rows: Sequence[dict[str, Any]]) -> str:
    """Return the geometric mean of the shares, with its 95 % interval from the spread of the rows."""
    shares = [log(row["honest_share"]) for row in rows]
    error = 1.96 * stdev(shares) / sqrt(len(shares)) if len(shares) > 1 else float("inf")
    middle, low, high = (100 * exp(mean(shares) + off) for off in (0.0, -error, error))
    return f"{middle:.0f} % ({low:.0f} to {high:.0f})"


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    whole = sum(row["model_ok"] and row["attribution_ok"] for row in rows)
    enough = sum(row["honest_share"] >= 0.8 for row in rows)
    below = [row["name"] for row in rows if row["high"] < 0.8]
    surely = f"Surely below it: {'; '.join(below)}." if below else "None is surely below it: every interval reaches it."
    return (
        f"{whole} of {len(rows)} attacks leave the model and the others' jobs as they were. In {enough} of "
        f"{len(rows)}, the honest devices keep 80 % of their throughput or more. {surely} The mean of all rows is "
        f"{_pooled(rows)}. On a busy machine the interval of a single row is wide: measure again on a quiet one.\n"
    )


def _line(row: dict[str, Any]) -> str:
    cells = (
        row["name"],
        row["outcome"],
        "unharmed" if row["model_ok"] else "HARMED",
        "unharmed" if row["attribution_ok"] else "HARMED",
        f"{row['rss_mb']:+.0f}",
        f"{row['disk_mb']:+.1f}",
        f"{100 * row['honest_share']:.0f} ({100 * row['low']:.0f} to {100 * row['high']:.0f})",
    )
    return "| " + " | ".join(cells) + " |"
