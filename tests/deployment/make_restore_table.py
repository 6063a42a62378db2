"""Writes docs/results/restore.md from the rows of the tests: `python tests/deployment/make_restore_table.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from restore_rows import FOLDER

from async_hfl.assembly.deployments.chaos import ChaosResult, describe

PAGE = Path(__file__).parents[2] / "docs" / "results" / "restore.md"
ORDER = (
    "old_cloud",
    "old_gateway",
    "old_device",
    "flipped_payload",
    "flipped_event",
    "flipped_snapshot",
    "flipped_wal",
    "flipped_part",
)
HEAD = """# Restored copies and damaged disks

Each row is a test with real processes (cloud, gateways, devices, certificates, state on disk), made by `make restore`
on {cores} cores with Python {python}, {dates}. A node is killed, its state directory is replaced by a copy that was
made some uploads earlier, or bits of it are flipped, and the node is started again.

* *lost*: updates that a gateway had acknowledged, on any disk that is left, and that are in no upload that the cloud
  has decided on. *listed*: those of them that the cloud lists by name. Of the rest, devices that made them report
  them when they work again; those that an old cloud had already mixed are in the uploads that the journal states.
  *double*: counted twice anywhere. They are counted from the disks of all nodes.
* Updates that nobody's disk holds any more, because the disk went back in time, cannot be counted in this way.

| damage | noticed by | named | outcome | lost | listed | double |
|---|---|---|---|---|---|---|
"""
TAIL = """
A disk is read when a node starts, so damage to what is only history is noticed by `async-hfl replay` and `collect`. A
copy from which nothing has happened since is as good as the newest state, and is not noticed.
"""

CHAOS = """
## Faults at random

`async-hfl chaos` kills and stops processes, cuts links and fills disks at random, two faults at a time, on a cluster of
a cloud, two gateways and four devices. Afterwards it audits the disks of all nodes, and replays their logs:

"""


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name in ORDER:
        path = FOLDER / f"{name}.json"
        if path.is_file():
            rows.append(json.loads(path.read_text()))
    dates = sorted({row["date"] for row in rows})
    head = HEAD.format(
        cores=rows[0]["cores"], python=rows[0]["python"], dates=" to ".join(dict.fromkeys((dates[0], dates[-1])))
    )
    missing = [name for name in ORDER if not (FOLDER / f"{name}.json").is_file()]
    tail = f"\nNot measured here: {', '.join(missing)}.\n" if missing else ""
    chaos = FOLDER / "chaos.json"
    random = CHAOS + "\n".join(_random(json.loads(chaos.read_text()))) + "\n" if chaos.is_file() else ""
    PAGE.write_text(head + "\n".join(map(_line, rows)) + "\n" + tail + TAIL + random)


def _random(result: dict[str, Any]) -> list[str]:
    del result["passed"]  # it follows from the rest
    return [f"    {line}" for line in describe(ChaosResult(**result))]


def _line(row: dict[str, Any]) -> str:
    outcome = row["outcome"] + (f"; {row['note']}" if row["note"] else "")
    counts = f"{row['lost']} | {row['listed']} | {row['doubled']}"
    return f"| {row['damage']} | {row['noticed_by']} | {row['named']} | {outcome} | {counts} |"


if __name__ == "__main__":
    main()
