"""One number of device updates on every page, table, progress line, summary and command of a run."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import Call

from async_hfl import api
from async_hfl.core.protocol.records import DEVICE_UPDATE
from async_hfl.experiments.comparison.outcome import read_outcome
from async_hfl.reports.data.curves import read_curve
from async_hfl.reports.data.group_data import read_run
from async_hfl.reports.tables.comparison import compare
from async_hfl.simulation.recorded_run import Progress

SETTINGS = [
    *("task.devices=20", "network.gateways=3", "cloud.epochs=12", "gateway.epochs=5", "gateway.max_staleness=4"),
    "task.target=0.9",
]


@dataclass(frozen=True)
class Counted:
    run: api.Run
    progress: tuple[Progress, ...]
    ends: Counter[str]
    at_epochs: tuple[int, ...]
    """Jobs that had been aggregated at each evaluation, counted from the journal."""


@pytest.fixture(scope="module", params=["async-hfl", "two-tier"])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    progress: list[Progress] = []
    made = api.run(
        task="null",
        network="uniform",
        method=request.param,
        seed=2,
        overrides=SETTINGS if request.param == "async-hfl" else SETTINGS[:3],
        out=tmp_path_factory.mktemp(request.param) / "run",
        on_epoch=progress.append,
    )
    ends: Counter[str] = Counter()
    at_epochs = []
    for kind, fields in made.events("job", "epoch"):
        if kind == "job":
            ends[fields["reason"]] += 1
        else:
            at_epochs.append(ends[DEVICE_UPDATE])
    return Counted(made, tuple(progress), ends, tuple(at_epochs))


def test_the_run_would_tell_the_definitions_apart(counted: Counted) -> None:
    """Otherwise the comparisons below would hold for any of them."""
    in_model = [fields["updates"] for _, fields in counted.run.events("epoch")][-1]
    sent = sum(fields["message"] == "Update" for _, fields in counted.run.events("sent"))
    assert counted.ends[DEVICE_UPDATE] < sum(counted.ends.values())
    if counted.run.manifest["method"] == "async-hfl":  # where gateways relay, every update goes straight into the model
        assert in_model < counted.ends[DEVICE_UPDATE] < sent
        assert counted.ends["warmup"] == 20


def test_the_totals_of_a_run(counted: Counted, call: Call) -> None:
    run, wanted = counted.run, counted.ends[DEVICE_UPDATE]
    assert wanted > 0
    assert run.summary["device_updates"] == run.summary["job_ends"]["aggregated"] == wanted
    assert run.summary["job_ends"] == dict(sorted(counted.ends.items()))
    assert call("show", str(run.path), "--json").json["device_updates"] == wanted
    shown = call("show", str(run.path)).out
    assert f"{wanted:,} device updates in " in shown
    for end, count in counted.ends.items():
        if end != DEVICE_UPDATE:
            assert f"{count:,} {end.replace('_', ' ')}" in " ".join(shown.split())
    assert read_outcome(run.directory).result.end.updates == wanted
    [row] = compare([run.directory], "two-tier")
    assert row.device_updates == wanted
    assert read_run(run.path).participation.sum() == wanted
    done = call("export", str(run.path), "--out", "tables")
    assert done.code == 0
    with Path("tables/jobs.csv").open() as file:
        assert sum(row["reason"] == DEVICE_UPDATE for row in csv.DictReader(file)) == wanted


def test_the_counts_at_every_evaluation(counted: Counted, call: Call) -> None:
    run, wanted = counted.run, list(counted.at_epochs)
    assert [row["updates"] for row in run.epochs] == wanted
    assert [progress.updates for progress in counted.progress] == wanted
    assert read_curve(run.directory, run.manifest, run.summary).updates.tolist() == wanted
    call("export", str(run.path), "--out", "tables")
    with Path("tables/epochs.csv").open() as file:
        assert [int(row["updates"]) for row in csv.DictReader(file)] == wanted


def page_data(page: Path) -> dict[str, Any]:
    [text] = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_page_of_a_run(counted: Counted, call: Call) -> None:
    assert call("report", str(counted.run.path), "--out", "page.html").code == 0
    data, wanted = page_data(Path("page.html")), counted.ends[DEVICE_UPDATE]
    [card] = [card for card in data["cards"] if card[0] == "device updates"]
    assert card[1].replace(",", "") == str(wanted)
    assert sum(row["updates"] for row in data["devices"]["rows"]) == wanted
    assert data["curve"]["updates"][-1] == counted.at_epochs[-1]


def test_a_resumed_run_counts_on(tmp_path: Path) -> None:
    seen: list[int] = []

    def pause() -> bool:
        seen.append(0)
        return len(seen) == 5

    whole = api.run(task="null", network="uniform", seed=2, overrides=SETTINGS, out=tmp_path / "whole")
    api.run(task="null", network="uniform", seed=2, overrides=SETTINGS, out=tmp_path / "cut", pause=pause)
    again = api.resume(tmp_path / "cut")
    assert again.summary["device_updates"] == whole.summary["device_updates"]
    assert again.epochs == whole.epochs
