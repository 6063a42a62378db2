"""Pictures of learning curves."""

from __future__ import annotations

from pathlib import Path

from stored_runs import stored

from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import RunGroup
from async_hfl.reports.figures.learning_curves import draw_groups


def drawn(runs: list[RunDirectory], path: Path) -> tuple[int, int]:
    """Return width and height of a picture, after checking that it is a complete PNG."""
    draw_groups([RunGroup(run.path.name, (run.path,)) for run in runs], path, "Race to 90 %")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data[12:16] == b"IHDR"
    assert data.endswith(b"IEND\xaeB`\x82")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_curves_of_several_runs(tmp_path: Path) -> None:
    runs = [stored(tmp_path, "fast", 400.0, rows=9), stored(tmp_path, "stuck", rows=9)]
    width, height = drawn(runs, tmp_path / "curves.png")
    assert 1000 <= width <= 3000
    assert 500 <= height <= 1500
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_more_curves_make_another_picture(tmp_path: Path) -> None:
    runs = [stored(tmp_path, f"method-{number}", rows=5 + number) for number in range(9)]
    drawn(runs[:1], tmp_path / "one.png")
    drawn(runs, tmp_path / "nine.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "nine.png").read_bytes()


def test_incomplete_runs(tmp_path: Path) -> None:
    drawn([], tmp_path / "none.png")
    drawn([stored(tmp_path, "begun", complete=False)], tmp_path / "begun.png")
    drawn([stored(tmp_path, "cut", complete=False, rows=3)], tmp_path / "cut.png")
