"""The provenance of a run: the seed, user files and software versions that its result depends on, and its directory."""

from __future__ import annotations

import datetime
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from async_hfl.assembly.settings.named_files import is_method_file, short_name
from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.assembly.user_code.loading import file_of, fingerprint
from async_hfl.assembly.user_code.objects import recorded
from async_hfl.core.errors import UserError

_VERSIONED = ("async-hfl", "numpy", "jax", "jaxlib", "highspy")


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise UserError(f"seed {seed}: must be a whole number from 0 to 2^63 - 1")


def place_of(out: str | Path | None, choice: RunChoice, network: str) -> Path:
    """Return the directory of a new run: `out`, or a new one under runs/, named after the run and the time."""
    if out is not None:
        return Path(out)
    task, method, network = map(short_name, (choice.task, choice.method, network))
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = path = Path("runs") / f"{task}-{method}-{network}-s{choice.seed}-{stamp}"
    number = 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def user_files(settings: Settings, start: Path | None = None, method: str = "") -> dict[str, str]:
    """Return the fingerprints of the user's files that a run is made from; that of its method only if it is given."""
    network = settings.network
    files = [network.path, network.download_path, network.fleet if network.fleet.endswith(".csv") else ""]
    files.append(settings.outages.file)
    if settings.association.policy == "fixed":
        files.append(settings.association.file)
    if start is not None:
        files.append(str(start))
    if is_method_file(method):
        files.append(method)
    given = [*(file_of(name) for name in code_names(settings).values()), *files]
    return {file: fingerprint(file) for file in filter(None, given)}


def user_objects(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the objects made in Python that a run uses, as its manifest records them."""
    return recorded(code_names(settings))


def code_names(settings: Settings) -> dict[str, str]:
    """Return the settings that may name code of the user's, and the names."""
    return {
        "task": settings.task.name,
        "network": settings.network.name,
        "selection.policy": settings.selection.policy,
        "association.policy": settings.association.policy,
        "gateway.aggregation": settings.gateway.aggregation,
        "cloud.aggregation": settings.cloud.aggregation,
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that results may depend on to the bit."""
    found = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree without installation
            found[package] = "not installed"
    return found
