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

Further keys of the file or of a case:

label    a name for the runs in place of that of the method
tuning   a tuning file, whose settings replace those in `set`; an empty string: none
panel    a name for the problem; only runs of one problem are compared
role     the part of the runs in a comparison with the best rival: compared (default), equipped or ablation
base     ablation: the label of the runs that it is compared with. It gets their tuned settings, but for those in `set`

Without cases the file is one grid; with cases it is the union of their grids.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.assembly.settings.overrides import value_text
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import SettingsError
from async_hfl.experiments.plans.planned_run import PlannedRun, check_not_tuned, planned
from async_hfl.experiments.tuning.tuning_file import read_tunings

_AXES = ("tasks", "methods", "networks", "presets")
_CASE_KEYS = (*_AXES, "seeds", "set", "vary", "best", "label", "tuning", "role", "base", "panel")
_ROLES = ("compared", "equipped", "ablation")
_MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    runs: tuple[PlannedRun, ...]


def read_plan(file: Path) -> Plan:
    return make_plan(_read_table(file), str(file), file.stem)


def read_contenders(file: Path, seed: int) -> list[PlannedRun]:
    """Return a run of each method and label of a plan, without tuned settings: those that are to be tuned.

    Ablations, which get the settings of others, are left out, and so are cases whose `tuning` is empty.
    """
    table = _read_table(file)
    cases = _cases(table, str(file))
    if any("vary" in one for one in (table, *cases)):
        raise SettingsError(f"{file}: a method has one tuning, not one for each variant; leave out vary")
    wanted = [case for case in cases if case.get("role") != "ablation" and case.get("tuning") != ""]
    if not wanted:
        raise SettingsError(f"{file}: has no case that could be tuned")
    untuned = [{**case, "tuning": "", "seeds": [seed]} for case in wanted]
    found: dict[tuple[str, str, str, str], PlannedRun] = {}
    for run in make_plan({**table, "case": untuned}, str(file), file.stem).runs:
        known = found.setdefault((run.task, run.network, run.preset, run.group), run)
        if known.id != run.id:
            raise SettingsError(
                f"{file}: {run.group} has different settings in {known.panel} and {run.panel}, but one tuning; give "
                'the other case tuning = "", or a label'
            )
    return list(found.values())


def _read_table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: no such file; give the path of a plan (TOML)") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error


def make_plan(table: Mapping[str, Any], where: str, name: str) -> Plan:
    shared = dict(table)
    name = shared.pop("name", name)
    cases = _cases(table, where)
    shared.pop("case", None)
    if not isinstance(name, str) or not name:
        raise SettingsError(f"{where}: name must be a string that is not empty")
    runs: dict[tuple[str, str, int], PlannedRun] = {}
    for number, case in enumerate(cases, 1):
        place = where if cases == [{}] else f"{where}, case {number}"
        for run in _runs(_merged(shared, case, place), place):
            known = runs.setdefault((run.panel, run.group, run.seed), run)
            if known.id != run.id:
                raise SettingsError(
                    f"{place}: {run.group} with seed {run.seed} has other settings in another case; give one of them a "
                    "label of its own"
                )
            if len(runs) > _MOST_RUNS:
                raise SettingsError(f"{where}: more than {_MOST_RUNS:,} runs; split the plan")
    if not runs:
        raise SettingsError(f"{where}: contains no run, because one of its lists is empty")
    return Plan(name, tuple(runs.values()))


def _cases(table: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    cases = table.get("case", [{}])
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases) or not cases:
        raise SettingsError(f"{where}: write each case as a table, [[case]]")
    return cases


def _merged(shared: Mapping[str, Any], case: Mapping[str, Any], where: str) -> dict[str, Any]:
    both = {**shared, **case}
    for key in both:
        if key not in _CASE_KEYS:
            raise SettingsError(
                f"{where}: unknown key {key!r}; a plan has the keys name, case, {', '.join(_CASE_KEYS)}"
            )
    both["own"] = _flat(case.get("set", {}), where)
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
    tuning, role, base = case.get("tuning", ""), case.get("role", "compared"), case.get("base", "")
    panel = case.get("panel")
    if not isinstance(tuning, str) or not isinstance(base, str) or not isinstance(panel, str | None):
        raise SettingsError(f"{where}: tuning (the path of a tuning file), base and panel must be strings")
    if role not in _ROLES or (role == "ablation") != bool(base):
        raise SettingsError(f"{where}: role must be one of {', '.join(_ROLES)}, and only an ablation has a base")
    tunings = read_tunings(tuning) if tuning else None
    fixed = [f"{key}={_text(value, where)}" for key, value in case["set"].items() if key not in varied]
    for names in itertools.product(*axes):
        task, method, network, preset = names
        for values in itertools.product(*varied.values()):
            chosen = [f"{key}={_text(value, where)}" for key, value in zip(varied, values, strict=True)]
            variant = ", ".join(f"{key}={shown(str(value))}" for key, value in zip(varied, values, strict=True))
            for seed in seeds:
                run = planned(
                    task=task,
                    method=method,
                    network=network,
                    preset=preset,
                    seed=seed,
                    overrides=[*fixed, *chosen],
                    label=label,
                    variant=variant,
                    best=best,
                    tuning=tunings,
                    tuned_as=base or None,
                    keep=case["own"] if base else None,
                    panel=panel,
                    role=role,
                    base=base,
                )
                if tunings is not None and run.tuned is None:
                    raise SettingsError(
                        f"{where}: {tuning} has no settings for {run.family} on {run.task} on {run.network} with "
                        f'preset {run.preset}; it has: {tunings.places()}; give this case tuning = "" to leave it out'
                    )
                check_not_tuned([run], varied, f"{where}: vary")
                yield run


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
    """Format a value for `--set`."""
    text = value_text(value)
    if text is None:
        raise SettingsError(f"{where}: {value!r} cannot be the value of a setting")
    return text
