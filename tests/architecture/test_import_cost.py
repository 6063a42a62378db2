"""The cost of imports: help and listings do not load the learning libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HANG_GUARD_S = 300
HEAVY = [
    "jax",
    "scipy",
    "highspy",
    "matplotlib",
    "rich",
    "grpc",
    "google.protobuf",
    "cryptography",
    "prometheus_client",
]


def loaded_after(code: str, where: Path) -> set[str]:
    """The heavy libraries that a fresh interpreter has loaded after running this code."""
    script = (
        f"import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()):\n {code}\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=where, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import async_hfl",
        "import async_hfl.cli",
        "import async_hfl.cli, contextlib\n with contextlib.suppress(SystemExit): async_hfl.cli.main(['--help'])",
        "import async_hfl.cli; async_hfl.cli.main(['methods'])",
        "import async_hfl; async_hfl.OwnTask, async_hfl.TorchTask, async_hfl.from_flax",
    ],
)
def test_help_and_listings_are_light(code: str, tmp_path: Path) -> None:
    assert loaded_after(code, tmp_path) == set()


def test_a_run_that_learns_nothing_needs_no_jax(tmp_path: Path) -> None:
    arguments = ["run", "--task", "null", "--network", "uniform", "--set", "cloud.epochs=1", "--json"]
    assert "jax" not in loaded_after(f"import async_hfl.cli; async_hfl.cli.main({arguments})", tmp_path)


def test_a_mistake_is_reported_without_jax(tmp_path: Path) -> None:
    code = "import async_hfl.cli; async_hfl.cli.main(['run', '--set', 'gatway.epochs=3'])"
    assert "jax" not in loaded_after(code, tmp_path)
