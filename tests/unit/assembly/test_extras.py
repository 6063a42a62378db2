"""What works without the extras, and what is said where one is needed. A module that is None cannot be imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.extras import EXTRAS

HANG_GUARD_S = 300
PYPROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
SMALL = ("--task", "null", "--network", "uniform", "--set", "task.devices=6", "--set", "cloud.epochs=3")
WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
from async_hfl.cli import main
sys.exit(main({arguments!r}))
"""


def bare(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command line as if only the dependencies were installed."""
    script = WITHOUT.format(names=list(EXTRAS), arguments=list(arguments))
    call = [sys.executable, "-c", script]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        call, cwd=where, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False, env=environment
    )


def last_line(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=\[ ]", one)[0] for one in requirements}


def test_the_extras_of_the_project() -> None:
    extras = PYPROJECT["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    heavy = {
        "matplotlib",
        "grpcio",
        "protobuf",
        "cryptography",
        "prometheus-client",
        "torch",
        "ray",
        "pandas",
        "dp-accounting",
    }
    assert not heavy & names_of(PYPROJECT["dependencies"])
    assert names_of(extras["plots"]) == {"matplotlib"}
    assert names_of(extras["deployment"]) == {"grpcio", "protobuf", "cryptography", "prometheus-client"}
    assert names_of(extras["privacy"]) == {"dp-accounting"}
    (everything,) = extras["all"]
    assert set(EXTRAS.values()) == set(re.findall(r"\w+", everything.partition("[")[2]))
    assert "async-hfl[plots,deployment,privacy]" in extras["dev"], "the tests need them"


@pytest.mark.long
def test_the_demo_needs_no_extra(tmp_path: Path) -> None:
    done = bare(tmp_path, "demo", "--out", "demo")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "report.html").stat().st_size > 50_000
    assert not (tmp_path / "demo" / "curves.png").exists()
    assert "no pictures were drawn: they need matplotlib; pip install 'async-hfl[plots]'" in done.stdout


def test_runs_and_their_pages_need_no_extra(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert last_line(bare(tmp_path, "run", *SMALL, "--seed", seed, "--out", f"run-{seed}", "--json"))
    assert last_line(bare(tmp_path, "report", "run-1", "--out", "one.html", "--json"))
    assert last_line(bare(tmp_path, "report", "run-1", "run-2", "--out", "two.html", "--out", "two.csv", "--json"))
    assert (tmp_path / "one.html").stat().st_size > 50_000
    assert (tmp_path / "two.html").stat().st_size > 50_000
    shown = last_line(bare(tmp_path, "network", "show", "uniform", "--devices", "5", "--json"))
    assert shown["picture"] is None
    assert (tmp_path / shown["page"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (("report", "run", "--out", "curves.png"), "matplotlib", "plots"),
        (("data", "show", "--task", "digits"), "matplotlib", "plots"),
        (("cluster", "--task", "digits"), "grpc", "deployment"),
        (("certs", "init", "ca", "--federation", "farm"), "cryptography", "deployment"),
        (("cloud", "--task", "null", "--state", "s", "--listen", "127.0.0.1:0", "--insecure"), "", "deployment"),
    ],
)
def test_a_missing_extra_is_named(arguments: tuple[str, ...], module: str, extra: str, tmp_path: Path) -> None:
    if "run" in arguments:
        assert bare(tmp_path, "run", *SMALL, "--out", "run", "--json").returncode == 0
    done = bare(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert f"needs {module}" in line
    assert line.endswith(f"which is not installed; pip install 'async-hfl[{extra}]'")
