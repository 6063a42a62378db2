"""Measures of stability, against numbers worked out by hand, and their place in the summary of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from async_hfl import api
from async_hfl.core.topology import feasible_links
from async_hfl.simulation.accounting.stability import RECENT, class_floor, left_out, quickest_rounds


def test_the_floor_of_the_class_that_was_forgotten_most() -> None:
    evaluations = [{"class_0": 0.9, "class_1": 0.4}, {"class_0": 0.2, "class_1": 0.5}, {"class_0": 0.8, "class_1": 0.5}]
    assert class_floor(evaluations) == pytest.approx(0.25)  # 0.2 / 0.8
    assert class_floor([{"class_0": 0.9, "class_1": 0.0}]) == 0.0
    assert class_floor([{"value_0": 0.1}]) is None
    assert class_floor([]) is None


def test_devices_that_could_have_taken_part() -> None:
    links = feasible_links(4, 2, np.array([0, 0, 1, 2]), np.array([0, 1, 0, 0]), np.array([30.0, 20.0, 24.0, 26.0]))
    rounds = quickest_rounds(links)
    assert rounds.tolist() == [20.0, 24.0, 26.0, np.inf]
    assert left_out(rounds, {0}, 100.0) == [1]  # device 2 is too slow, and device 3 has no link
    assert left_out(rounds, {0, 1}, 100.0) == []


def test_a_summary_has_both(tmp_path: Path) -> None:
    chosen = {"network": "uniform", "method": "async-random", "overrides": ["task.devices=10", "cloud.epochs=30"]}
    run = api.run(task="digits", **chosen, out=tmp_path / "run")
    details = [fields["details"] for _, fields in run.events("epoch")]
    assert run.summary["class_floor"] == class_floor(details[-RECENT:])
    took_part = {fields["device"] for _, fields in run.events("job") if fields["reason"] == "aggregated"}
    assert set(run.summary["left_out"]).isdisjoint(took_part)


def test_a_resumed_run_has_the_same_measures(tmp_path: Path) -> None:
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += 1
        return seen >= 12

    chosen = {"network": "uniform", "method": "two-tier", "overrides": ["task.devices=10", "cloud.epochs=30"]}
    whole = api.run(task="digits", **chosen, out=tmp_path / "whole")
    assert not api.run(task="digits", **chosen, out=tmp_path / "cut", pause=enough).complete
    cut = api.resume(tmp_path / "cut")
    for key in ("class_floor", "left_out"):
        assert cut.summary[key] == whole.summary[key]
