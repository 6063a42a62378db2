"""Robust and private aggregation in a deployment: the nodes replay to the bit, and the summary has epsilon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.protocol.events import Started
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.run_directory import RunDirectory

HANG_GUARD_S = 600.0
"""Only ends tests that hang."""
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
SMALL = ("--gateways", "2", "--devices", "4", "--devices-per-process", "2", "--task", "digits", "--seed", "3")
SETTINGS = ("task.classes_per_device=3", "cloud.epochs=8")


def answer(*arguments: str) -> Any:
    done = subprocess.run([PROGRAM, *arguments, "--json"], capture_output=True, text=True, timeout=HANG_GUARD_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def cluster(run: Path, *overrides: str) -> RunDirectory:
    settings = [part for override in (*SETTINGS, *overrides) for part in ("--set", override)]
    answer("cluster", *SMALL, *settings, "--out", str(run))
    return RunDirectory.open(run)


def secret_of(state: Path) -> int:
    with StoredNode(state) as stored:
        events = (from_plain(stored.decode_without_arrays(logged.body)) for logged in stored.events())
        return next(event.secret for event in events if isinstance(event, Started))


@pytest.mark.long
@pytest.mark.parametrize("rule", ["median", "clip"])
def test_a_robust_cluster_replays_without_differences(rule: str, tmp_path: Path) -> None:
    cluster(tmp_path / "run", f"gateway.robust={rule}")
    found = answer("replay", str(tmp_path / "run"))
    assert (found["nodes"], found["differences"]) == (7, 0)


@pytest.mark.long
def test_a_private_cluster_replays_without_differences_and_reports_epsilon(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    run = cluster(tmp_path / "run", "privacy.clip=0.5", "privacy.noise=0.5")
    found = answer("replay", str(run.path))
    assert (found["nodes"], found["differences"]) == (7, 0)
    summary = run.read_summary()
    assert summary is not None
    spent = summary["privacy"]
    assert 0 < spent["participations"] <= summary["device_updates"]
    assert spent["epsilon"] > 0
    # Every gateway has a secret of its own.
    first, second = (secret_of(run.path / "nodes" / name) for name in ("gateway-1", "gateway-2"))
    assert 0 not in (first, second)
    assert first != second
