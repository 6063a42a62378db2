"""Writes docs/results/faults.md from the rows of the tests: `python tests/deployment/make_fault_table.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fault_rows import FOLDER

PAGE = Path(__file__).parents[2] / "docs" / "results" / "faults.md"
ORDER = (
    "device_killed",
    "device_black_holed",
    "link_160_kbit",
    "packet_loss",
    "gateway_killed",
    "gateway_back_late",
    "gateway_back_after_the_end",
    "gateway_gone",
    "gateway_without_disk",
    "cloud_killed_warming_up",
    "cloud_killed_aggregating",
    "cloud_killed_associating",
    "two_killed",
    "disk_full",
    "clock_set_back",
    "repeats",
    "old_run",
    "flapping",
)
HEAD = """# Faults

Each row is a test with real processes (cloud, 2 gateways, one process per device, certificates, state on disk), made by
`make faults` on {cores} cores with Python {python}, {dates}. Links between devices and gateways are proxies of
150 kB/s in each direction unless the row says otherwise; models have 200 kB, so a transfer takes over a second. The
figures are upper bounds: the machine may have had other work.

* *noticed*: from the fault to the first record by a node that has to act on it.
* *recovered*: from the fault to the event in the column *when*. Both are read from the nodes' disks every 30 ms and
  depend on settings: a silent peer is lost after 6 s, a gateway without a session after `cloud.gateway_patience`
  (10 s).
* *acknowledged*: updates that a gateway had on its disk before its receipt left. *lost*: those of them that are in no
  upload that the cloud has decided on, because their gateway is gone. (Updates that the end of the run overtook are
  late, not lost; their gateway lists them.) *double*: counted twice anywhere. All three are counted afterwards from the
  disks of all nodes (`src/async_hfl/assembly/deployments/update_audit.py`).

| fault | noticed after, by | recovered after | when | acknowledged | lost | double |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name in ORDER:
        path = FOLDER / f"{name}.json"
        if path.is_file():
            rows.append(json.loads(path.read_text()))
    lines = [_line(row) for row in rows]
    dates = sorted({row["date"] for row in rows})
    head = HEAD.format(
        cores=rows[0]["cores"], python=rows[0]["python"], dates=" to ".join(dict.fromkeys((dates[0], dates[-1])))
    )
    missing = [name for name in ORDER if not (FOLDER / f"{name}.json").is_file()]
    tail = f"\nNot measured here: {', '.join(missing)}.\n" if missing else ""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(head + "\n".join(lines) + "\n" + tail + LOST)


def _line(row: dict[str, Any]) -> str:
    noticed = row["noticed_by"] if row["noticed_s"] is None else f"{_seconds(row['noticed_s'])}, {row['noticed_by']}"
    recovered = "-" if row["recovered_s"] is None else _seconds(row["recovered_s"])
    when = row["recovered_when"] + (f"; {row['note']}" if row["note"] else "")
    counts = f"{row['acknowledged']} | {row['lost']} | {row['double_counted']}"
    return f"| {row['fault']} | {noticed} | {recovered} | {when} | {counts} |"


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


LOST = """
If every process comes back with its disk, however late, nothing is lost. A gateway that never comes back, or comes back
without its disk, loses what it had acknowledged since its last upload. The cloud lists those updates by name (records
of kind `lost`), and the tests compare the list with the lost gateway's disk.

The fault simulation (`async-hfl fuzz-faults`) draws these faults and many combinations of them from seeds and checks
all invariants after every event: [design](../design/nodes.md#the-fault-simulation).
"""

if __name__ == "__main__":
    main()
