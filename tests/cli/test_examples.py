"""Every example, run with the command in its docstring."""

from __future__ import annotations

import ast
import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import HANG_GUARD_S, PROGRAM, command

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_every_example_has_a_test() -> None:
    assert {f"own_{library}.py" for library in ("jax", "flax", "equinox", "torch", "optax")} <= set(NAMES)
    assert {"decide.py", "own_network.py", "own_policy.py", "run_from_python.py"} <= set(NAMES)
    assert {"decide.py", "own_policy.py", "run_from_python.py"} <= set(NAMES)
    assert {"own_gateway_rule.py", "own_cloud_rule.py"} <= set(NAMES)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(name: str, place: Path) -> str:
    """Execute the command in the example's docstring."""
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 40
    docstring = ast.get_docstring(ast.parse(text), clean=False)
    assert docstring is not None
    (line,) = [line for line in docstring.splitlines() if line.startswith("    ")]
    program, *arguments = shlex.split(line)
    done = subprocess.run(
        [{"python": sys.executable, "async-hfl": PROGRAM}[program], *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_policy(place: Path) -> None:
    out = run("own_policy.py", place)
    assert "async-hfl on digits, nycmesh-paper (tight), seed 1" in out
    assert "reached after" in out


def test_own_network(place: Path) -> None:
    out = run("own_network.py", place)
    assert "async-hfl on digits, own_network.py:street (tight)" in out
    assert "reached after" in out


@pytest.mark.parametrize(("place_of_rule", "rule"), [("gateway", "FedBuff"), ("cloud", "Momentum")])
def test_own_rules(place_of_rule: str, rule: str, place: Path) -> None:
    out = run(f"own_{place_of_rule}_rule.py", place)
    assert "async-hfl on digits, nycmesh-paper (tight), seed 1" in out
    assert "reached after" in out
    named = f"examples/own_{place_of_rule}_rule.py:{rule}"
    done = command("fuzz-faults", "--seeds", "2", "--processes", "1", f"--{place_of_rule}-rule", named, cwd=place)
    assert done.code == 0
    assert "no invariant broken" in done.out
    assert done.out.rstrip().endswith(f"rule {named}: generic invariants only, no checker of its own")


def test_decide(place: Path) -> None:
    """By hand: 0.9 / 200 + 0.3 / 50, at 8 and 32 kB/s; 0.7 against 0.9, less a tenth of the load 0.052."""
    lines = run("decide.py", place).splitlines()
    assert lines[0] == "trigger ['cellar', 'corner'] worth 0.0105"
    assert lines[1] == "alone at its gateway: ['cellar'] worth 0.6948 gap 0.0"


def test_run_from_python(place: Path) -> None:
    lines = run("run_from_python.py", place).splitlines()
    assert ": 90% after " in lines[0]
    assert lines[1].startswith("last row: {'at': ")
    assert float(lines[3].rpartition(": ")[2]) > 0.7


@pytest.mark.parametrize("library", ["jax", "flax", "equinox", "torch", "optax"])
def test_own_tasks(library: str, place: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    out = run(f"own_{library}.py", place)
    assert f"on own_{library}.py:task" in out.replace("\n              ", "")
    assert "reached after" in out
    assert "by device" in out


@pytest.mark.parametrize("library", ["jax", "torch", "optax"])
def test_own_tasks_in_one_place(library: str, place: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    epochs = ("--set", "central.epochs=3", "--set", "central.learning_rate=0.05")
    done = command("central", "--task", f"examples/own_{library}.py:task", *epochs, "--json", cwd=place)
    assert done.code == 0, done.err
    curve = done.json["curve"]
    assert [row["epoch"] for row in curve] == [1, 2, 3]
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert curve[0]["learning_rate"] == 0.05
    assert done.json["final"] == curve[-1]["metric"]


@pytest.mark.parametrize("library", ["flax", "equinox", "torch", "optax"])
def test_a_library_that_is_missing_is_named(library: str, place: Path) -> None:
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    done = command("run", "--task", f"examples/own_{library}.py:task", cwd=place)
    assert done.code == 2
    assert f"examples/own_{library}.py failed while loading: ModuleNotFoundError" in done.told()
    assert f"{library}" in done.told()
