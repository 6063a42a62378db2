"""Run directories: manifest, epochs and summary; incomplete files are ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from async_hfl.core.errors import RunDirectoryError
from async_hfl.journal.formats import FORMAT
from async_hfl.journal.run_directory import EPOCH_COLUMNS, RUN_FILES, EpochsWriter, RunDirectory


def test_create_and_open(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run"
    made = RunDirectory.create(path, {"task": "null", "name": "é"})
    found = RunDirectory.open(path)
    assert found.path == made.path
    assert found.read_manifest() == {"format": FORMAT, "task": "null", "name": "é"}
    assert found.read_summary() is None
    found.write_summary({"digest": "abc"})
    assert found.read_summary() == {"digest": "abc"}
    assert sorted(entry.name for entry in path.iterdir()) == ["manifest.json", "summary.json"]


def test_the_names_of_all_files(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    files = (run.manifest, run.epochs, run.events, run.checkpoint, run.model, run.devices, run.timings, run.summary)
    assert {file.name for file in files} | {file.with_suffix(".part").name for file in files} == RUN_FILES
    assert [file.name for file in files] == [
        "manifest.json",
        "epochs.csv",
        "events.jsonl",
        "checkpoint.msgpack",
        "model.safetensors",
        "devices.csv",
        "timings.json",
        "summary.json",
    ]


def test_a_run_is_created_in_an_empty_directory_only(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, {})
    with pytest.raises(RunDirectoryError, match="not empty; give another --out"):
        RunDirectory.create(tmp_path, {})


def test_nan_is_written_as_null(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, {})
    run.write_summary({"final_metric": float("nan"), "time": float("inf"), "fine": 0.1})
    assert run.read_summary() == {"final_metric": None, "time": None, "fine": 0.1}


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e300, 5e-324, 123456789.123456789, -0.0])
def test_numbers_keep_every_bit(tmp_path: Path, value: float) -> None:
    run = RunDirectory.create(tmp_path, {"value": value})
    assert run.read_manifest()["value"].hex() == value.hex()


ROWS = [(0.1 + 0.2, 1, 20, 0.5, 1.25, False, 1000, 400), (1 / 3, 2, 40, 1.0, 5e-324, True, 10**13, 10**12)]


def test_epochs_round_trip(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, {})
    assert list(run.read_epochs()) == []
    writer = EpochsWriter(run.epochs)
    for row in ROWS:
        writer.write(row)
    length = writer.sync()
    writer.close()
    assert run.epochs.stat().st_size == length
    assert list(run.read_epochs()) == [dict(zip(EPOCH_COLUMNS, row, strict=True)) for row in ROWS]
    assert run.epochs.read_text().splitlines()[0] == ",".join(EPOCH_COLUMNS)


def test_a_continued_epochs_file_has_one_header(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, {})
    for row in ROWS:
        writer = EpochsWriter(run.epochs)
        writer.write(row)
        writer.close()
    assert len(list(run.read_epochs())) == 2


def test_rows_can_be_read_during_the_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, {})
    writer = EpochsWriter(run.epochs)
    writer.write(ROWS[0])
    assert len(list(run.read_epochs())) == 1
    writer.close()


def test_an_incomplete_last_row_is_left_out(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, {})
    writer = EpochsWriter(run.epochs)
    for row in ROWS:
        writer.write(row)
    writer.close()
    whole = run.epochs.read_text()
    for missing in (1, 5, 30):
        run.epochs.write_text(whole[:-missing])
        assert len(list(run.read_epochs())) == 1


@pytest.mark.parametrize("row", ["1.0,2\n", "a,b,c,d,e,f,g,h\n", ",,,,,,,\n"])
def test_the_error_names_the_damaged_row(tmp_path: Path, row: str) -> None:
    run = RunDirectory.create(tmp_path, {})
    run.epochs.write_text(",".join(EPOCH_COLUMNS) + "\n" + row)
    with pytest.raises(RunDirectoryError, match=r"epochs\.csv, line 2: not a row of numbers"):
        list(run.read_epochs())


def test_a_directory_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    (tmp_path / "manifest.part").write_text("{}")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    for text, why in (
        ("{", "cannot be read"),
        ("3", "not a JSON object"),
        (json.dumps({"format": 9}), "in format 9; .* use a newer async-hfl"),
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(RunDirectoryError, match=why):
            RunDirectory.open(tmp_path)


def test_a_run_of_an_older_version_names_the_version_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "task": "digits"}))
    why = r"written by async-hfl 0\.1\.0 \(format 1\); this version reads format 3: use async-hfl 0\.1\.0 to open it"
    with pytest.raises(RunDirectoryError, match=why):
        RunDirectory.open(tmp_path)
