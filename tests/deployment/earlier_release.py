"""The source of the first release, checked out of this repository's history, and nodes of a cluster that run it."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from async_hfl.deployment.cluster.local_cluster import LocalCluster

FIRST_RELEASE = "cb394de"
"""The commit of release 0.2.0: protocol version 2, state format 2."""
ROOT = Path(__file__).parents[2]
_SINCE_DROPPED = "zstandard==0.25.0"


def checked_out(folder: Path) -> list[str]:
    """Return the import paths of the release's source, checked out into a folder. Skip where there is no history."""
    command = ["git", "-C", str(ROOT), "archive", FIRST_RELEASE, "src"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the source of release 0.2.0 (commit {FIRST_RELEASE}) is not in this checkout: {error}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    paths = [str(folder / "src")]
    if importlib.util.find_spec("zstandard") is None:
        needed = folder / "needed"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(needed), _SINCE_DROPPED]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(
                f"release 0.2.0 needs {_SINCE_DROPPED}, which cannot be installed: {done.stderr.strip()[-200:]}"
            )
        paths.append(str(needed))
    return paths


def run_by(cluster: LocalCluster, names: Sequence[str], paths: Sequence[str]) -> None:
    """Make these nodes run the source at other import paths; without paths, that of this checkout."""
    for name in names:
        node = cluster.nodes[name]
        if node.arguments[0] == "env":
            del node.arguments[:2]
        if paths:
            node.arguments[:0] = ["env", f"PYTHONPATH={':'.join(paths)}"]
