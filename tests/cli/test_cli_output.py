"""The output of successful commands: text for people and, with `--json`, one last line on stdout."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import HANG_GUARD_S, PROGRAM, SMALL, Call, command

from async_hfl.assembly.settings.loading import available
from async_hfl.reports.tables.formatting import duration

FIELDS = [
    "run",
    "method",
    "task",
    "network",
    "seed",
    "target_reached",
    "time_to_target_s",
    "bytes_to_target",
    "final_metric",
    "cloud_epochs",
    "device_updates",
    "updates_dropped",
    "virtual_s",
    "wall_s",
    "digest",
    "order_digest",
]


def test_without_a_command_help_is_printed(call: Call) -> None:
    done = call()
    assert done.code == 0
    assert done.out == call("--help").out
    assert "COMMAND" in done.out


def test_the_version(call: Call) -> None:
    done = call("--version")
    assert done.code == 0
    assert done.out == f"async-hfl {version('async-hfl')}\n"


def test_run_show_resume_and_model_give_one_line_of_json(call: Call) -> None:
    done = call("run", *SMALL, "--method", "async-random", "--seed", "7", "--out", "mine", "--json")
    assert done.code == 0
    assert len(done.out.splitlines()) == 1
    assert done.err == ""
    result = done.json
    assert list(result) == FIELDS
    assert (result["run"], result["method"], result["task"], result["network"], result["seed"]) == (
        "mine",
        "async-random",
        "null",
        "uniform",
        7,
    )
    assert result["target_reached"] is False
    assert result["time_to_target_s"] is None
    assert result["bytes_to_target"] is None
    assert result["cloud_epochs"] == 3
    assert result["device_updates"] > 0
    assert len(result["digest"]) == len(result["order_digest"]) == 64
    assert call("show", "mine", "--json").json == result
    assert call("resume", "mine", "--json").json == result
    copied = call("model", "mine", "copy.safetensors", "--json")
    assert copied.json == {"run": "mine", "model": "copy.safetensors"}
    assert Path("copy.safetensors").read_bytes() == Path("mine/model.safetensors").read_bytes()


def test_the_text_output_of_a_run(call: Call) -> None:
    done = call("run", *SMALL, "--out", "mine")
    assert done.code == 0
    assert "async-hfl-plus · null · uniform · seed 1  → mine" in done.err
    assert "async-hfl-plus on null, uniform (tight), seed 1" in done.out
    shown = call("show", "mine")
    assert shown.out == done.out
    assert shown.err == ""
    assert "copy.safetensors: the global model of mine" in call("model", "mine", "copy.safetensors").out


def test_a_run_directory_may_be_moved(call: Call) -> None:
    call("run", *SMALL, "--out", "here")
    Path("here").rename("there")
    assert call("show", "there", "--json").json["run"] == "there"


def test_runs_without_out_get_a_directory_each(call: Call) -> None:
    paths = {call("run", *SMALL, "--json").json["run"] for _ in range(3)}
    assert len(paths) == 3
    for path in paths:
        assert path.startswith("runs/null-async-hfl-plus-uniform-s1-")
        assert sorted(entry.name for entry in Path(path).iterdir()) == [
            "devices.csv",
            "epochs.csv",
            "events.jsonl",
            "manifest.json",
            "model.safetensors",
            "summary.json",
            "timings.json",
        ]


def test_manifest_and_summary_are_strict_json(call: Call) -> None:
    """By default Python writes Infinity (for association.max_latency_ratio), which other JSON parsers reject."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    call("run", *SMALL, "--method", "async-hfl", "--out", "mine")
    for name in ("manifest.json", "summary.json"):
        json.loads(Path("mine", name).read_text(), parse_constant=refuse)


@pytest.mark.parametrize("kind", ["method", "task", "network", "preset"])
def test_listings_have_one_line_per_name(kind: str, call: Call) -> None:
    names = available(kind)
    lines = call(f"{kind}s").out.splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    for line, description in zip(lines, names.values(), strict=True):
        assert description
        assert line.endswith(f"  {description}")
        assert len(line) <= 140
    listed = call(f"{kind}s", "--json")
    assert listed.json == [{"name": name, "description": text} for name, text in names.items()]
    assert len(listed.out.splitlines()) == 1


def test_fuzz_faults_ends_in_a_summary(call: Call) -> None:
    done = call("fuzz-faults", "--seeds", "3", "--first-seed", "5", "--processes", "1")
    assert done.code == 0
    assert done.out.splitlines()[-1].startswith("fuzz-faults: 3 seeds from 5: no invariant broken; ")
    done = call("fuzz-faults", "--seeds", "2", "--json")
    assert done.code == 0
    result = done.json
    assert (result["seeds"], result["first_seed"], result["failures"]) == (2, 0, [])
    assert result["events"] > 0


def test_fuzzing_does_not_depend_on_the_number_of_processes(call: Call) -> None:
    alone = call("fuzz-faults", "--seeds", "12", "--processes", "1", "--json").json
    shared = call("fuzz-faults", "--seeds", "12", "--processes", "2", "--json").json
    del alone["wall_s"], shared["wall_s"]
    assert alone == shared


@pytest.mark.long
def test_bench_events(call: Call) -> None:
    done = call("bench", "events", "--quick", "--json")
    assert done.code == 0
    assert len(done.out.splitlines()) == 1
    assert [(row["devices"], row["gateways"]) for row in done.json] == [(1_000, 10), (10_000, 100)]
    for row in done.json:
        assert row["updates"] >= 6 * row["devices"]
        assert row["updates_per_s"] > 0
        assert row["bytes_per_device"] > 0


def test_the_demo_leaves_runs_plot_and_table(call: Call) -> None:
    Path("out").mkdir()
    done = call("demo", "--out", "out")
    assert done.code == 0
    assert done.err == ""
    methods = ["async-hfl-plus", "fedbuff", "semi-async", "two-tier", "async-hfl", "async-random"]
    assert sorted(entry.name for entry in Path("out").iterdir()) == sorted(
        [*methods, "curves.png", "report.html", "table.txt"]
    )
    for method in methods:
        assert method in done.out
        assert method in Path("out/table.txt").read_text()
    assert "plot   out/curves.png" in done.out
    assert "page   out/report.html" in done.out
    assert Path("out/curves.png").read_bytes().startswith(b"\x89PNG")
    again = call("demo", "--out", "out", "--json")
    assert len(again.out.splitlines()) == 1
    result = again.json
    assert (result["out"], result["page"], result["plot"], result["table"], result["seed"]) == (
        "out",
        "out/report.html",
        "out/curves.png",
        "out/table.txt",
        1,
    )
    assert [row["method"] for row in result["rows"]] == methods
    progress = done.out.partition("Race to 90 %")[0]
    assert all(duration(row["time_to_target_s"]) in progress for row in result["rows"])


def test_help_of_every_command(call: Call) -> None:
    overview = call("--help")
    assert overview.code == 0
    for name in (
        *("demo", "run", "resume", "show", "model", "bench", "fuzz-faults"),
        *("methods", "tasks", "networks", "presets"),
    ):
        assert name in overview.out
        done = call(name, "--help")
        assert done.code == 0
        assert done.out.startswith(f"usage: async-hfl {name}")


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    """`async-hfl methods | head -0`: the pipe is closed before anything is written."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [PROGRAM, "methods"],
        cwd=tmp_path,
        env=buffered,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=HANG_GUARD_S,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_run_in_a_new_process(tmp_path: Path) -> None:
    done = command("run", *SMALL, "--out", "mine", "--json", cwd=tmp_path)
    assert done.code == 0
    assert done.err == ""
    assert list(done.json) == FIELDS
    assert done.json["run"] == "mine"
