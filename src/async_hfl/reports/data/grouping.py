"""Find run directories and group them: runs that differ only in their seeds belong to one group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import RunGroup
from async_hfl.reports.tables.formatting import flat_settings


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the run directories among `paths` and below them."""
    found: list[Path] = []
    for path in paths:
        if (path / "manifest.json").is_file() or not path.is_dir():
            found.append(path)
            continue
        inside = sorted(one.parent for one in path.glob("**/manifest.json"))
        if not inside:
            raise RunDirectoryError(
                f"{path}: neither a run directory nor a directory that holds any; `async-hfl run` makes one"
            )
        found += inside
    unique = list(dict.fromkeys(found))
    if not unique:
        raise UserError("no run is named")
    return unique


def group_runs(paths: Sequence[Path]) -> list[RunGroup]:
    """Make one panel per task, network and preset, and in it one group per method and set of differing settings."""
    manifests = {path: RunDirectory.open(path).read_manifest() for path in paths}
    panels: dict[str, dict[str, list[Path]]] = {}
    for path, manifest in manifests.items():
        panels.setdefault(panel_name(manifest), {}).setdefault(str(manifest["method"]), []).append(path)
    return [
        RunGroup(name, tuple(members), panel if len(panels) > 1 else "")
        for panel, methods in panels.items()
        for method, runs in methods.items()
        for name, members in _by_settings(method, runs, manifests).items()
    ]


def panel_name(manifest: dict[str, Any]) -> str:
    return " · ".join(shown(str(manifest[key])) for key in ("task", "network", "preset"))


def _by_settings(method: str, runs: list[Path], manifests: dict[Path, dict[str, Any]]) -> dict[str, list[Path]]:
    settings = {path: flat_settings(manifests[path]["settings"]) for path in runs}
    keys = sorted({key for one in settings.values() for key in one})
    differ = [key for key in keys if len({str(one.get(key)) for one in settings.values()}) > 1]
    parts: dict[str, list[Path]] = {}
    for path in runs:
        values = ", ".join(f"{key}={settings[path].get(key)}" for key in differ)
        parts.setdefault(f"{method} ({values})" if values else method, []).append(path)
    return parts
