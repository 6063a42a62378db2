"""The names of a run's task, network and clock, as pages and tables print them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from async_hfl.assembly.settings.named_files import is_network_file
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.objects import is_object, shown

_DEPLOYED, _FROM_FILE = "deployed", "file"


def is_deployed(manifest: Mapping[str, Any]) -> bool:
    """True if real processes made the run."""
    return bool(manifest["network"] == _DEPLOYED)


def clock_name(manifests: Mapping[str, Any] | list[Mapping[str, Any]]) -> str:
    """Return the clock that the times of a run, or of several, were read from."""
    runs = manifests if isinstance(manifests, list) else [manifests]
    kinds = {is_deployed(run) for run in runs}
    return "time" if len(kinds) > 1 else "wall-clock time" if kinds == {True} else "virtual time"


def task_name(manifest: Mapping[str, Any]) -> str:
    return _short(str(manifest["task"]))


def network_name(manifest: Mapping[str, Any]) -> str:
    """Return the name of the network; of one that was read from a file, the file's name."""
    if manifest["network"] == _FROM_FILE:
        return Path(manifest["settings"]["network"]["path"]).name
    return _short(str(manifest["network"]))


def _short(name: str) -> str:
    """Leave out the folder of the user's file, and the digest of an object."""
    if is_object(name):
        return shown(name)
    return Path(name).name if is_user_code(name) or is_network_file(name) else name
