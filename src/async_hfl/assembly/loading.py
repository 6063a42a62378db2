"""Composing settings: defaults < task < network < preset < method < FILE < --set. Strict, and helpful about it.

An unknown key, a wrong type or a value out of range is an error that names the key, where it was written and the
nearest valid name or the range. Nothing is ever silently ignored.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.settings import RunChoice, Section, Settings
from async_hfl.core.errors import SettingsError

Table = dict[str, Any]
KINDS = {"task": "tasks", "network": "networks", "preset": "presets", "method": "methods"}


@dataclass(frozen=True, slots=True)
class Composed:
    """Settings as resolved, and what they were composed of."""

    choice: RunChoice
    settings: Settings


def available(kind: str) -> dict[str, str]:
    """Name -> one-line description of the files of a kind."""
    folder = _folder(kind)
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name: str(tomllib.loads((folder / f"{name}.toml").read_text()).get("description", "")) for name in names}


def compose(
    file: Path | None = None,
    *,
    task: str | None = None,
    method: str | None = None,
    network: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
) -> Composed:
    own: Table = {}
    if file is not None:
        own = _read_toml(file)
    choice_table = own.pop("run", {})
    if not isinstance(choice_table, dict):
        raise SettingsError(f"{file}: run must be a table, [run]")
    given = {"task": task, "method": method, "network": network, "preset": preset, "seed": seed}
    choice_table = {**choice_table, **{key: value for key, value in given.items() if value is not None}}
    choice = _convert(choice_table, RunChoice, "run", {"run": str(file)} if file else {})
    merged: Table = {}
    origin: dict[str, str] = {}
    for kind in ("task", "network", "preset", "method"):
        name = getattr(choice, kind)
        table = _packaged(kind, name)
        table.pop("description", None)
        by_task = table.pop("tasks", {})
        _merge(merged, table, origin, f"{kind} {name}")
        if kind in ("preset", "network"):
            _merge(merged, by_task.get(choice.task, {}), origin, f"{kind} {name}, task {choice.task}")
    _merge(merged, own, origin, str(file))
    for text in overrides:
        _merge(merged, parse_override(text), origin, f"--set {text}")
    # The three choices are part of the settings too, so that a manifest alone says what ran.
    for kind in ("task", "network"):
        section = merged.setdefault(kind, {})
        if isinstance(section, dict):
            section["name"] = getattr(choice, kind)
    settings = _convert(merged, Settings, "", origin)
    _check(settings)
    return Composed(choice, settings)


def settings_from(table: Table) -> Settings:
    """Settings as a manifest holds them."""
    settings: Settings = _convert(table, Settings, "", {})
    return settings


def parse_override(text: str) -> Table:
    """`a.b=c` as a table; c is read as TOML where it is TOML, else taken as a string."""
    key, separator, value = text.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path) or len(path) != 2:
        raise SettingsError(f"--set {text}: write it as section.key=value, for example --set gateway.epochs=10")
    try:
        parsed = tomllib.loads(f"x = {value.strip()}")["x"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return {path[0]: {path[1]: parsed}}


def bandwidth_share(value: float | str) -> float | None:
    """0.5 of "50%"; None for a number of bytes per second."""
    if not isinstance(value, str):
        return None
    try:
        share = float(value.removesuffix("%")) / 100 if value.endswith("%") else float("nan")
    except ValueError:
        share = float("nan")
    if not 0 < share < float("inf"):
        raise SettingsError(
            f"gateway.bandwidth: {value!r} is neither bytes per second (20000) nor a share of the demand ('50%')"
        )
    return share


def _check(settings: Settings) -> None:
    """What no single field can say."""
    bandwidth_share(settings.gateway.bandwidth)
    network = settings.network
    for low, high in (("min_rate", "max_rate"), ("min_compute", "max_compute")):
        if getattr(network, low) > getattr(network, high):
            raise SettingsError(f"network.{low} = {getattr(network, low)} is above network.{high}: swap them")
    if settings.device.learning_rate > 1e3:
        raise SettingsError(f"device.learning_rate = {settings.device.learning_rate} cannot be meant")


def _folder(kind: str) -> Traversable:
    return files("async_hfl.assembly") / KINDS[kind]


def _packaged(kind: str, name: str) -> Table:
    names = available(kind)
    if name not in names:
        raise SettingsError(f"unknown {kind} {name!r}{_nearest(name, list(names))}; `async-hfl {kind}s` lists them all")
    return tomllib.loads((_folder(kind) / f"{name}.toml").read_text())


def _read_toml(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: no such file; give the path of a run file, or leave it out") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error


def _merge(into: Table, table: Mapping[str, Any], origin: dict[str, str], source: str) -> None:
    for section, values in table.items():
        known = {field.name: field for field in msgspec.structs.fields(Settings)}
        if section not in known:
            raise SettingsError(f"unknown section {section!r} in {source}{_nearest(section, list(known))}")
        if not isinstance(values, dict):
            raise SettingsError(f"{section} in {source} must be a table of settings, not {values!r}")
        target = into.setdefault(section, {})
        keys = [field.name for field in msgspec.structs.fields(known[section].type)]
        for key, value in values.items():
            path = f"{section}.{key}"
            if key not in keys:
                raise SettingsError(f"unknown setting {path} in {source}{_nearest(key, keys, section)}")
            target[key] = value
            origin[path] = source


def _nearest(name: str, names: Sequence[str], section: str = "") -> str:
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    prefix = f"{section}." if section else ""
    return f"; did you mean {prefix}{found[0]}?" if found else f"; there are: {', '.join(prefix + n for n in names)}"


def _convert(table: Table, kind: type[Any], prefix: str, origin: Mapping[str, str]) -> Any:
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = ".".join(part for part in (prefix, where.rstrip("`").lstrip(".")) if part)
        value: Any = table
        for part in where.rstrip("`").lstrip(".").split("."):
            value = value.get(part) if isinstance(value, dict) else value
        source = origin.get(path) or origin.get(prefix)
        raise SettingsError(
            f"{path or 'settings'} = {value!r}{f' ({source})' if source else ''}: {what[:1].lower()}{what[1:]}"
        ) from error


def as_table(settings: Section) -> Table:
    """Settings as plain data for a manifest."""
    table: Table = msgspec.to_builtins(settings)
    return table
