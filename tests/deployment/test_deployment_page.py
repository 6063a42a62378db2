"""docs/deployment.md: its commands are executed on one machine, and its settings exist."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from async_hfl.assembly.settings.learning import EvaluationSection
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.settings.type_description import describe_field

HANG_GUARD_S = 300.0
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
BLOCKS = [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]


def arguments(line: str, ports: dict[str, int]) -> list[str]:
    for name, port in ports.items():
        line = line.replace(name, f"127.0.0.1:{port}")
    program, *rest = line.split()
    assert program == "async-hfl"
    return [PROGRAM, *rest]


def run(line: str, cwd: Path, ports: dict[str, int]) -> str:
    done = subprocess.run(
        arguments(line, ports), cwd=cwd, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_three_kinds_of_machine(tmp_path: Path) -> None:
    _, certificates, machines, operator, _ = BLOCKS
    cloud, gateway = free_port(), free_port()
    ports = {"0.0.0.0:7100": cloud, "cloud.lab:7100": cloud, "0.0.0.0:7200": gateway, "g1.lab:7200": gateway}
    for line in certificates:
        run(line, tmp_path, ports)
    # Without a target it runs until the operator ends it.
    cloud_line = machines[0] + " --set task.target=1 --set cloud.epochs=100000"
    processes = []
    try:
        for number, line in enumerate([cloud_line, *machines[1:]]):
            with (tmp_path / f"{number}.log").open("w") as log:
                processes.append(subprocess.Popen(arguments(line, ports), cwd=tmp_path, stderr=log, text=True))
        _wait_for_work(tmp_path, arguments(operator[0] + " --json", ports), processes)
        assert "d2" in run(operator[0], tmp_path, ports)
        run(operator[1], tmp_path, ports)
        for number, process in enumerate(processes):
            assert process.wait(HANG_GUARD_S) == 0, (tmp_path / f"{number}.log").read_text()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    assert "journals of 4 nodes; the run is complete" in run(operator[2], tmp_path, ports)
    assert "async-hfl-plus on digits, deployed" in run(operator[3], tmp_path, ports)
    replayed = json.loads(run(operator[4] + " --json", tmp_path, ports).splitlines()[-1])
    assert (replayed["nodes"], replayed["differences"]) == (4, 0)
    assert (tmp_path / "state" / "cloud" / "model.safetensors").is_file()


def _wait_for_work(cwd: Path, status: list[str], processes: list[subprocess.Popen[str]]) -> None:
    given_up = time.monotonic() + HANG_GUARD_S
    while time.monotonic() < given_up:
        assert all(process.poll() is None for process in processes)
        done = subprocess.run(status, cwd=cwd, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
        if done.returncode == 0 and json.loads(done.stdout)["cloud_epoch"] > 2:
            return
        time.sleep(0.5)
    raise AssertionError("it never began")


def test_the_check_of_a_device(tmp_path: Path) -> None:
    assert "216 samples" in run(BLOCKS[4][0], tmp_path, {})


def test_the_first_command_is_the_one_that_is_tested_elsewhere() -> None:
    assert BLOCKS[0] == ["async-hfl cluster --gateways 2 --devices 8 --task digits"]


def test_its_settings_exist() -> None:
    [block] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    evaluation: dict[str, Any] = tomllib.loads(block)["evaluation"]
    assert set(evaluation) == {field.name for field in msgspec.structs.fields(EvaluationSection)}
    for name in set(re.findall(r"`((?:cloud|gateway|journal|transfer|task|network)\.[a-z_.]+)`", PAGE)):
        assert describe_field(Settings, name.split(".")) is not None, name


@pytest.mark.parametrize("link", re.findall(r"\]\(([a-z/.\-]+)\)", PAGE))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (Path(__file__).parents[2] / "docs" / link).is_file()
