"""A plan: a TOML file that names a grid of runs.

    tasks = ["digits"]                 # also: methods, networks, presets; each a name or a list of names
    methods = ["async-hfl-plus", "async-random"]
    seeds = 3                          # seeds 1, 2 and 3; or a list

    [set]                              # for every run
    cloud.epochs = 150

    [vary]                             # further dimensions of the grid
    gateway.bandwidth = ["25%", "50%"]

    [[case]]                           # repeatable: another grid, which overrides the keys above
    methods = "semi-async"
    vary.gateway.period = [50, 100, 150]
    best = true                        # the best of these variants represents the method

Without cases the file is one grid; with cases it is the union of their grids.
"""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.core.errors import SettingsError
from async_hfl.experiments.plans.planned_run import PlannedRun, planned

_AXES = ("tasks", "methods", "networks", "presets")
_CASE_KEYS = (*_AXES, "seeds", "set", "vary", "best", "label")
_MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    runs: tuple[PlannedRun, ...]


def read_plan(file: Path) -> Plan:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: no such file; give the path of a plan (TOML)") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error
    return make_plan(table, str(file), file.stem)


def make_plan(table: Mapping[str, Any], where: str, name: str) -> Plan:
    shared = dict(table)
    name = shared.pop("name", name)
    cases = shared.pop("case", [{}])
    if not isinstance(name, str) or not name:
        raise SettingsError(f"{where}: name must be a string that is not empty")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases) or not cases:
        raise SettingsError(f"{where}: write each case as a table, [[case]]")
    runs: dict[str, PlannedRun] = {}
    for number, case in enumerate(cases, 1):
        place = where if cases == [{}] else f"{where}, case {number}"
        for run in _runs(_merged(shared, case, place), place):
            runs.setdefault(run.id, run)
            if len(runs) > _MOST_RUNS:
                raise SettingsError(f"{where}: more than {_MOST_RUNS:,} runs; split the plan")
    if not runs:
        raise SettingsError(f"{where}: contains no run, because one of its lists is empty")
    return Plan(name, tuple(runs.values()))


def _merged(shared: Mapping[str, Any], case: Mapping[str, Any], where: str) -> dict[str, Any]:
    both = {**shared, **case}
    for key in both:
        if key not in _CASE_KEYS:
            raise SettingsError(
                f"{where}: unknown key {key!r}; a plan has the keys name, case, {', '.join(_CASE_KEYS)}"
            )
    for key in ("set", "vary"):
        both[key] = {**_flat(shared.get(key, {}), where), **_flat(case.get(key, {}), where)}
    return both


def _runs(case: Mapping[str, Any], where: str) -> Iterator[PlannedRun]:
    axes = [_names(case, axis, where) for axis in _AXES]
    seeds = _seeds(case.get("seeds", 1), where)
    varied = case["vary"]
    for key, values in varied.items():
        if not isinstance(values, list):
            raise SettingsError(f"{where}: vary.{key} must be a list of values, not {values!r}")
    best, label = case.get("best", False), case.get("label")
    if not isinstance(best, bool) or not isinstance(label, str | None):
        raise SettingsError(f"{where}: best must be true or false, and label a string")
    fixed = [f"{key}={_text(value, where)}" for key, value in case["set"].items() if key not in varied]
    for names in itertools.product(*axes):
        named = dict(zip(("task", "method", "network", "preset"), names, strict=True))
        for values in itertools.product(*varied.values()):
            chosen = [f"{key}={_text(value, where)}" for key, value in zip(varied, values, strict=True)]
            variant = ", ".join(f"{key}={value}" for key, value in zip(varied, values, strict=True))
            for seed in seeds:
                yield planned(**named, seed=seed, overrides=[*fixed, *chosen], label=label, variant=variant, best=best)


def _names(case: Mapping[str, Any], axis: str, where: str) -> Sequence[str | None]:
    given = case.get(axis)
    if given is None:
        return [None]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SettingsError(f"{where}: {axis} must be a name or a list of names, not {given!r}")
    return names


def _seeds(given: Any, where: str) -> list[int]:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return list(range(1, given + 1))
    if isinstance(given, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in given):
        return given
    raise SettingsError(f"{where}: seeds must be a number of seeds (3) or a list ([1, 2, 3]), not {given!r}")


def _flat(table: Any, where: str) -> dict[str, Any]:
    """Return {"cloud.epochs": 3} for both {"cloud": {"epochs": 3}} and {"cloud.epochs": 3}."""
    if not isinstance(table, dict):
        raise SettingsError(f"{where}: set and vary must be tables of settings, not {table!r}")
    flat: dict[str, Any] = {}
    for section, values in table.items():
        if isinstance(values, dict):
            flat.update({f"{section}.{key}": value for key, value in values.items()})
        else:
            flat[section] = values
    return flat


def _text(value: Any, where: str) -> str:
    """Format a value for `--set`, which takes TOML: the same as JSON for all values of settings except infinity."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, bool | int | float | str | list):
        return json.dumps(value)
    raise SettingsError(f"{where}: {value!r} cannot be the value of a setting")
