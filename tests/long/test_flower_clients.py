"""Unedited clients of Flower, with the newest release that installs: in the simulator, in a cluster, on devices.

Flower pins other versions of what this package needs, so the tests have an environment of their own: Flower with what
it requires, and behind it, by a .pth file, the packages of this one (PyTorch among them).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from async_hfl.deployment.processes.listen_address import read_address

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'async-hfl[torch]'")

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / "build" / "flower"
EXAMPLES = ROOT / "examples" / "flower"
HANG_GUARD_S = 900


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of an environment that has Flower."""
    if find_spec("flwr") is not None:
        return sys.executable
    found = ENVIRONMENT / "bin" / "python"
    if not found.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    asked = [str(found), "-m", "pip", "install", "--quiet", "--upgrade", "flwr"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANG_GUARD_S)
    if done.returncode:
        pytest.skip(f"Flower cannot be installed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    own = Path(sysconfig.get_path("purelib", vars={"base": str(ENVIRONMENT), "platbase": str(ENVIRONMENT)}))
    (own / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(found)


def started(python: str, place: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "FLWR_TELEMETRY_ENABLED": "0"}
    return subprocess.Popen(
        [python, "-m", "async_hfl.cli", *arguments],
        cwd=place,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def listening(state: Path, process: subprocess.Popen[str]) -> str:
    """Wait until the node has written the address at which it listens."""
    while (address := read_address(state)) is None:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.2)
    return address


def answer(python: str, place: Path, *arguments: str) -> tuple[dict[str, object], str]:
    out, errors = started(python, place, *arguments, "--json").communicate(timeout=HANG_GUARD_S)
    assert out, errors
    return json.loads(out.splitlines()[-1]), errors


@pytest.mark.parametrize("name", ["messages", "numpy_clients"])
def test_in_the_simulator_with_twenty_devices(python: str, tmp_path: Path, name: str) -> None:
    task = f"{EXAMPLES / name}.py:task"
    settings = ["--set", "task.devices=20", "--set", "cloud.epochs=40", "--seed", "1"]
    found, errors = answer(python, tmp_path, "run", "--task", task, "--method", "async-hfl", *settings)
    assert found["target_reached"] is True, found
    assert errors.count("not reported by the clients") == 1
    again, _ = answer(python, tmp_path, "run", "--task", task, "--method", "async-hfl", *settings)
    assert again["digest"] == found["digest"]


@pytest.mark.parametrize("name", ["messages", "numpy_clients"])
def test_in_a_cluster_with_four_devices(python: str, tmp_path: Path, name: str) -> None:
    task = f"{EXAMPLES / name}.py:task"
    settings = ["--devices", "4", "--gateways", "2", "--set", "cloud.epochs=4", "--seed", "1"]
    found, _ = answer(python, tmp_path, "cluster", "--task", task, *settings)
    assert found["cloud_epochs"] == 4
    assert isinstance(found["device_updates"], int)
    assert found["device_updates"] >= 4


def test_on_devices_that_have_the_client_code_alone(python: str, tmp_path: Path) -> None:
    settings = ["task.devices=2", "network.gateways=1", "cloud.epochs=2", "gateway.epochs=2", "task.target=1"]
    listen = ["--listen", "127.0.0.1:0", "--insecure"]
    given = [part for text in (*settings, "cloud.linger=5") for part in ("--set", text)]
    cloud = started(python, tmp_path, "cloud", "--task", f"{EXAMPLES / 'messages.py'}:task", *given, *listen)
    processes = [cloud]
    try:
        address = listening(tmp_path / "state" / "cloud", cloud)
        processes.append(started(python, tmp_path, "gateway", "--cloud", address, *listen))
        address = listening(tmp_path / "state" / "gateway", processes[-1])
        client = ["--client", f"{EXAMPLES / 'quickstart' / 'client_app.py'}:app"]
        for shard in ("1/2", "2/2"):
            name = ["--name", f"device-{shard[0]}", "--shard", shard, "--insecure"]
            processes.append(started(python, tmp_path, "device", "--gateways", address, *client, *name))
        for process in processes:
            _, errors = process.communicate(timeout=HANG_GUARD_S)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    assert (tmp_path / "state" / "cloud" / "model.safetensors").is_file()


def test_a_client_app_with_a_client_function(python: str, tmp_path: Path) -> None:
    (tmp_path / "wrapped.py").write_text(
        f"import sys\nsys.path.append({str(EXAMPLES)!r})\n"
        "from quickstart.numpy_client import Net, app\n"
        "from async_hfl.adapters import flower\n"
        "task = flower(app, model=Net, target=1.0, run_config={'batch-size': 16, 'local-epochs': 1})\n"
    )
    settings = ["--set", "task.devices=4", "--set", "network.gateways=1", "--set", "cloud.epochs=2"]
    found, _ = answer(python, tmp_path, "run", "--task", "wrapped.py:task", "--method", "async-hfl", *settings)
    assert found["cloud_epochs"] == 2
