"""`async-hfl report` and `async-hfl export`, and a run's data frames."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from pathlib import Path

import pytest
from command_line import SMALL, Call

import async_hfl
from async_hfl.core.errors import UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.flat_tables import flat_tables
from async_hfl.reports.data.grouping import group_runs
from async_hfl.reports.export.table_formats import export_csv

TABLES = {
    "epochs",
    "classes",
    "jobs",
    "uploads",
    "selections",
    "associations",
    "moves",
    "life",
    "messages",
    "devices",
    "settings",
}


def small(call: Call, name: str, *more: str) -> Path:
    done = call("run", *SMALL, "--out", name, *more)
    assert done.code == 0, done.err
    return Path(name)


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a library is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


def test_a_report_of_one_run(call: Call) -> None:
    small(call, "mine")
    assert call("report", "mine").out == "report-mine.html: 1 run\n"
    page = Path("report-mine.html").read_text()
    outside = page.replace("http://www.w3.org/2000/svg", "")  # a name, never fetched
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]|@import|\b(src|href)\s*=|fetch\(|XMLHttp", outside)
    again = Path("again.html")
    assert call("report", "mine", "--out", str(again)).code == 0
    assert again.read_text() == page, "the same run gives the same page"


def test_reports_of_several_runs_in_every_format(call: Call) -> None:
    for method in ("async-random", "async-hfl"):
        for seed in ("1", "2"):
            small(call, f"all/{method}-{seed}", "--method", method, "--seed", seed)
    files = [f"out/r{ending}" for ending in (".html", ".png", ".svg", ".pdf", ".csv", ".tex")]
    options = [part for file in files for part in ("--out", file)]
    told = call("report", "all", *options, "--json").json
    assert len(told["runs"]) == 4
    assert told["files"] == files
    beginnings = (b"<!DOCTYPE html>", b"\x89PNG", b"<?xml", b"%PDF", b"group,", b"% needs")
    for file, beginning in zip(files, beginnings, strict=True):
        assert Path(file).read_bytes().startswith(beginning)
    with Path("out/r.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["runs"]) for row in rows] == [("async-hfl", "2"), ("async-random", "2")]
    again = [file.replace("/r", "/again") for file in files]
    assert call("report", "all", *(part for file in again for part in ("--out", file))).code == 0
    for file, other in zip(files, again, strict=True):
        if not file.endswith(".html"):  # which tells its own command
            assert Path(file).read_bytes() == Path(other).read_bytes(), "the same runs give the same file"


def test_runs_with_different_settings_form_different_groups(call: Call) -> None:
    paths = [small(call, f"r{seed}", "--seed", seed) for seed in ("1", "2")]
    paths.append(small(call, "r3", "--set", "gateway.epochs=3"))
    groups = group_runs(paths)
    assert [len(group.runs) for group in groups] == [2, 1]
    assert "gateway.epochs=3" in groups[1].name
    other = small(call, "r4", "--set", "network.gateways=2", "--network", "random-geometric")
    assert {group.panel for group in group_runs([*paths, other])} == {
        "null · uniform · tight",
        "null · random-geometric · tight",
    }


def test_mistakes_with_reports(call: Call) -> None:
    small(call, "mine")
    assert "the name of a report must end in .html" in call("report", "mine", "--out", "x.doc").told()
    assert "not a run directory" in call("report", "nowhere").told()
    Path("empty").mkdir()
    assert "neither a run directory nor a directory that holds any" in call("report", "empty").told()
    assert "cannot be written" in call("report", "mine", "--out", "mine/manifest.json/x.html").told()
    assert "needs a directory" in call("export", "mine", "--format", "csv", "--out", "http://x").told()
    assert "give a tracking URI" in call("export", "mine", "--format", "mlflow", "--out", "x").told()


def test_export_to_csv(call: Call) -> None:
    run = small(call, "mine")
    counts = call("export", "mine", "--out", "data", "--json").json["written"]
    assert {file.stem for file in Path("data").iterdir()} == set(counts) == TABLES
    events = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()[1:]]
    for table, kind in (("jobs", "job"), ("messages", "sent"), ("uploads", "upload"), ("life", "lifecycle")):
        of_kind = [row for row in events if row[0] == kind]
        assert counts[table] == len(of_kind)
        with Path(f"data/{table}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(of_kind)
        name = "ended_at" if table == "jobs" else "at"
        assert [float(row[name]) for row in rows] == [row[1][0] for row in of_kind], "to the bit"


def test_export_to_parquet(call: Call, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (async-hfl[parquet])")
    run = RunDirectory.open(small(call, "mine"))
    assert call("export", "mine", "--format", "parquet", "--out", "data").code == 0
    for name, table in flat_tables(run).items():
        found = parquet.read_table(f"data/{name}.parquet")
        assert found.column_names == [column for column, _ in table.columns]
        assert [tuple(row.values()) for row in found.to_pylist()] == list(table.rows())


def test_export_to_tensorboard(call: Call) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed (async-hfl[tensorboard])")
    from tensorboardX.proto.event_pb2 import Event

    def scalars(folder: Path) -> list[tuple[str, int, float]]:
        [file] = folder.glob("events.out.tfevents.*")
        data, place, found = file.read_bytes(), 0, []
        while place < len(data):
            length = int.from_bytes(data[place : place + 8], "little")
            event = Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4
            found += [
                (value.tag, event.step, value.simple_value)
                for value in event.summary.value
                if value.HasField("simple_value")
            ]
        return found

    small(call, "mine", "--tensorboard", "live")
    rows = list(async_hfl.load_run("mine").directory.read_epochs())
    wanted = {("metric", int(row["epoch"])): row["metric"] for row in rows}
    live = {(tag, step): value for tag, step, value in scalars(Path("live/mine"))}
    for key, value in wanted.items():
        assert math.isclose(live[key], value, rel_tol=1e-6)
    assert call("export", "mine", "--format", "tensorboard", "--out", "later").code == 0
    later = {(tag, step): value for tag, step, value in scalars(Path("later"))}
    assert {key: later[key] for key in wanted} == {key: live[key] for key in wanted}
    assert {tag for tag, _ in later} >= {"metric", "loss", "updates", "bytes_total", "bytes_models_up"}


@pytest.mark.filterwarnings("default")  # of MLflow's own making
def test_export_to_mlflow(call: Call) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (async-hfl[mlflow])")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (async-hfl[mlflow])")
    run = async_hfl.load_run(small(call, "mine", "--mlflow", "sqlite:///tracked.db"))
    client = mlflow.MlflowClient(tracking_uri="sqlite:///tracked.db")
    [found] = client.search_runs([client.get_experiment_by_name("async-hfl").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["method"] == run.summary["method"]
    history = client.get_metric_history(found.info.run_id, "metric")
    assert [one.value for one in history] == [row["metric"] for row in run.epochs]


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("pyarrow", "parquet", ("--format", "parquet", "--out", "x")),
        ("tensorboardX", "tensorboard", ("--format", "tensorboard", "--out", "x")),
        ("mlflow", "mlflow", ("--format", "mlflow", "--out", "sqlite:///x.db")),
    ],
)
def test_a_missing_library_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, arguments: tuple[str, ...]
) -> None:
    small(call, "mine")
    without(module, monkeypatch)
    done = call("export", "mine", *arguments)
    assert done.code == 2
    assert f"pip install 'async-hfl[{extra}]'" in done.told()


def test_data_frames(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (async-hfl[frames])")
    small(call, "mine")
    run = async_hfl.load_run("mine")
    assert run.epochs_frame()["metric"].tolist() == [row["metric"] for row in run.epochs]
    jobs = run.jobs_frame()
    assert jobs["reason"].value_counts().to_dict() == run.summary["job_ends"]
    assert jobs.dtypes["staleness"] == "int64"
    assert (
        run.messages_frame()[["model", "gradient", "basis", "control"]].to_numpy().sum() == run.summary["bytes_total"]
    )
    assert len(run.devices_frame()) == run.manifest["devices"]
    assert set(run.uploads_frame()["reason"]) <= {"mixed", "dropped", "lost", "run_ended"}
    assert run.selections_frame()["bound"].mean() == pytest.approx(run.summary["bandwidth_bound_share"])
    for name in TABLES:
        assert isinstance(run.frame(name), pandas.DataFrame)
    with pytest.raises(UserError, match="there is no table 'job'; the tables are epochs, "):
        run.frame("job")
    without("pandas", monkeypatch)
    with pytest.raises(UserError, match=r"pip install 'async-hfl\[frames\]'"):
        run.epochs_frame()


def test_a_run_that_has_just_started(call: Call, tmp_path: Path) -> None:
    run = small(call, "mine")
    for file in run.iterdir():
        if file.name != "manifest.json":
            file.unlink()
    counts = export_csv(RunDirectory.open(run), tmp_path / "data")
    assert {name for name, count in counts.items() if count} == {"settings"}
    assert call("report", "mine", "--out", "r.html", "--out", "r.png", "--out", "r.csv").code == 0
