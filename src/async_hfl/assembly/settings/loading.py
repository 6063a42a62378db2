"""Composing settings: defaults < task < network < preset < method < FILE < --set. Strict, and helpful about it.

An unknown key, a wrong type or a value out of range is an error that names the key, where it was written and the
nearest valid name or the range. Nothing is ever silently ignored.
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

from async_hfl.assembly.settings.network_kinds import BY_RADIO, DEPLOYED, READ_BY, devices_of_file, network_kind
from async_hfl.assembly.settings.schema import LifeSection, RadioSection, RunChoice, Section, Settings
from async_hfl.assembly.settings.type_description import expected
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_settings
from async_hfl.core.errors import SettingsError
from async_hfl.learning.partition import PARTITIONERS
from async_hfl.learning.tasks.catalogue import TASKS

Table = dict[str, Any]
Layer = tuple[str, Table]
"""Where it was written, and what it says."""
_INFINITE = "inf"
"""Infinity in a manifest, which is JSON and has no such number."""
_MAY_BE_INFINITE = {"association.link_stretch", "gateway.round_patience"} | {
    f"life.{thing}_up" for thing in ("device", "link", "gateway")
}
_PACKAGED = ("task ", "network ", "preset ", "method ")
"""How the sources of our own files begin: they may set what only some of the choices they go with will read."""
_READ_BY = {
    "gateway.period": ("gateway.aggregation", {"periods"}),
    "gateway.round_patience": ("gateway.aggregation", {"rounds"}),
    "gateway.drag": ("gateway.aggregation", {"mix"}),
    "gateway.mixing_weight": ("gateway.aggregation", {"mix"}),
    "cloud.mixing_weight": ("cloud.aggregation", {"mix"}),
    "selection.inside_tier": ("selection.policy", {"tifl"}),
    "association.file": ("association.policy", {"fixed"}),
    "association.redraw": ("association.policy", {"random"}),
    "utility.sketch_size": ("utility.compression", {"sketch"}),
    "utility.components": ("utility.compression", {"pca"}),
}
"""Settings that only some choices read: which choice, and which of its values do."""
_known_fields: dict[type[Any], tuple[msgspec.structs.FieldInfo, ...]] = {}
_DEPLOYED = (
    "evaluation.",
    "journal.",
    "cloud.start",
    "cloud.gateway_patience",
    "cloud.linger",
    "cloud.lost_patience",
    "gateway.cloud_patience",
    "gateway.linger",
)
_SIMULATED = ("life.", "simulation.", "radio.")
UNLIMITED = "unlimited"
_NO_LIMIT = 1e15
KINDS = {"task": "tasks", "network": "networks", "preset": "presets", "method": "methods"}


@dataclass(frozen=True, slots=True)
class Composed:
    """Settings as resolved, and what they were composed of."""

    choice: RunChoice
    settings: Settings


def available(kind: str) -> dict[str, str]:
    """Name -> one-line description of the files of a kind."""
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
    own: Table = {}
    if file is not None:
        own = _read_toml(file)
    choice_table = own.pop("run", {})
    if not isinstance(choice_table, dict):
        raise SettingsError(f"{file}: run must be a table, [run]")
    given = {"task": task, "method": method, "network": network, "preset": preset, "seed": seed}
    _check_keys(choice_table, RunChoice, "run", str(file))
    choice_table = {**choice_table, **{key: value for key, value in given.items() if value is not None}}
    choice = _convert(choice_table, RunChoice, "run", {"run": str(file)} if file else {})
    return Composed(choice, resolve(choice, layers(choice, own, str(file), overrides)))


def layers(choice: RunChoice, own: Table, file: str, overrides: Sequence[str]) -> list[Layer]:
    """What is composed, each later one over the earlier ones; defaults stand in the settings themselves."""
    found: list[Layer] = []
    for kind in ("task", "network", "preset", "method"):
        name = getattr(choice, kind)
        if kind in ("task", "network") and is_user_code(name):
            continue  # its settings come with the file: see `resolve`
        table = _packaged(kind, name)
        table.pop("description", None)
        by_task = table.pop("tasks", {})
        found.append((f"{kind} {name}", table))
        if choice.task in by_task:
            found.append((f"{kind} {name}, task {choice.task}", by_task[choice.task]))
    return [*found, (file, own), *((f"--set {text}", parse_override(text)) for text in overrides)]


def resolve(choice: RunChoice, given: Sequence[Layer]) -> Settings:
    merged: Table = {}
    origin: dict[str, str] = {}
    for source, table in given:
        _merge(merged, table, origin, source)
    # These choices are part of the settings too, so that a manifest alone says what ran.
    for kind in ("task", "network"):
        name = getattr(choice, kind)
        given_name = merged.setdefault(kind, {}).setdefault("name", name)
        if given_name != name:
            raise SettingsError(
                f"{kind}.name = {given_name!r} ({origin[f'{kind}.name']}): the {kind} is {name}; choose another with "
                f"--{kind}, or as {kind} under [run]"
            )
    if choice.network == "file" and origin.get("task.devices", "task ").startswith(_PACKAGED):
        devices = devices_of_file(str(merged["network"].get("path", "")))
        if devices is not None:
            _merge(merged, {"task": {"devices": devices}}, origin, "network file")
    _deal_anew(merged, origin, given)
    if is_user_code(choice.task):
        # Checked once without what the task says, since a wrong number of devices must not reach the user's function.
        usual: Settings = _convert(merged, Settings, "", origin)
        own = own_settings(choice.task, merged["task"].get("devices"), choice.seed, usual.task.devices)
        said = {key: value for key, value in own.items() if key not in merged["task"]}
        _merge(merged, {"task": said}, origin, f"task {choice.task}")
    settings: Settings = _convert(merged, Settings, "", origin)
    _check(settings, origin)
    return settings


def _deal_anew(merged: Table, origin: dict[str, str], given: Sequence[Layer]) -> None:
    """How many samples a device holds goes with the task's number of devices: with another number the whole training
    set is dealt over them, unless somebody says otherwise."""
    source, task = given[0]
    if origin.get("task.samples_per_device") == source and merged["task"]["devices"] != task["task"]["devices"]:
        _merge(merged, {"task": {"samples_per_device": "all"}}, origin, "another number of devices")


def settings_from(table: Table) -> Settings:
    """Settings as a manifest holds them."""
    merged: Table = {}
    origin: dict[str, str] = {}
    _merge(merged, table, origin, "the manifest")
    finite = {section: _replaced(values, _INFINITE, math.inf) for section, values in merged.items()}
    settings: Settings = _convert(finite, Settings, "", origin)
    return settings


def parse_override(text: str) -> Table:
    """`a.b=c` as a table; c is read as TOML where it is TOML, else taken as a string."""
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


def bandwidth_share(value: float | str) -> float | None:
    """0.5 of "50%"; None for a number of bytes per second, or for no limit at all."""
    if not isinstance(value, str) or value == UNLIMITED:
        return None
    try:
        share = float(value.removesuffix("%")) / 100 if value.endswith("%") else float("nan")
    except ValueError:
        share = float("nan")
    if not 0 < share < float("inf"):
        raise SettingsError(
            f"gateway.bandwidth: {value!r} is neither bytes per second (20000) nor a share of the demand ('50%') nor "
            f"'{UNLIMITED}'"
        )
    return share


def bytes_per_second(value: float | str) -> float:
    """B_j where it is no share; without a limit, more than any network carries."""
    return _NO_LIMIT if value == UNLIMITED else float(value)


def _check(settings: Settings, origin: Mapping[str, str]) -> None:
    """What no single field can say."""
    for section, values in msgspec.to_builtins(settings).items():
        for key, value in values.items():
            path = f"{section}.{key}"
            if isinstance(value, float) and not math.isfinite(value) and path not in _MAY_BE_INFINITE:
                raise SettingsError(f"{path} = {value} ({origin.get(path)}): must be a finite number")
    bandwidth_share(settings.gateway.bandwidth)
    if settings.gateway.aggregation == "relay" and settings.cloud.aggregation == "average":
        raise SettingsError(
            "cloud.aggregation = 'average' waits for every gateway's model, and a relay sends single updates: "
            "take gateway.aggregation = 'rounds' or 'periods', or cloud.aggregation = 'mix'"
        )
    if settings.utility.compression == "pca" and not settings.warmup.enabled:
        raise SettingsError(
            "utility.compression = 'pca' is fitted to the gradients of the warm-up, and warmup.enabled is false: "
            "take 'sketch', which needs none, or let the run warm up"
        )
    network = settings.network
    for low, high in (("min_rate", "max_rate"), ("min_compute", "max_compute")):
        if getattr(network, low) > getattr(network, high):
            raise SettingsError(f"network.{low} = {getattr(network, low)} is above network.{high}: swap them")
    if settings.device.learning_rate > 1e3:
        raise SettingsError(f"device.learning_rate = {settings.device.learning_rate} cannot be meant")
    _check_read(settings, origin)
    _check_life(settings.life, origin)


def _check_life(life: LifeSection, origin: Mapping[str, str]) -> None:
    """What would be ignored in silence here too."""
    idle = {f"{thing}_down": f"{thing}_up" for thing in ("device", "link", "gateway") if math.isinf(_up(life, thing))}
    if life.distribution != "log-normal":
        idle["spread"] = "distribution = 'log-normal'"
    if life.stragglers == 0.0 and not life.schedule and not life.file:
        idle["straggler_factor"] = "stragglers"
    if life.stragglers == 0.0:
        idle["straggler_from"] = "stragglers"
    for key, needed in idle.items():
        if source := origin.get(f"life.{key}"):
            raise SettingsError(f"life.{key} ({source}): does nothing without life.{needed}; set that too")


def _up(life: LifeSection, thing: str) -> float:
    seconds: float = getattr(life, f"{thing}_up")
    return seconds


def _check_read(settings: Settings, origin: Mapping[str, str]) -> None:
    """A setting that the chosen task or network does not read would be ignored in silence."""
    task, network = settings.task, settings.network
    if task.name == "null":
        read = {"model_size"}
    elif is_user_code(task.name):
        read = {"refresh"}
    else:
        known, dealt = TASKS.get(task.name), PARTITIONERS.get(task.partition)
        read = {"partition", "refresh", *(known.reads if known else ()), *(dealt.arguments if dealt else ())}
    dealt_by = "" if is_user_code(task.name) else f" with the partition {task.partition}"
    kind = network_kind(network)
    by_radio = {field.name for field in _fields(RadioSection)} if kind in BY_RADIO else set()
    for path, (decider, values) in _READ_BY.items():
        section, key = decider.split(".")
        chosen = getattr(getattr(settings, section), key)
        if path in origin and not origin[path].startswith(_PACKAGED) and chosen not in values:
            raise SettingsError(f"{path} ({origin[path]}): with {decider} = {chosen!r} nobody reads it; leave it out")
    _check_shell(settings, origin)
    for section, keys, what in (
        ("task", read | {"name", "devices", "target"}, f"the task {task.name}{dealt_by}"),
        ("network", READ_BY[kind] | {"name"}, f"the network {kind}"),
        ("radio", by_radio, f"the network {kind}"),
    ):
        for path, source in origin.items():
            own = not source.startswith(_PACKAGED)
            if own and path.startswith(f"{section}.") and path.removeprefix(f"{section}.") not in keys:
                raise SettingsError(f"{path} ({source}): {what} does not read it; leave it out")


@cache
def _files(kind: str) -> dict[str, Table]:
    """Read once: a plan of a thousand runs composes a thousand times."""
    folder = files("async_hfl.assembly") / KINDS[kind]
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name: tomllib.loads((folder / f"{name}.toml").read_text()) for name in names}


def _check_shell(settings: Settings, origin: Mapping[str, str]) -> None:
    """Some settings are for simulated runs alone, some for deployed ones."""
    deployed = settings.network.name == DEPLOYED
    others = _SIMULATED if deployed else _DEPLOYED
    told = "the run is deployed" if deployed else "the run is simulated"
    for path, source in origin.items():
        if path.startswith(others) and not source.startswith(_PACKAGED):
            raise SettingsError(f"{path} ({source}): {told}, and nobody reads it; leave it out")


def _packaged(kind: str, name: str) -> Table:
    names = available(kind)
    if name not in names:
        raise SettingsError(f"unknown {kind} {name!r}{_nearest(name, list(names))}; `async-hfl {kind}s` lists them all")
    return copy.deepcopy(_files(kind)[name])


def _read_toml(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: no such file; give the path of a run file, or leave it out") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error


def _fields(section: type[Any]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Kept: msgspec works out annotations anew each time it is asked."""
    if section not in _known_fields:
        _known_fields[section] = msgspec.structs.fields(section)
    return _known_fields[section]


def _merge(into: Table, table: Mapping[str, Any], origin: dict[str, str], source: str) -> None:
    for section, values in table.items():
        known = {field.name: field for field in _fields(Settings)}
        if section not in known:
            raise SettingsError(f"unknown section {section!r} in {source}{_nearest(section, list(known))}")
        if not isinstance(values, dict):
            raise SettingsError(f"{section} in {source} must be a table of settings, not {values!r}")
        target = into.setdefault(section, {})
        _check_keys(values, known[section].type, section, source)
        inner = {field.name: field.type for field in msgspec.structs.fields(known[section].type)}
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


def _check_keys(values: Mapping[str, Any], kind: type[Any], section: str, source: str) -> None:
    keys = [field.name for field in _fields(kind)]
    for key in values:
        if key not in keys:
            raise SettingsError(f"unknown setting {section}.{key} in {source}{_nearest(key, keys, section)}")


def _nearest(name: str, names: Sequence[str], section: str = "") -> str:
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
        wanted = expected(kind, parts)
        raise SettingsError(
            f"{path or 'settings'}"
            + (f" = {value!r}" if parts else "")
            + (f" ({source})" if source else "")
            + (f": must be {wanted}" if wanted else f": {what[:1].lower()}{what[1:]}")
        ) from error


def as_table(settings: Section) -> Table:
    """Settings as plain data for a manifest; `settings_from` reads them back."""
    table: Table = msgspec.to_builtins(settings)
    return {section: _replaced(values, math.inf, _INFINITE) for section, values in table.items()}


def _replaced(values: Table, old: object, new: object) -> Table:
    return {key: new if value == old else value for key, value in values.items()}
