"""`async-hfl chaos`: after faults on a cluster the audit finds nothing; what is made wrong on purpose, it finds."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from async_hfl.assembly.deployments.update_audit import audit
from async_hfl.assembly.runs.replay import replay
from async_hfl.deployment.cluster import small_disks
from async_hfl.deployment.store.schema import Damaged

pytestmark = pytest.mark.long
HANG_GUARD_S = 600.0


def states(run: Path) -> tuple[Path, list[Path], list[Path]]:
    nodes = run / "nodes"
    return nodes / "cloud", sorted(nodes.glob("gateway-?")), sorted(nodes.glob("device-?"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    run = tmp_path_factory.mktemp("chaos") / "run"
    command = [sys.executable, "-m", "async_hfl.cli", "chaos", "--minutes", "0.4", "--out", str(run), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    return run, json.loads(line)


def test_nothing_is_lost_or_doubled_and_the_replay_has_no_differences(finished: tuple[Path, dict[str, Any]]) -> None:
    _, result = finished
    assert result["passed"]
    assert (result["lost"], result["doubled"], result["differences"], result["unexpected"]) == (0, 0, 0, [])
    assert sum(result["faults"].values()) >= 3
    assert result["acknowledged"] > 0
    assert result["cloud_epochs"] >= 4
    assert result["replayed_events"] > 100
    assert bool(result["without"]) == bool(small_disks.unavailable())


def test_the_audit_notices_what_is_missing_or_twice(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Records are removed and repeated in a copy of the stores, as by a node that forgets or counts twice."""
    run = tmp_path / "run"
    shutil.copytree(finished[0], run)
    cloud, gateways, devices = states(run)
    before = audit(cloud, gateways, devices)
    assert before.unaccounted == []
    assert before.doubled == set()
    with sqlite3.connect(cloud / "node.db") as database:
        rows = database.execute("SELECT number, line, crc FROM journal ORDER BY number").fetchall()
        uploads = [row for row in rows if msgspec.json.decode(row[1])[0] == "upload"]
        last = rows[-1][0]
        database.execute("INSERT INTO journal (number, line, crc) VALUES (?, ?, ?)", (last + 1, *uploads[0][1:]))
        database.execute("DELETE FROM journal WHERE number = ?", (uploads[-1][0],))
    database.close()
    found = audit(cloud, gateways, devices)
    assert found.doubled
    assert found.unaccounted


def test_the_replay_refuses_a_store_with_flipped_bits(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    state = tmp_path / "cloud"
    shutil.copytree(finished[0] / "nodes" / "cloud", state)
    with sqlite3.connect(state / "node.db") as database:
        ((body,),) = database.execute("SELECT event FROM log WHERE number = 5").fetchall()
        flipped = body[:-1] + bytes([body[-1] ^ 1])
        database.execute("UPDATE log SET event = ? WHERE number = 5", (flipped,))
    database.close()
    with pytest.raises(Damaged, match="event 5"):
        replay(state)
