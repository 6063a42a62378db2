"""The progress of a sweep on terminals of several widths."""

from __future__ import annotations

import io

import pytest
from experiment_plans import small_plan
from rich.console import Console

from async_hfl.experiments.sweeps.view import SweepView
from async_hfl.experiments.sweeps.worker_pool import PoolShape


@pytest.mark.parametrize("width", [80, 120])
def test_progress_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a run is cut off before anything else is."""
    monkeypatch.setenv("COLUMNS", str(width))
    runs = small_plan(methods=["async-hfl-association"], vary={"gateway.bandwidth": ["50%"]}, seeds=3).runs
    with SweepView("sweep", quiet=True, panels=False) as view:
        view.began(1000, 0, PoolShape(2, 1))
        for run in runs:
            view.status(run, {"what": "epoch", "epoch": 812, "metric": 0.9123, "updates_per_s": 12345.0})
        file = io.StringIO()
        Console(file=file, width=width).print(view.drawn())
    lines = file.getvalue().splitlines()
    assert len(lines) == 1 + len(runs), "nothing is wrapped"
    assert all(len(line.rstrip()) <= width for line in lines)
    for run, line in zip(runs, lines[1:], strict=True):
        assert f"epoch 812  0.9123 of {run.target:g}" in line
        assert ("12,345 updates/s" in line) == (width == 120)
        assert line.startswith("async-hfl-association")
