"""Rows of the restore table: written by the tests, read by make_restore_table.py."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from async_hfl.assembly.deployments.update_audit import Audit

FOLDER = Path(os.environ.get("ASYNC_HFL_RESTORE_ROWS", Path(__file__).parents[2] / "build" / "restore"))


@dataclass(frozen=True)
class Row:
    damage: str
    noticed_by: str
    named: str
    """The words of the log, or the part of them that names the damage."""
    outcome: str
    lost: int
    """Acknowledged updates that are in no model and not late."""
    listed: int
    """Those among the lost that the cloud lists by name."""
    doubled: int
    note: str = ""


def write_row(name: str, damage: str, noticed_by: str, named: str, outcome: str, found: Audit, note: str = "") -> None:
    """Write a row, after the assertions: only a test that passes writes one."""
    counts = (len(found.lost), len(found.listed & found.lost), len(found.doubled))
    row = Row(damage, noticed_by, named, outcome, *counts, note)
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "python": platform.python_version()}
    (FOLDER / f"{name}.json").write_text(json.dumps({**asdict(row), **made}, indent=1) + "\n")
