"""Functions, classes and tasks of a user: from a Python file, given as `FILE.py:NAME`, or made in this process."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from async_hfl.assembly.user_code.objects import is_object, object_called, shown
from async_hfl.core.errors import AsyncHflError, DataError, PolicyError, SettingsError, TaskError, UserError


def is_user_code(name: str) -> bool:
    """True if a name means a user's file or object rather than something built in."""
    return ":" in name or name.endswith(".py")


def short_name(name: str) -> str:
    """Return a name for files and directories: that of the user's file or object, or of what is built in."""
    return shown(name) if is_object(name) else Path(file_of(name)).stem if is_user_code(name) else name


def load_function(setting: str, name: str, kind: str = "FUNCTION") -> Callable[..., Any]:
    """Load the function (or CLASS) that a setting names. Errors name the setting, the file and the cause."""
    if is_object(name):
        given = object_called(setting, name)
        if not callable(given):
            raise SettingsError(f"{setting}: {shown(name)} is a {type(given).__name__}; give a {kind.lower()}")
        return given  # type: ignore[no-any-return]
    file, attribute = file_of(name), name.rpartition(":")[2]
    module = _loaded(setting, name, kind, PolicyError)
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise SettingsError(
            f"{setting}: {file} has no {kind.lower()} {attribute!r}; it has: {', '.join(names) or 'none'}"
        )
    return function  # type: ignore[no-any-return]


def load_task(name: str) -> object:
    """Load the task, a value or a function, that `--task` names."""
    if is_object(name):
        found: object = object_called("task", name)
        return found
    return load_object("--task", name, "TASK")


def load_object(option: str, name: str, kind: str = "NAME") -> object:
    """Load any value that an option names."""
    file, attribute = file_of(name), name.rpartition(":")[2]
    module = _loaded(option, name, kind, TaskError)
    if not hasattr(module, attribute):
        names = [key for key in vars(module) if not key.startswith("_")]
        raise SettingsError(f"{option}: {file} has no {attribute!r}; it has: {', '.join(names) or 'nothing'}")
    wanted: object = getattr(module, attribute)
    return wanted


def _loaded(setting: str, name: str, what: str, blame: type[UserError]) -> ModuleType:
    file, attribute = file_of(name), name.rpartition(":")[2]
    if not file or not attribute:
        raise SettingsError(f"{setting} = {name!r}: write it as FILE.py:{what}")
    path = Path(file)
    if not path.is_file():
        raise SettingsError(f"{setting} = {name!r}: there is no file {file}")
    _make_importable(path)
    spec = importlib.util.spec_from_file_location(f"async_hfl_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{setting} = {name!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, among others, look up their module by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise blame(f"{setting}: {file} failed while loading: {describe_error(error, spec.origin)}") from error
    return module


def _make_importable(path: Path) -> None:
    """Let the file import its neighbours: append its folder to the search path, of a package the one around it."""
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def file_of(name: str) -> str:
    """Return the FILE.py of FILE.py:NAME; nothing for an object made in Python."""
    return "" if is_object(name) else name.rpartition(":")[0]


def fingerprint(file: str) -> str:
    """Return the SHA-256 of a file, by which a resumed run detects that the file has changed."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({error.strerror}), and the run needs it; restore it, or change to the directory "
            "in which the run began"
        ) from error


def describe_error(error: BaseException, file: str | None) -> str:
    """Return the error and the line of the user's code that led to it (a SyntaxError names the line itself)."""
    frames = traceback.extract_tb(error.__traceback__)
    own = str(Path(file).resolve()) if file else None
    if own is None and len(frames) > 1:  # the code of an object, in whatever file or cell: what we called
        own = str(Path(frames[1].filename).resolve())
    lines = [frame.lineno for frame in frames if str(Path(frame.filename).resolve()) == own]
    kind = "" if isinstance(error, AsyncHflError) else f"{type(error).__name__}: "
    return f"{kind}{error}" + (f" (line {lines[-1]})" if lines else "")
