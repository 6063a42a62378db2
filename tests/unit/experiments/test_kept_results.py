"""Kept results: rows of a sweep that may be killed at any moment, and tables that need nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiment_plans import Listener, small_plan

from async_hfl.core.errors import DataError, UserError
from async_hfl.experiments.comparison.comparison import compare
from async_hfl.experiments.plans.plan import Plan
from async_hfl.experiments.results.keeper import Keeper
from async_hfl.experiments.results.kept_run import KeptRun, keep
from async_hfl.experiments.results.rows_file import append_row, read_rows
from async_hfl.experiments.results.sources import FolderResults, KeptResults
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.process_workers import ProcessPool, share_of_cores
from async_hfl.experiments.sweeps.sweep import SweepResult, sweep
from async_hfl.experiments.tuning.tuned import Tuned
from async_hfl.journal.run_directory import RunDirectory


def kept(plan: Plan, out: Path, *, discard: bool = False) -> tuple[SweepResult, Path]:
    folder, rows = SweepFolder(out), out.parent / "rows.jsonl"
    keeper = Keeper(rows, folder, discard=discard)
    return sweep(plan.runs, folder, ProcessPool(out, 2), Listener(), keeper=keeper), rows


def rows_of(file: Path) -> list[KeptRun]:
    return list(read_rows([file]))


def test_every_run_has_a_row_as_soon_as_it_ends(tmp_path: Path) -> None:
    plan = small_plan()
    done, file = kept(plan, tmp_path / "sweep")
    assert done.complete
    rows = {row.digest: row for row in rows_of(file)}
    assert rows.keys() == {run.digest for run in plan.runs}
    run = plan.runs[0]
    row, summary = rows[run.digest], RunDirectory(done.folder.run(run.id)).read_summary()
    assert summary is not None
    assert (row.method, row.seed, row.group, row.target) == (run.method, run.seed, run.group, 2.0)
    assert (row.result.end.at, row.result.end.updates) == (summary["virtual_s"], summary["device_updates"])
    assert row.result.end.bytes_total == summary["bytes_total"]
    assert row.settings["task.devices"] == 8
    assert "cloud.mixing_weight" not in row.settings, "it has its default"
    assert row.result.left_out == len(summary["left_out"])


def test_the_tables_are_the_same_from_rows_and_from_run_directories(tmp_path: Path) -> None:
    plan = small_plan(set={"task": {"devices": 8, "target": 0.2}, "network": {"gateways": 2}, "cloud": {"epochs": 20}})
    done, file = kept(plan, tmp_path / "sweep")
    whole = compare(plan.runs, FolderResults(done.folder))
    again = compare(plan.runs, KeptResults(read_rows([file])))
    assert any(row.reached for row in whole[0].rows)

    def without_paths(panels: Any) -> list[dict[str, Any]]:
        return [{**row.as_json(), "runs": []} for panel in panels for row in panel.rows]

    assert without_paths(again) == without_paths(whole)


def test_kept_runs_are_not_made_again_though_their_directories_are_gone(tmp_path: Path) -> None:
    plan = small_plan()
    done, file = kept(plan, tmp_path / "sweep", discard=True)
    assert done.complete
    assert not list((tmp_path / "sweep" / "runs").iterdir())
    before = file.read_bytes()
    more, _ = kept(small_plan(seeds=3), tmp_path / "sweep", discard=True)
    assert (more.already_complete, more.done) == (4, 2)
    assert file.read_bytes().startswith(before)
    assert len(rows_of(file)) == 6


def test_complete_runs_without_a_row_get_one(tmp_path: Path) -> None:
    """A sweep was killed after a run had ended and before its row was written."""
    plan = small_plan()
    done, file = kept(plan, tmp_path / "sweep")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    assert len(rows_of(file)) == 2, "a line without an end does not count"
    again, _ = kept(plan, tmp_path / "sweep")
    assert (again.already_complete, again.done) == (4, 0)
    assert sorted(file.read_bytes().splitlines()) == sorted(line.rstrip() for line in lines)
    assert done.complete


def test_a_run_under_other_labels_gets_another_row_without_being_made(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier")
    _, file = kept(plan, tmp_path / "sweep", discard=True)
    other = Plan("other", tuple(replace(run, group="relays", role="ablation", base="x") for run in plan.runs))
    again, _ = kept(other, tmp_path / "sweep", discard=True)
    assert (again.already_complete, again.done) == (1, 0)
    first, second = rows_of(file)
    assert (second.group, second.role, second.base) == ("relays", "ablation", "x")
    assert second.result == first.result


def test_one_run_under_two_labels_is_made_once_and_has_two_rows(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier", case=[{}, {"label": "relays", "role": "equipped"}])
    assert len({run.id for run in plan.runs}) == 1
    done, file = kept(plan, tmp_path / "sweep", discard=True)
    assert (done.total, done.done, done.complete) == (1, 1, True)
    assert {(row.group, row.role) for row in rows_of(file)} == {("two-tier", "compared"), ("relays", "equipped")}
    before = file.read_bytes()
    again, _ = kept(plan, tmp_path / "sweep", discard=True)
    assert (again.already_complete, file.read_bytes()) == (1, before)


def test_a_run_that_gets_another_label_is_discarded_as_well(tmp_path: Path) -> None:
    first, file = kept(small_plan(seeds=1, methods="two-tier"), tmp_path / "sweep")
    (run,) = small_plan(seeds=1, methods="two-tier", label="relays").runs
    assert first.folder.state(run.id) == "done"
    kept(Plan("labelled", (run,)), tmp_path / "sweep", discard=True)
    assert first.folder.state(run.id) == "missing"
    assert [row.group for row in rows_of(file)] == ["two-tier", "relays"]


def test_a_tuned_result_has_a_row_of_its_own_even_if_the_packaged_settings_were_best(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier")
    _, file = kept(plan, tmp_path / "sweep", discard=True)
    tuned = Tuned(settings={"device.learning_rate": 0.01}, seeds=[91], digest="0", made="2026-11-19T10:00:00+00:00")
    kept(Plan("tuned", (replace(plan.runs[0], tuned=tuned),)), tmp_path / "sweep", discard=True)
    assert [row.tuned for row in rows_of(file)] == [None, tuned]


def test_damaged_rows_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"format": 9}\n')
    with pytest.raises(DataError, match=r"rows.jsonl, line 1: not a kept result"):
        rows_of(file)
    with pytest.raises(UserError, match="give a file that --rows wrote"):
        rows_of(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="there is no directory"):
        Keeper(tmp_path / "none" / "rows.jsonl", SweepFolder(tmp_path))


def test_results_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier")
    _, file = kept(plan, tmp_path / "sweep")
    results = KeptResults(read_rows([file]))
    longer = small_plan(seeds=1, methods="two-tier", set={"task": {"devices": 9}, "network": {"gateways": 2}})
    assert results.of(plan.runs[0]) is not None
    assert results.of(longer.runs[0]) is None
    with pytest.raises(UserError, match=r"none of the 1 runs of this table is in there.*null uniform tight"):
        results.check_any(longer.runs, [file])


def test_a_level_that_was_not_kept_makes_the_run_again(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier")
    _, file = kept(plan, tmp_path / "sweep", discard=True)
    wanted = replace(plan.runs[0], levels=(0.1, 2.0))
    assert KeptResults(read_rows([file])).row(wanted) is None
    with pytest.raises(UserError, match=r"level 0\.1: the kept results have 2"):
        rows_of(file)[0].result.at(0.1)


def test_the_digest_ignores_versions_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    before = small_plan().runs[0]
    monkeypatch.setattr("async_hfl.experiments.plans.planned_run.versions", lambda: {"numpy": "99"})
    after = small_plan().runs[0]
    assert after.id != before.id
    assert after.digest == before.digest
    assert small_plan(set={"cloud.epochs": 5}).runs[0].digest != before.digest


def test_appending_is_whole_lines(tmp_path: Path) -> None:
    plan = small_plan(seeds=1, methods="two-tier")
    done, file = kept(plan, tmp_path / "sweep")
    row = keep(plan.runs[0], RunDirectory(done.folder.run(plan.runs[0].id)))
    file.write_bytes(b"x" * 100_000)  # longer than one block, and no whole line
    append_row(file, row)
    assert rows_of(file) == [row]


def test_each_worker_has_cores_of_its_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    shares = [share_of_cores(number, len(cores)) for number in range(len(cores))]
    assert sorted(core for share in shares for core in share) == cores
    assert share_of_cores(0, 1) == set(cores)
    assert len(share_of_cores(2 * len(cores), 3 * len(cores))) == 1
