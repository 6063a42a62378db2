"""Terminal output of a run."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from stored_runs import MANIFEST, summary

from async_hfl.assembly.settings.schema import Settings
from async_hfl.reports.terminal import console as console_module
from async_hfl.reports.terminal.run_summary import print_summary
from async_hfl.reports.terminal.run_view import RunView
from async_hfl.simulation.recorded_run import Progress


@dataclass(frozen=True)
class Shown:
    """The attributes of a run that the view reads."""

    path: Path
    manifest: dict[str, Any]


PROGRESS = Progress(
    at=3720.0,
    epoch=12,
    metric=0.8123,
    updates=99,
    bytes_total=51_400_000,
    updates_per_s=1234.5,
    target_reached=False,
    loss=0.5,
    bytes_models_up=1_000_000,
)
RUN = Shown(Path("runs/[odd] name"), {"method": "async-hfl", "task": "digits", "network": "nycmesh-paper", "seed": 1})


def printed(result: dict[str, Any], width: int = 80) -> str:
    file = io.StringIO()
    print_summary(MANIFEST, result, Console(file=file, width=width, highlight=False))
    return file.getvalue()


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with RunView(quiet=False) as view:
        view.started(RUN, Settings())
        for _ in range(100):
            view.epoch(PROGRESS)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "async-hfl · digits · nycmesh-paper · seed 1  → runs/[odd] name"
    assert re.fullmatch(r" +1 h 02 min  epoch 12 of \d+  metric 0\.8123 of 0\.9 +51\.4 MB", lines[1])
    assert len(lines) < 100, "now and then, not every epoch"
    assert "\x1b" not in err


def progress_at(view: RunView, epoch: int) -> str:
    return view.line(replace(PROGRESS, epoch=epoch, at=360_000.0, metric=0.95)).plain


@pytest.mark.parametrize("width", [80, 120])
def test_progress_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    view = RunView(quiet=False)
    view.started(RUN, Settings())
    lines = [progress_at(view, epoch) for epoch in (1, 999)]
    assert all(len(line) < width for line in lines)
    assert "left" not in lines[0], "one evaluation says nothing about the speed"
    assert re.search(r"≤ \d.* left", lines[1])
    assert ("1,234 updates/s" in lines[1]) == (width == 120)


def test_no_color_means_no_styles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_summary(MANIFEST, summary("async-hfl", 41_000.0))
    assert "\x1b[" in capsys.readouterr().out, "else this tests nothing"
    monkeypatch.setenv("NO_COLOR", "1")
    print_summary(MANIFEST, summary("async-hfl", 41_000.0))
    assert "\x1b[" not in capsys.readouterr().out


def test_every_command_prints_on_such_a_console() -> None:
    """A console that prints to a file has no terminal whose wishes count."""
    package = Path(console_module.__file__).parents[2]
    made = re.compile(r"(?<!def )\bConsole\((?!file=)")
    own = [str(path.relative_to(package)) for path in package.rglob("*.py") if made.search(path.read_text())]
    assert own == ["reports/terminal/console.py"]


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with RunView(quiet=True) as view:
        view.started(RUN, Settings())
        view.epoch(PROGRESS)
    assert capsys.readouterr() == ("", "")


def test_a_long_path_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """So that it can be copied from the terminal."""
    path = Path("runs") / ("long-" * 40)
    with RunView(quiet=False) as view:
        view.started(Shown(path, RUN.manifest), Settings())
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_value_of_a_summary_is_cut_off(width: int) -> None:
    result = summary("async-hfl-association", 41_000.0)
    text = printed(result, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    flat = re.sub(r"\s+", " ", text)
    for words in (
        "async-hfl-association on digits, nycmesh-paper (tight), seed 1",
        "runs/async-hfl-association",
        "reached after 11 h 23 min, 123.5 MB (uplink of models: 45.7 MB)",
        "including a warm-up of 2 min 11 s, 2.0 MB",
        "first single crossing after 11 h 23 min",
        "0.9111 (target 0.9)",
        "12,345 device updates in 1,054 cloud epochs, 17 dropped",
        "limited 98.8 % of the selections",
        "at most 7 at the cloud, 41 at a gateway",
        "solved to a gap of at most 1.2 %",
        "11 h 23 min simulated in 12.3 s (103 training calls, largest 60, 35 wasted)",
        result["digest"],
    ):
        assert words in flat


def test_a_target_not_reached() -> None:
    text = printed(summary("async-hfl", None))
    assert "not reached" in text
    assert "warm-up" not in text
    assert "crossing" not in text


def test_a_run_without_an_update() -> None:
    """A user who sets cloud.epochs to 3 learns that nothing was learnt."""
    flat = " ".join(printed(summary("async-hfl", None, device_updates=0)).split())
    assert "warning the run was over before the update of any device was aggregated" in flat
    assert "warning" not in printed(summary("async-hfl", None))


def test_a_run_without_an_evaluation() -> None:
    assert "final metric" not in printed(summary("async-hfl", None, final_metric=None, virtual_s=None))


def test_a_path_is_not_markup() -> None:
    assert "runs/[bold]mine[/bold]/[1]" in printed(summary("async-hfl", None, run="runs/[bold]mine[/bold]/[1]"))


def test_a_long_path_is_folded_and_not_cut() -> None:
    path = "runs/" + "0123456789" * 20
    text = printed(summary("async-hfl", None, run=path))
    assert path in re.sub(r"\s+", "", text)
