"""Composition of settings: defaults < task < network < preset < method < run file < `--set`.

Unknown keys, wrong types and values out of range are errors. The message names the setting, where it was written, and
the nearest valid name or the range.
"""

from __future__ import annotations

import copy
import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.assembly.settings.checks.client_tasks import check_client_settings
from async_hfl.assembly.settings.checks.consistency import PACKAGED, check
from async_hfl.assembly.settings.checks.own_optimiser import check_own_optimiser
from async_hfl.assembly.settings.checks.target_range import check_targets
from async_hfl.assembly.settings.field_types import Section
from async_hfl.assembly.settings.named_files import (
    FROM_FILE,
    ending_hint,
    is_method_file,
    is_network_file,
    network_kind_of,
    read_method,
    read_toml,
)
from async_hfl.assembly.settings.network_kinds import devices_of_file
from async_hfl.assembly.settings.renamed import renaming, without_removed
from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.assembly.settings.type_description import describe_field
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_settings
from async_hfl.core.errors import SettingsError

Table = dict[str, Any]
Layer = tuple[str, Table]
"""A source, as messages name it, and the settings it gives."""
_INFINITE = "inf"
"""Infinity in a manifest, since JSON has no such number."""
_OPTION = "--set "
UNLIMITED = "unlimited"
_NO_LIMIT = 1e15
KINDS = {"task": "tasks", "network": "networks", "preset": "presets", "method": "methods"}
"""Kinds of packaged settings files -> their folders."""


@dataclass(frozen=True, slots=True)
class Composed:
    """Resolved settings, and the choice of files that they were composed from."""

    choice: RunChoice
    settings: Settings


def available(kind: str) -> dict[str, str]:
    """Return the one-line descriptions of the packaged files of a kind, by name."""
    return {name: str(table.get("description", "")) for name, table in _files(kind).items()}


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
    """Compose settings from a run file and `--set` texts. Arguments take precedence over the file's [run] table."""
    own = {} if file is None else read_toml(file, "give the path of a run file, or leave it out")
    choice_table = own.pop("run", {})
    if not isinstance(choice_table, dict):
        raise SettingsError(f"{file}: run must be a table, [run]")
    given = {"task": task, "method": method, "network": network, "preset": preset, "seed": seed}
    _check_keys(choice_table, RunChoice, "run", str(file))
    choice_table = {**choice_table, **{key: value for key, value in given.items() if value is not None}}
    choice = _convert(choice_table, RunChoice, "run", {"run": str(file)} if file else {})
    return Composed(choice, resolve(choice, layers(choice, own, str(file), overrides)))


def layers(choice: RunChoice, own: Table, file: str, overrides: Sequence[str]) -> list[Layer]:
    """Return the layers, each of which overrides those before it. The defaults are in the schema."""
    found: list[Layer] = []
    for kind in KINDS:
        name = getattr(choice, kind)
        if kind in ("task", "network") and is_user_code(name):
            continue  # `resolve` asks the user's task for its settings; a user's network has no settings file
        own_method = kind == "method" and is_method_file(name)
        table = read_method(name) if own_method else _packaged(kind, network_kind_of(name))
        source = name if own_method else f"{kind} {name}"
        table.pop("description", None)
        by_task, by_method = table.pop("tasks", {}), table.pop("methods", {})
        found.append((source, table))
        if choice.task in by_task:
            found.append((f"{source}, task {choice.task}", by_task[choice.task]))
        if choice.method in by_method:
            found.append((f"{source}, method {choice.method}", by_method[choice.method]))
        if kind == "network" and is_network_file(name):
            found.append((f"--network {name}", {"network": {"path": name}}))
    return [*found, (file, own), *((f"{_OPTION}{text}", parse_override(text)) for text in overrides)]


def resolve(choice: RunChoice, given: Sequence[Layer]) -> Settings:
    """Merge the layers into checked settings."""
    merged: Table = {}
    origin: dict[str, str] = {}
    for source, table in given:
        _drop_former_directions(merged, table, origin, source)
        _merge(merged, table, origin, source)
    # The settings include the names of task and network, so that a manifest is complete.
    for kind in ("task", "network"):
        name = network_kind_of(choice.network) if kind == "network" else choice.task
        given_name = merged.setdefault(kind, {}).setdefault("name", name)
        if given_name != name:
            raise SettingsError(
                f"{kind}.name = {given_name!r} ({origin[f'{kind}.name']}): the {kind} is {name}; choose another with "
                f"--{kind}, or as {kind} under [run]"
            )
    if is_network_file(choice.network) and merged["network"]["path"] != choice.network:
        path, source = merged["network"]["path"], origin["network.path"]
        raise SettingsError(
            f"network.path = {path!r} ({source}): the network is {choice.network}; leave out one of the two"
        )
    if network_kind_of(choice.network) == FROM_FILE and origin.get("task.devices", "task ").startswith(PACKAGED):
        devices = devices_of_file(str(merged["network"].get("path", "")))
        if devices is not None:
            _merge(merged, {"task": {"devices": devices}}, origin, "network file")
    _use_all_samples_for_other_device_counts(merged, origin, given)
    if is_user_code(choice.task):
        # Check the settings before the user's function is called, so that it never gets an invalid number of devices.
        usual: Settings = _convert(merged, Settings, "", origin)
        own = own_settings(choice.task, merged["task"].get("devices"), choice.seed, usual.task.devices)
        added = {key: value for key, value in own.items() if key not in merged["task"]}
        _merge(merged, {"task": added}, origin, f"task {choice.task}")
    settings: Settings = _convert(merged, Settings, "", origin)
    bandwidth_share(settings.gateway.bandwidth)
    latency_quantile(settings.gateway.round_deadline)
    participation_share(settings.selection.participants, settings.task.devices)
    check(settings, origin)
    check_targets(settings, choice.seed, origin)
    check_own_optimiser(settings, choice.seed, origin)
    check_client_settings(settings, choice.seed, origin)
    return settings


def _drop_former_directions(merged: Table, table: Table, origin: dict[str, str], source: str) -> None:
    """Let `transfer.encoding` replace what earlier files give for one direction. All `--set` count as one layer."""
    own = table.get("transfer")
    if not isinstance(own, dict) or "encoding" not in own:
        return
    for direction in ("up", "down"):
        former = origin.get(f"transfer.{direction}", source)
        if former != source and not former.startswith(_OPTION):
            del merged["transfer"][direction], origin[f"transfer.{direction}"]


def _use_all_samples_for_other_device_counts(merged: Table, origin: dict[str, str], given: Sequence[Layer]) -> None:
    """Split the whole training set if the number of devices is not the one in the task's file.

    The `samples_per_device` in that file is meant for its number of devices; a value that the user gives is kept.
    """
    source, task = given[0]
    if origin.get("task.samples_per_device") == source and merged["task"]["devices"] != task["task"]["devices"]:
        _merge(merged, {"task": {"samples_per_device": "all"}}, origin, "another number of devices")


def parse_override(text: str) -> Table:
    """Return `section.key=value` as a table. The value is parsed as TOML, or else taken as a string."""
    key, separator, value = text.partition("=")
    path = key.strip().split(".")
    if not separator or not all(path) or not 2 <= len(path) <= 3:
        raise SettingsError(f"--set {text}: write it as section.key=value, for example --set gateway.epochs=10")
    try:
        parsed = tomllib.loads(f"x = {value.strip()}")["x"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    if len(path) == 3:
        parsed = {path[2]: parsed}
    return {path[0]: {path[1]: parsed}}


def merged_overrides(overrides: Sequence[str]) -> Table:
    """Return `--set` texts as one table; of two for the same setting, the last one counts."""
    merged: Table = {}
    for text in overrides:
        _merge(merged, parse_override(text), {}, f"--set {text}")
    return merged


def bandwidth_share(value: float | str) -> float | None:
    """Return 0.5 for "50%"; None for bytes per second and for "unlimited"."""
    if not isinstance(value, str) or value == UNLIMITED:
        return None
    share = _percentage(value)
    if not 0 < share < float("inf"):
        raise SettingsError(
            f"gateway.bandwidth: {value!r} is neither bytes per second (20000) nor a share of the demand ('50%') nor "
            f"'{UNLIMITED}'"
        )
    return share


def latency_quantile(value: float | str) -> float | None:
    """Return 0.75 for the `gateway.round_deadline` "75%"; None for seconds."""
    if not isinstance(value, str):
        return None
    quantile = _percentage(value)
    if not 0 < quantile <= 1:
        raise SettingsError(
            f"gateway.round_deadline: {value!r} is neither a number of seconds (200, or inf for no deadline) nor a "
            "quantile of the round latencies ('75%')"
        )
    return quantile


def participation_share(value: int | str, devices: int) -> float:
    """Return `selection.participants` as a share of all devices; 0 for "auto"."""
    if value == "auto":
        return 0.0
    share = _percentage(value) if isinstance(value, str) else value / devices
    if not 0 < share <= 1:
        raise SettingsError(
            f"selection.participants = {value!r}: is neither a number of devices (of {devices}) nor a share of them "
            "('30%') nor 'auto'"
        )
    return share


def _percentage(text: str) -> float:
    """Return 0.5 for "50%", NaN for any other text."""
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
    except ValueError:
        return math.nan


def bytes_per_second(value: float | str) -> float:
    """Return B_j if it is not a share of the demand; "unlimited" becomes more than any network carries."""
    return _NO_LIMIT if value == UNLIMITED else float(value)


def as_table(settings: Section) -> Table:
    """Return settings as plain data for a manifest; `settings_from` is the inverse."""
    table: Table = msgspec.to_builtins(settings)
    return {section: _replaced(values, math.inf, _INFINITE) for section, values in table.items()}


def settings_from(table: Table) -> Settings:
    """Return settings from the plain data in a manifest. Settings that are gone are left out if they had no effect."""
    table = {
        section: without_removed(section, values) if isinstance(values, dict) else values
        for section, values in table.items()
    }
    merged: Table = {}
    origin: dict[str, str] = {}
    _merge(merged, table, origin, "the manifest")
    finite = {section: _replaced(values, _INFINITE, math.inf) for section, values in merged.items()}
    settings: Settings = _convert(finite, Settings, "", origin)
    return settings


def _replaced(values: Table, old: object, new: object) -> Table:
    return {key: new if value == old else value for key, value in values.items()}


def packaged_tables(kind: str) -> dict[str, Table]:
    """Return the packaged files of a kind, by name."""
    return copy.deepcopy(_files(kind))


@cache
def _files(kind: str) -> dict[str, Table]:
    """Return the packaged files of a kind, cached since a sweep composes settings thousands of times."""
    folder = files("async_hfl.assembly") / KINDS[kind]
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name: tomllib.loads((folder / f"{name}.toml").read_text()) for name in names}


def _packaged(kind: str, name: str) -> Table:
    names = available(kind)
    if name not in names:
        hint = ending_hint(kind, name) or f"{nearest(name, list(names))}; `async-hfl {kind}s` lists them all"
        raise SettingsError(f"unknown {kind} {name!r}{hint}")
    return copy.deepcopy(_files(kind)[name])


@cache
def _field_types(section: type[Section]) -> dict[str, Any]:
    """Return the type of each setting, cached since msgspec evaluates the annotations at every call."""
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _merge(into: Table, table: Mapping[str, Any], origin: dict[str, str], source: str) -> None:
    """Add a layer's settings, and record their source in `origin`."""
    sections = _field_types(Settings)
    for section, values in table.items():
        renamed = renaming(section, values if isinstance(values, dict) else {})
        if renamed is not None:
            raise SettingsError(f"{source}: {renamed}")
        if section not in sections:
            raise SettingsError(f"unknown section {section!r} in {source}{nearest(section, list(sections))}")
        if not isinstance(values, dict):
            raise SettingsError(f"{section} in {source} must be a table of settings, not {values!r}")
        target = into.setdefault(section, {})
        _check_keys(values, sections[section], section, source)
        inner = _field_types(sections[section])
        for key, value in values.items():
            origin[f"{section}.{key}"] = source
            if isinstance(value, dict) and isinstance(inner[key], type) and issubclass(inner[key], Section):
                _check_keys(value, inner[key], f"{section}.{key}", source)
                target.setdefault(key, {}).update(value)
                origin.update({f"{section}.{key}.{name}": source for name in value})
            elif isinstance(value, dict) and isinstance(target.get(key), dict):
                target[key] = {**target[key], **value}
            else:
                target[key] = value


def _check_keys(values: Mapping[str, Any], kind: type[Section], section: str, source: str) -> None:
    for key in values:
        if key not in kind.__struct_fields__:
            meant = nearest(key, kind.__struct_fields__, section)
            raise SettingsError(f"unknown setting {section}.{key} in {source}{meant}")


def nearest(name: str, names: Sequence[str], section: str = "") -> str:
    """Return the end of a message about an unknown name: the one that was probably meant, or all of them."""
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    prefix = f"{section}." if section else ""
    return f"; did you mean {prefix}{found[0]}?" if found else f"; there are: {', '.join(prefix + n for n in names)}"


def _convert(table: Table, kind: type[Any], prefix: str, origin: Mapping[str, str]) -> Any:
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        parts = [part for part in where.rstrip("`").split(".") if part]
        path = ".".join((prefix, *parts)) if prefix else ".".join(parts)
        value: Any = table
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else value
        source = origin.get(path) or origin.get(prefix)
        wanted = describe_field(kind, parts)
        raise SettingsError(
            f"{path or 'settings'}"
            + (f" = {value!r}" if parts else "")
            + (f" ({source})" if source else "")
            + (f": must be {wanted}" if wanted else f": {what[:1].lower()}{what[1:]}")
        ) from error
