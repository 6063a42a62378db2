"""The page of the attacks, from rows of `attacks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import mean, stdev
from typing import Any

HEAD = """# Attacks

Each row is an attack on real processes by a device with one valid certificate, made by

    python benchmarks/attacks.py --rows build/attacks.jsonl --page docs/results/attacks.md

with Python {python}, {dates}, at a load of {load}. Cloud, a gateway and five devices learn handwritten digits on
the loopback and share {cores} of the machine's cores. The attacker has a core of its own, repeats its attack as fast as
it can, and rests for as long as it worked. In the rows with little bandwidth, the gateway's suffices for one device at
a time.

* *outcome*: what the gateway's log and journal say about the attacker; where they say nothing, what is expected.
* *model*: `unharmed` if the best of the last five accuracies is no more than 0.05 below that before.
* *others*: jobs of honest devices that were refused, dropped or recorded as lost, and honest devices set aside.
* *memory*: the most that the node that grew most has grown since before the attack. *disk*: its growth in all turns
  with the attack less its growth in those without it.
* *throughput*: updates of the honest devices, as a share of those without the attack, with its 95 % interval: {pairs}
  pairs of turns of {seconds} s. Without attacks there are {alone} updates a second.
* *80 %*: `shown` if the whole interval is at least 80 %, `estimate` if only the share is, `open` if the share is below
  it and the interval reaches it, `BELOW` if the whole interval is below it.

| attack | outcome | model | others | memory, MB | disk, MB | throughput, % | 80 % |
|---|---|---|---|---|---|---|---|
"""
ENOUGH = 0.8


def page(rows: Sequence[dict[str, Any]], attacks: int, note: str = "") -> str:
    """Return the page. `attacks`: the number of rows that there could be. `note`: about this measurement."""
    head = HEAD.format(
        cores=_span(rows, "cores"),
        python=" and ".join(sorted({row["python"] for row in rows})),
        dates=" to ".join(dict.fromkeys((min(row["date"] for row in rows), max(row["date"] for row in rows)))),
        load=_span(rows, "load"),
        pairs=_span(rows, "pairs"),
        seconds=_span(rows, "seconds"),
        alone=_span(rows, "alone"),
    )
    missing = "" if len(rows) == attacks else f"\n{attacks - len(rows)} attacks were not measured.\n"
    return head + "\n".join(map(_line, rows)) + "\n" + missing + "\n" + _summary(rows) + (f"\n{note}\n" if note else "")


def _span(rows: Sequence[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows]
    return " to ".join(dict.fromkeys((f"{min(values):.0f}", f"{max(values):.0f}")))


def _enough(row: dict[str, Any]) -> str:
    """Return how well it is known that honest devices keep 80 % of their throughput."""
    if row["low"] >= ENOUGH:
        return "shown"
    if row["honest_share"] >= ENOUGH:
        return "estimate"
    return "open" if row["high"] >= ENOUGH else "BELOW"


def _pooled(rows: Sequence[dict[str, Any]]) -> str:
    """Return the geometric mean of the shares, with its 95 % interval from the spread of the rows."""
    shares = [log(row["honest_share"]) for row in rows]
    error = 1.96 * stdev(shares) / sqrt(len(shares)) if len(shares) > 1 else float("inf")
    middle, low, high = (100 * exp(mean(shares) + off) for off in (0.0, -error, error))
    return f"{middle:.0f} % ({low:.0f} to {high:.0f})"


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    whole = sum(row["model_ok"] and row["attribution_ok"] for row in rows)
    known = [_enough(row) for row in rows]
    surely = [row["name"] for row, how in zip(rows, known, strict=True) if how == "BELOW"]
    below = f"surely below it in {len(surely)}: {'; '.join(surely)}" if surely else "surely below it in none"
    return (
        f"{whole} of {len(rows)} attacks leave the model and the others' jobs as they were. The honest devices keep at "
        f"least 80 % of their throughput in {known.count('shown')} by the whole interval, and in "
        f"{known.count('estimate')} more by the estimate alone. In {known.count('open')} the estimate is lower and the "
        f"interval reaches 80 %; they are {below}. The mean of all rows is {_pooled(rows)}.\n"
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
        _enough(row),
    )
    return "| " + " | ".join(cells) + " |"
