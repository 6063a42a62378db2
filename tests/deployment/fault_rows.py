"""Rows of the fault table: written by the tests, read by make_fault_table.py."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from async_hfl.assembly.deployments.update_audit import Audit

FOLDER = Path(os.environ.get("ASYNC_HFL_FAULT_ROWS", Path(__file__).parents[2] / "build" / "faults"))


@dataclass(frozen=True)
class Row:
    fault: str
    noticed_s: float | None
    """Seconds until the fault was detected; None if there is nothing to detect."""
    noticed_by: str
    recovered_s: float | None
    recovered_when: str
    acknowledged: int
    lost: int
    double_counted: int
    note: str = ""


def write_row(
    name: str,
    fault: str,
    found: Audit,
    noticed: tuple[float | None, str],
    recovered: tuple[float | None, str],
    note: str = "",
) -> None:
    """Write a row, after the assertions: only a test that passes writes one."""
    row = Row(fault, *noticed, *recovered, len(found.acknowledged), len(found.lost), len(found.doubled), note)
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "python": platform.python_version()}
    (FOLDER / f"{name}.json").write_text(json.dumps({**asdict(row), **made}, indent=1) + "\n")
