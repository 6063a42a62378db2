"""The catalogue: every table and figure has a plan that composes, and is drawn from made-up runs with known ratios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.comparison import compare
from async_hfl.experiments.comparison.report import Report
from async_hfl.experiments.comparison.tables import brief_table, time_table
from async_hfl.experiments.paper import published
from async_hfl.experiments.paper.catalogue import CATALOGUE, find
from async_hfl.experiments.paper.entry import NETWORKS, PRESETS, PaperOptions
from async_hfl.experiments.paper.sensitivity import scaled_bandwidth
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.results.sources import FolderResults
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.reports.tables.table import Spread, Table

NAMES = [
    *("table3", "fig3", "table6", "fig7-left", "fig7-right", "fig8", "fig9", "fig10-left", "fig10-right"),
    *("fig11-left", "fig11-middle", "fig11-right", "overhead"),
]


def test_every_table_and_figure_is_listed() -> None:
    assert list(CATALOGUE) == NAMES
    with pytest.raises(UserError, match=r"did you mean table6\?"):
        find("table66")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_plan_composes(name: str, preset: str) -> None:
    """The small version on one network and the whole one on the other; an unknown setting would be an error."""
    for quick, network in zip((True, False), NETWORKS, strict=True):
        plan = CATALOGUE[name].plan(PaperOptions(quick=quick, preset=preset, network=network))
        assert plan.runs
        assert len({run.id for run in plan.runs}) == len(plan.runs)
        assert {run.preset for run in plan.runs} == {preset}
        if quick:
            assert {run.task for run in plan.runs} <= {"har", "digits"}


def test_table_6_is_the_whole_grid() -> None:
    runs = CATALOGUE["table6"].plan(PaperOptions()).runs
    assert {run.task for run in runs} == set(published.TASKS)
    assert {run.family for run in runs} == {"async-hfl", "async-hfl-plus", *published.BASELINES}
    assert len(runs) == 6 * 3 * 12  # ten methods, one of them with three periods
    assert {run.target for run in runs if run.task == "har"} == {0.95}


def test_scaled_bandwidth_keeps_the_unit_of_the_preset() -> None:
    assert scaled_bandwidth("mnist", PaperOptions(preset="paper"), 0.5) == "500000.0"
    assert scaled_bandwidth("mnist", PaperOptions(preset="authors"), 2.0) == "200000.0"
    assert scaled_bandwidth("har", PaperOptions(preset="tight"), 0.5) == '"25%"'


def made_up(folder: SweepFolder, run: PlannedRun, times: list[float], metrics: list[float], bound: float) -> None:
    """Write a run directory with these metrics at these times, and a hundred bytes per second."""
    path = folder.run(run.id)
    path.mkdir(parents=True)
    manifest: dict[str, Any] = {
        "format": 3,
        "task": run.task,
        "method": run.method,
        "seed": run.seed,
        "metric": {"name": "accuracy", "direction": "at_least"},
        "settings": {"task": {"target": run.target}, "warmup": {"charge": True}},
    }
    summary = {
        "virtual_s": times[-1],
        "bytes_total": 100 * times[-1],
        "bytes": {"gateway-cloud": {"up": {"model": int(40 * times[-1])}, "down": {"model": int(60 * times[-1])}}},
        "final_metric": metrics[-1],
        "device_updates": 10,
        "bandwidth_bound_share": bound,
        "warmup_s": 0.0,
        "warmup_bytes": 0,
        "warmup_models_uplink_bytes": 0,
        "wall_s": 1.0,
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / "summary.json").write_text(json.dumps(summary))
    lines = ["at,epoch,updates,metric,loss,target_reached,bytes_total,bytes_models_up"]
    for number, (at, metric) in enumerate(zip(times, metrics, strict=True), 1):
        lines.append(f"{at},{number},{number},{metric},0.1,0,{int(100 * at)},{int(40 * at)}")
    (path / "epochs.csv").write_text("\n".join(lines) + "\n")


UP = [0.5, 0.95, 0.95, 0.95]
"""Passes the target first at the second evaluation, and holds it at the fourth."""
LOW = [0.5, 0.6, 0.6, 0.6]


def runs_of(method: str, **more: Any) -> list[PlannedRun]:
    return [
        planned(
            task="digits", method=method, network="nycmesh-paper", preset="tight", seed=seed, panel="digits", **more
        )
        for seed in (1, 2)
    ]


def test_a_reference_that_changed_is_said(tmp_path: Path) -> None:
    """async-random never holds the target, so that nothing could be relative to it."""
    folder = SweepFolder(tmp_path)
    ours, random = runs_of("async-hfl"), runs_of("async-random")
    for run in ours:
        made_up(folder, run, [10.0, 20.0, 30.0, 40.0], UP, 0.5)
    for run in random:
        made_up(folder, run, [10.0, 20.0, 30.0, 400.0], LOW, 0.0)
    (panel,) = compare([*ours, *random], FolderResults(folder))
    assert (panel.reference, panel.usual_reference) == ("async-hfl", "async-random")
    said = f"Speed-ups are relative to async-hfl, because async-random never reached {panel.target:g}."
    assert said in time_table(panel).notes
    assert said in brief_table(panel).notes
    (asked,) = compare([*ours, *random], FolderResults(folder), "async-random")
    assert (asked.reference, asked.usual_reference) == ("async-random", "async-random")
    assert not any("because" in note for note in time_table(asked).notes)


def test_ratios_by_hand(tmp_path: Path) -> None:
    """async-hfl holds the target at 40 s with both seeds, random at 80 and 160 s, and the third method never."""
    folder = SweepFolder(tmp_path)
    ours, random, never = runs_of("async-hfl"), runs_of("async-random"), runs_of("async-st")
    for run in ours:
        made_up(folder, run, [10.0, 20.0, 30.0, 40.0], UP, 0.5)
    for run, scale in zip(random, (2, 4), strict=True):
        made_up(folder, run, [scale * at for at in (10.0, 20.0, 30.0, 40.0)], UP, 0.25)
    for run in never:
        made_up(folder, run, [10.0, 20.0, 30.0, 400.0], LOW, 0.0)
    (panel,) = compare([*ours, *random, *never], FolderResults(folder))
    assert panel.reference == "async-random"
    rows = {row.group: row for row in panel.rows}
    speed_up = rows["async-hfl"].speed_up
    assert speed_up is not None
    assert speed_up.value == pytest.approx(8**0.5)
    assert rows["async-hfl"].as_json()["time_to_target_s"] == {
        "mean": 40.0,
        "deviation": 0.0,
        "by_seed": {1: 40.0, 2: 40.0},
    }
    assert rows["async-hfl"].as_json()["first_crossing_s"]["mean"] == 20.0
    assert rows["async-random"].as_json()["bytes_to_target"]["by_seed"] == {1: 8000.0, 2: 16000.0}
    assert rows["async-random"].as_json()["models_uplink_bytes_to_target"]["mean"] == 4800.0
    lost = rows["async-st"]
    assert (lost.reached, lost.seeds) == (0, 2)
    assert lost.speed_up is not None
    assert lost.speed_up.bound == "<"
    assert lost.speed_up.value == pytest.approx((80 / 400 * 160 / 400) ** 0.5)
    assert lost.as_json()["time_to_target_s"] == {"mean": None, "deviation": None, "by_seed": {1: None, 2: None}}


def test_a_seed_that_never_reached_the_target_leaves_no_mean(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    ours, random = runs_of("async-hfl"), runs_of("async-random")
    for run, metrics in zip(ours, (UP, LOW), strict=True):
        made_up(folder, run, [10.0, 20.0, 30.0, 40.0], metrics, 0.5)
    for run in random:
        made_up(folder, run, [20.0, 40.0, 60.0, 80.0], UP, 0.5)
    (panel,) = compare([*ours, *random], FolderResults(folder))
    row = panel.row("async-hfl")
    assert row is not None
    assert row.as_json()["time_to_target_s"] == {"mean": None, "deviation": None, "by_seed": {1: 40.0, 2: None}}
    assert row.speed_up is not None
    # The second seed counts with its whole run, 40 s, which it would have exceeded: the ratio is at most 2.
    assert (row.speed_up.value, row.speed_up.bound, row.speed_up.pairs) == (pytest.approx(2.0), "<", 2)


def test_the_best_variant_represents_the_method(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    slow = runs_of("semi-async", overrides=["gateway.period=150"], variant="150 s", best=True)
    quick = runs_of("semi-async", overrides=["gateway.period=50"], variant="50 s", best=True)
    for run in slow:
        made_up(folder, run, [20.0, 40.0, 60.0, 80.0], UP, 0.0)
    for run in quick:
        made_up(folder, run, [10.0, 20.0, 30.0, 40.0], UP, 0.0)
    (panel,) = compare([*slow, *quick], FolderResults(folder))
    best = {row.group: row.is_best_variant for row in panel.rows}
    assert best == {"semi-async, 150 s": False, "semi-async, 50 s": True}


def drawn(name: str, folder: SweepFolder, asked: PaperOptions, scale: dict[str, float]) -> Report:
    """Draw an entry from made-up runs, in which a method takes `scale` times as long as Async-HFL."""
    plan = CATALOGUE[name].plan(asked)
    for run in plan.runs:
        factor = scale.get(run.family, 1.0)
        made_up(folder, run, [factor * at for at in (10.0, 20.0, 30.0, 40.0)], UP, 0.125)
    return CATALOGUE[name].draw(asked, plan, FolderResults(folder))


def column(table: Table, name: str) -> list[Any]:
    place = [one.name for one in table.columns].index(name)
    cells = [row[place] for row in table.rows]
    return [cell.value if isinstance(cell, Spread) else cell for cell in cells]


def test_table_6_shows_published_and_measured_values(tmp_path: Path) -> None:
    scale = {"async-hl": 1.5, "sync-random": 20.0, "async-hfl-plus": 0.5}
    asked = PaperOptions(quick=True, tasks=("har",), out=tmp_path)
    table = drawn("table6", SweepFolder(tmp_path), asked, scale).page.tables[0]
    assert column(table, "baseline") == list(published.BASELINES)
    assert column(table, "paper") == list(published.SPEED_UPS["har"])
    ours = dict(zip(column(table, "baseline"), column(table, "held"), strict=True))
    assert ours["async-hl"] == pytest.approx(1.5)
    assert ours["sync-random"] == pytest.approx(20.0)
    assert column(table, "first") == pytest.approx(column(table, "held"))
    assert dict(zip(column(table, "baseline"), column(table, "plus"), strict=True))["async-hl"] == pytest.approx(3.0)
    assert set(column(table, "bound")) == {0.125}
    assert "Selections of Async-HFL that the bandwidth limited: har 12.5 %." in table.notes


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fig8", "fig9", "overhead")])
def test_every_table_shows_the_share_of_selections_limited_by_bandwidth(name: str, tmp_path: Path) -> None:
    asked = PaperOptions(quick=True, out=tmp_path / "report", tasks=("digits",))
    table = drawn(name, SweepFolder(tmp_path), asked, {}).page.tables[0]
    assert set(column(table, "bound")) == {0.125}


def test_fig_10_right_takes_every_target_from_the_same_runs(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    asked = PaperOptions(quick=True, out=tmp_path)
    plan = CATALOGUE["fig10-right"].plan(asked)
    for run in plan.runs:
        late = 3.0 if run.method == "async-random" else 1.0
        made_up(folder, run, [10.0, 20.0, 30.0, 40.0, 50.0 * late], [0.81, 0.81, 0.81, 0.86, 0.99], 0.0)
    table = CATALOGUE["fig10-right"].draw(asked, plan, FolderResults(folder)).page.tables[0]
    ratios = {
        (target, over): value
        for target, over, value in zip(
            column(table, "target"), column(table, "over"), column(table, "held"), strict=True
        )
    }
    assert ratios[0.80, "async-random"] == pytest.approx(1.0)  # at 30 s, both
    assert ratios[0.85, "async-random"] == pytest.approx(3.0)  # (0.81 + 0.86 + 0.99) / 3 = 0.887: with the last


@pytest.mark.parametrize(("rounds", "epochs"), [(None, [30, 30, 3]), (10, [10, 10, 1]), (4, [4, 4, 1])])
def test_the_deployment_stops_after_its_rounds(rounds: int | None, epochs: list[int]) -> None:
    for factor in (None, 10.0):
        plan = find("fig8").plan(PaperOptions(tasks=("har",), seeds=(1,), rounds=rounds, time_factor=factor))
        said = [text for run in plan.runs for text in run.overrides if text.startswith("cloud.epochs=")]
        assert said == [f"cloud.epochs={number}" for number in epochs]
