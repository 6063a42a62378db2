"""`async-hfl cluster` from a user's view: real processes, sockets, certificates and disks; no process is left over."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from async_hfl.api import RESULT_FIELDS
from async_hfl.assembly.deployments.cluster import Watch
from async_hfl.core.compression.encodings import encoded_bytes
from async_hfl.deployment.operations.node_journal import is_node, read_fact, read_lines
from async_hfl.deployment.store.node_identity import IDENTITY
from async_hfl.journal.events_file import read_events
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.simulation.recorded_run import Progress

HANG_GUARD_S = 300.0
"""Only ends tests that hang."""
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
ENDLESS = ("--task", "null", "--set", "cloud.epochs=1000000", "--gateways", "2", "--class", "4:1:20000")
"""Its links are slow, so that it does not occupy the whole machine."""


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)


def answer(*arguments: str) -> Any:
    done = call(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def until(what: Callable[[], Any]) -> Any:
    given_up = time.monotonic() + HANG_GUARD_S
    while time.monotonic() < given_up:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} was never so")


def children_of(pid: int) -> set[int]:
    """Return all descendants of a process."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found |= {child} | children_of(child)
    return found


def alive(pids: set[int]) -> set[int]:
    def lives(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return {pid for pid in pids if lives(pid)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    run = tmp_path_factory.mktemp("cluster") / "run"
    small = ("--gateways", "2", "--devices", "4", "--devices-per-process", "2", "--set", "task.classes_per_device=3")
    return run, answer("cluster", "--task", "digits", "--seed", "3", *small, "--out", str(run))


def test_it_reaches_the_target_and_reports_it_like_a_run(finished: tuple[Path, dict[str, Any]]) -> None:
    run, result = finished
    assert set(result) == set(RESULT_FIELDS)
    assert result["target_reached"] is True
    assert result["final_metric"] >= 0.85
    assert result["network"] == "deployed"
    assert 0 < result["time_to_target_s"] <= result["virtual_s"]
    assert result["device_updates"] > result["cloud_epochs"] > 0
    shown = call("show", str(run))
    assert shown.returncode == 0
    assert "async-hfl-plus on digits, deployed" in shown.stdout


def test_one_number_of_device_updates(finished: tuple[Path, dict[str, Any]]) -> None:
    run, result = finished
    journals = [list(read_lines(run / "nodes" / f"gateway-{number}")) for number in (1, 2)]
    ends = [line.order[3] for lines in journals for line in lines if line.kind == "job"]
    wanted = ends.count("aggregated")
    assert 0 < wanted < len(ends), "there was a warm-up"
    directory = RunDirectory(run)
    counted, at_epochs = 0, []
    for kind, fields in directory.read_events("job", "epoch"):
        counted += kind == "job" and fields["reason"] == "aggregated"
        if kind == "epoch":
            at_epochs.append(counted)
    assert result["device_updates"] == counted == wanted
    assert [row["updates"] for row in directory.read_epochs()] == at_epochs
    assert f"{wanted:,} device updates in " in call("show", str(run)).stdout


def test_progress_counts_the_device_updates_of_all_gateways(finished: tuple[Path, dict[str, Any]]) -> None:
    """Each look reads only the lines that were added since the last one."""
    run, result = finished
    told: list[Progress] = []
    others = [state for state in (run / "nodes").iterdir() if is_node(state) and state.name != "cloud"]
    watch = Watch(run / "nodes" / "cloud", others, told.append)
    for _ in range(3):
        watch.look()
    [progress] = told
    assert progress.updates == result["device_updates"]
    assert progress.epoch == result["cloud_epochs"]
    summary = RunDirectory(run).read_summary()
    assert summary is not None
    assert progress.bytes_total == summary["bytes_total"]
    assert 0 < progress.bytes_models_up < progress.bytes_total


def test_its_journal_is_known_by_length_and_digest(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, _ = finished
    shutil.copytree(run, tmp_path / "cut")
    events = tmp_path / "cut" / "events.jsonl"
    assert call("export", str(tmp_path / "cut"), "--out", str(tmp_path / "whole")).returncode == 0
    events.write_bytes(events.read_bytes()[:-100])
    done = call("export", str(tmp_path / "cut"), "--out", str(tmp_path / "tables"))
    assert done.returncode == 2
    assert "events.jsonl: 100 of its " in done.stderr


def test_its_page_tells_of_a_deployment(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """So does the page of the run that is collected from its nodes."""
    run, result = finished
    answer("collect", str(tmp_path / "again"), str(run / "nodes"))
    for number, directory in enumerate((run, tmp_path / "again")):
        page = tmp_path / f"{number}.html"
        assert call("report", str(directory), "--out", str(page)).returncode == 0
        text = page.read_text()
        assert "No map: the places of deployed nodes are not known." in text
        found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
        assert found is not None
        data = json.loads(found[1])
        assert data["clock"] == "wall-clock time"
        assert "preset" not in data["summary"][0]
        assert sorted(data["names"]["gateway"].values()) == ["gateway-1", "gateway-2"]
        assert sorted(data["names"]["device"].values()) == [f"device-{device}" for device in range(1, 5)]
        assert len(data["colours"]) == 2
        jobs, span = data["timeline"]["jobs"], data["timeline"]["typical"]
        assert 0 < span < result["virtual_s"]
        assert any(job[3] is not None and job[4] > job[3] > job[2] for job in jobs), "all parts of a round can be seen"


def test_every_node_has_its_own_disk_and_certificate(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    names = ["cloud", "gateway-1", "gateway-2", *(f"device-{number}" for number in range(1, 5))]
    for name in names:
        assert any(read_lines(run / "nodes" / name)), name
    for name in ("cloud", "gateway-1", "devices-1-2", "operator"):
        assert (run / "certificates" / name / "certificate.pem").is_file()


def test_its_replay_shows_no_difference(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    replayed = answer("replay", str(run))
    assert replayed["nodes"] == 7
    assert replayed["events"] > 100
    assert (replayed["differences"], replayed["payloads_missing"]) == (0, 0)


def test_solutions_are_computed_again(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    solved = answer("replay", str(run / "nodes" / "cloud"), "--resolve")
    assert solved["solutions"] > 0
    assert (solved["nodes"], solved["differences"]) == (1, 0)


def test_its_network_can_be_simulated(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Another method is simulated on the measured links."""
    run, _ = finished
    trace = tmp_path / "trace.csv"
    counts = answer("network", "record", str(run), str(trace))["rows"]
    assert min(counts["download"], counts["upload"], counts["training"], counts["to_cloud"]) > 5
    there = ("--network", "file", "--set", f"network.path={trace}", "--set", "task.devices=4")
    few = ("--set", "task.classes_per_device=3", "--set", "cloud.epochs=3")
    simulated = answer("run", "--task", "digits", "--method", "sync-oort", *there, *few, "--out", str(tmp_path / "run"))
    assert simulated["cloud_epochs"] == 3


def test_the_journals_can_be_collected_again(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, result = finished
    collected = answer("collect", str(tmp_path / "again"), str(run / "nodes"))
    assert collected["complete"] is True
    assert len(collected["nodes"]) == 7
    assert answer("show", str(tmp_path / "again"))["digest"] == result["digest"]


def test_every_job_ends_once(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    sent, ended = set(), []
    for gateway in ("gateway-1", "gateway-2"):
        for line in read_lines(run / "nodes" / gateway):
            if line.kind == "sent" and line.order[3] == "Train":
                sent.add(tuple(line.order[4]))
            elif line.kind == "job":
                ended.append(tuple(line.order[1]))
    assert len(ended) == len(set(ended))
    assert set(ended) == sent


# Encoded models ------------------------------------------------------------------------------------------------------

ENCODED = ("--set", "transfer.encoding=int8", "--set", "transfer.up=int8", "--set", "transfer.down=int8")
LIGHT = ("--set", "task.classes_per_device=3", "--set", "cloud.epochs=6", *ENCODED)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("light") / "run"
    answer("cluster", "--task", "digits", "--seed", "3", "--gateways", "2", "--devices", "4", *LIGHT, "--out", str(run))
    return run


def messages_of(run: Path) -> dict[str, set[tuple[int, int]]]:
    """Return the bytes of models and gradients, by kind of message, that the nodes' journals count."""
    found: dict[str, set[tuple[int, int]]] = {}
    for node in sorted(path.parent for path in (run / "nodes").glob("*/node.db")):
        for line in read_lines(node):
            if line.kind == "sent":
                _, _, _, message, _, _, model, gradient, *_ = line.order
                found.setdefault(message, set()).add((model, gradient))
    return found


def test_the_journals_count_the_bytes_of_encoded_models(light: Path) -> None:
    facts = read_fact(light / "nodes" / "cloud", IDENTITY)["facts"]
    trained, rest = facts["gradient_size"], facts["model_size"] - facts["gradient_size"]
    model = encoded_bytes("int8", trained, rest)
    assert model < 4 * facts["model_size"] / 3.5
    found = messages_of(light)
    for message in ("Train", "Update", "Upload", "Answer", "GlobalModel"):
        assert {models for models, _ in found[message]} == {model}, message
    whole_gradients = encoded_bytes("int8", trained, 0)
    assert all(gradient % whole_gradients == 0 for sizes in found.values() for _, gradient in sizes)


def test_a_simulation_counts_the_same_bytes_for_the_same_messages(light: Path, tmp_path: Path) -> None:
    there = ("--network", "uniform", "--set", "network.gateways=2", "--set", "task.devices=4")
    answer("run", "--task", "digits", "--method", "async-hfl-plus", *there, *LIGHT, "--out", str(tmp_path / "run"))
    simulated: dict[str, set[tuple[int, int]]] = {}
    for _, told in read_events(RunDirectory(tmp_path / "run").events, "sent"):
        simulated.setdefault(told["message"], set()).add((told["model"], told["gradient"]))
    deployed = messages_of(light)
    for message in ("Train", "Update", "Answer", "GlobalModel"):
        assert deployed[message] == simulated[message], message
    # An upload also tells what is new about devices, of which there may be more or fewer.
    assert {model for model, _ in deployed["Upload"]} == {model for model, _ in simulated["Upload"]}


def test_the_replay_of_encoded_models_shows_no_difference(light: Path) -> None:
    replayed = answer("replay", str(light))
    assert replayed["nodes"] == 7
    assert (replayed["differences"], replayed["payloads_missing"]) == (0, 0)


# A run without an end of its own -------------------------------------------------------------------------------------


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, set[int]]]:
    """A running cluster, its directory and its processes."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        [PROGRAM, "cluster", *ENDLESS, "--out", str(run), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def works() -> bool:
        assert process.poll() is None, process.communicate()
        status = call("status", str(run), "--json")
        return status.returncode == 0 and json.loads(status.stdout)["cloud_epoch"] > 0

    try:
        until(works)
        yield process, run, children_of(process.pid)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_ctrl_c_ends_all_processes(endless: tuple[subprocess.Popen[str], Path, set[int]]) -> None:
    process, _, children = endless
    assert len(alive(children)) >= 5  # cloud, two gateways, a device process and its training process
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_GUARD_S) == 130
    assert not alive(children)


def test_a_killed_cluster_leaves_no_process_behind(endless: tuple[subprocess.Popen[str], Path, set[int]]) -> None:
    process, _, children = endless
    process.kill()
    process.wait(HANG_GUARD_S)
    until(lambda: not alive(children))


def test_status_and_drain(endless: tuple[subprocess.Popen[str], Path, set[int]]) -> None:
    process, run, children = endless
    status = until(lambda: _with_telemetry(run))
    assert [gateway["state"] for gateway in status["gateways"]] == ["here", "here"]
    assert {device["name"] for device in status["devices"]} == {f"device-{number}" for number in range(1, 5)}
    assert all(set(device["reaches"]) == {"gateway-1", "gateway-2"} for device in status["devices"])
    table = call("status", str(run))
    assert "gateway-1" in table.stdout
    assert "device-4" in table.stdout
    # The certificate of a device is not accepted for an operator.
    refused = call("drain", str(run), "--certificates", str(run / "certificates" / "devices-1-4"))
    assert refused.returncode == 2
    assert answer("drain", str(run))["draining"] is True
    out, _ = process.communicate(timeout=HANG_GUARD_S)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["cloud_epochs"] > 0
    assert not alive(children)


def _with_telemetry(run: Path) -> dict[str, Any] | None:
    """Gateways send telemetry as soon as an operator asks for the status."""
    status: dict[str, Any] = answer("status", str(run))
    return status if all("gateway_epoch" in gateway for gateway in status["gateways"]) else None


def test_user_errors_are_reported_in_a_few_lines(tmp_path: Path) -> None:
    for arguments, words in (
        (("cluster", "--devices", "0"), "at least 1"),
        (("cluster", "--set", "task.devices=4"), "--devices"),
        (("cluster", "--set", "outages.device_up=50"), "outages.device_up"),
        (("cloud", "--state", str(tmp_path / "c")), "--certificates"),
        (("device", "--shard", "9/8", "--gateways", "127.0.0.1:1"), "3/8"),
        (("device", "--gateways", "127.0.0.1:1"), "--data"),
        (("status", "127.0.0.1:1", "--insecure"), "127.0.0.1:1"),
        (("run", "--set", "cloud.start.devices=3"), "cloud.start"),
        (("run", "--network", "deployed"), "cluster"),
    ):
        done = call(*arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert words in done.stderr.splitlines()[-1], (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_devices_evaluate_where_the_cloud_has_no_test_set(tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ("--gateways", "2", "--devices", "4", "--devices-per-process", "4", "--set", "task.classes_per_device=3")
    asking = ('evaluation.where="devices"', "evaluation.period=4", "evaluation.devices=3", "cloud.epochs=10")
    sets = [part for text in asking for part in ("--set", text)]
    answer("cluster", "--task", "digits", "--seed", "3", *small, *sets, "--out", str(run))
    judged = [told for _, told in read_events(RunDirectory(run).events, "epoch")]
    assert [told["epoch"] for told in judged] == [4, 8, 10], "every fourth epoch, and the last"
    for told in judged:
        assert told["details"]["asked"] == 3
        assert 3 >= told["details"]["answered"] >= 0.8 * 3
    # Each evaluation asks other devices, and timing depends on the machine: the metric need not rise each time.
    assert max(told["metric"] for told in judged) > 0.2, "guessing gives 0.1"
    assert answer("replay", str(run))["differences"] == 0
