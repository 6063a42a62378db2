"""A finished run whose journal has lost data says so wherever it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SMALL, Call

from async_hfl import load_run
from async_hfl.core.errors import RunDirectoryError

FILES = ("events.jsonl", "epochs.csv")
PLAN = """
tasks = "null"
networks = "uniform"
methods = ["async-random"]
seeds = 2

[set]
task.devices = 10
network.gateways = 2
cloud.epochs = 5
"""


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def alter(path: Path) -> None:
    """Change a digit, so that every line can still be decoded and the length stays the same."""
    text = path.read_bytes()
    place = max(text.rfind(digit) for digit in (b"1", b"2", b"3"))
    path.write_bytes(text[:place] + b"4" + text[place + 1 :])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut off": (halve, "bytes are missing, going by the summary of the run"),
    "too long": (lengthen, "has 1 bytes too many"),
    "lost": (Path.unlink, "missing, though the run is complete"),
    "changed": (alter, "its SHA-256 is not the one in the summary"),
}
REMEDY = "restore the file from a copy, or make the run again"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from async_hfl.cli import main

    out = tmp_path_factory.mktemp("whole") / "run"
    assert main(["run", *SMALL, "--out", str(out), "--json"]) == 0
    return out


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_export_report_and_python_refuse(name: str, damage: str, whole: Path, call: Call) -> None:
    shutil.copytree(whole, "hurt")
    hurt, what = DAMAGES[damage]
    hurt(Path("hurt") / name)
    for arguments in (
        ("report", "hurt", "--out", "page.html"),
        ("report", "hurt", str(whole), "--out", "both.html"),
        ("report", "hurt", str(whole), "--out", "both.csv"),
        ("export", "hurt", "--out", "tables"),
    ):
        done = call(*arguments)
        assert done.code == 2, arguments
        assert f"hurt/{name}: " in done.told()
        assert what in done.told()
        assert REMEDY in done.told()
    assert sorted(entry.name for entry in Path().iterdir()) == ["hurt"]
    run = load_run("hurt")
    with pytest.raises(RunDirectoryError, match=REMEDY):
        list(run.events("job")) if name == "events.jsonl" else run.epochs


@pytest.mark.parametrize("damage", ["cut off", "too long", "lost"])
@pytest.mark.parametrize("name", FILES)
def test_a_journal_of_another_length_is_noticed_without_reading_it(
    name: str, damage: str, whole: Path, call: Call
) -> None:
    shutil.copytree(whole, "hurt")
    assert load_run("hurt").complete
    before = call("show", "hurt")
    hurt, what = DAMAGES[damage]
    hurt(Path("hurt") / name)
    assert not load_run("hurt").complete
    shown = call("show", "hurt")
    assert (shown.code, shown.out) == (0, before.out)
    assert shown.err.startswith(f"async-hfl: warning: hurt/{name}: ")
    assert what in shown.err
    assert what in call("show", "hurt", "--json").json["damage"]
    for arguments in (("resume", "hurt"), ("replay", "hurt")):
        assert what in call(*arguments).told()


def test_the_message_counts_the_missing_bytes(whole: Path, call: Call) -> None:
    shutil.copytree(whole, "hurt")
    events = Path("hurt/events.jsonl")
    length = events.stat().st_size
    events.write_bytes(events.read_bytes()[:-1234])
    assert (
        f"hurt/events.jsonl: 1,234 of its {length:,} bytes are missing" in call("export", "hurt", "--out", "o").told()
    )


def test_a_network_is_not_read_from_half_a_journal(whole: Path, call: Call) -> None:
    shutil.copytree(whole, "hurt")
    halve(Path("hurt/events.jsonl"))
    for arguments in (("network", "show", "hurt"), ("network", "record", "hurt", "trace.csv")):
        assert "bytes are missing" in call(*arguments).told()
    Path("hurt/events.jsonl").unlink()
    assert "missing, though the run is complete" in call("network", "show", "hurt").told()


def test_a_run_without_these_records_is_read_as_before(whole: Path, call: Call) -> None:
    shutil.copytree(whole, "old")
    path = Path("old/summary.json")
    summary = json.loads(path.read_text())
    del summary["journal"]
    path.write_text(json.dumps(summary))
    halve(Path("old/events.jsonl"))
    assert load_run("old").complete
    assert call("export", "old", "--out", "tables").code == 0


def test_a_sweep_makes_a_damaged_run_again_and_keeps_what_is_left_of_it(call: Call) -> None:
    Path("plan.toml").write_text(PLAN)
    assert call("sweep", "plan.toml", "--processes", "1", "--json").code == 0
    first, second = sorted(Path("runs/plan/runs").iterdir())
    wanted, kept = (first / "events.jsonl").read_bytes(), (second / "summary.json").stat().st_mtime_ns
    halve(first / "events.jsonl")
    again = call("sweep", "plan.toml", "--processes", "1")
    assert again.code == 0
    assert "bytes are missing" in again.out + again.err
    assert (first / "events.jsonl").read_bytes() == wanted
    assert (second / "summary.json").stat().st_mtime_ns == kept
    assert (Path("runs/plan/broken") / f"{first.name}-1" / "events.jsonl").stat().st_size == len(wanted) // 2


def test_a_comparison_does_not_use_a_changed_curve(call: Call) -> None:
    Path("plan.toml").write_text(PLAN)
    assert call("sweep", "plan.toml", "--processes", "1", "--json").code == 0
    first = min(Path("runs/plan/runs").iterdir())
    alter(first / "epochs.csv")
    done = call("sweep", "plan.toml", "--processes", "1", "--json")
    assert done.code == 2
    assert f"{first}/epochs.csv: its SHA-256 is not the one in the summary" in done.told()
