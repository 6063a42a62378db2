"""Python from the user's own file: `FILE.py:NAME`."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from async_hfl.core.errors import PolicyError, SettingsError


def is_user_code(name: str) -> bool:
    return ":" in name or name.endswith(".py")


def load_function(setting: str, name: str) -> Callable[..., Any]:
    """The function a setting names; every way this can fail says which setting, which file and why."""
    file, _, attribute = name.rpartition(":")
    if not file or not attribute:
        raise SettingsError(f"{setting} = {name!r}: write it as FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise SettingsError(f"{setting} = {name!r}: there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"async_hfl_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{setting} = {name!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PolicyError(f"{setting}: {file} failed while loading: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise SettingsError(f"{setting}: {file} has no function {attribute!r}; it has: {', '.join(names) or 'none'}")
    return function  # type: ignore[no-any-return]


def fingerprint(name: str) -> str:
    """SHA-256 of the file, so that a resumed run notices that its policy has changed."""
    return hashlib.sha256(Path(name.rpartition(":")[0]).read_bytes()).hexdigest()
