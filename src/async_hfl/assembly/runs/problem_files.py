"""Selection and association problems for `async-hfl decide`, as JSON or plain data. Every mistake is an error.

    selection    {"candidates": [{"device": "d1", "learning_utility": 0.4, "round_latency_s": 80.0, "data_rate": 2e4},
                  ...], "capacity": 1e6, "latency_exponent": 1.0}
    association  {"devices": [{"device": "d1", "learning_utility": 0.4}, ...],
                  "gateways": [{"gateway": "g1", "bandwidth": 1e6}, ...],
                  "links": [{"device": "d1", "gateway": "g1", "data_rate": 2e4}, ...],
                  "load_penalty": 0.1, "every_device": true}

`latency_exponent`, `load_penalty` and `every_device` may be left out. Utilities are used as given and may be negative.
Lists may be empty.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.core.policies import AssociationProblem

_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class SelectionTask:
    devices: list[str]
    learning_utility: Floats
    round_latency: Floats
    data_rate: Floats
    capacity: float
    latency_exponent: float


@dataclass(frozen=True, slots=True)
class AssociationTask:
    devices: list[str]
    gateways: list[str]
    problem: AssociationProblem


def read_problem(source: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the data, and its name in messages: the file, or `problem` if the source is plain data."""
    if isinstance(source, Mapping):
        return source, "problem"
    name = str(source)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file; give the path of a problem in JSON") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: cannot be read ({error})") from error
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _without_repeats(pairs, name))
    except json.JSONDecodeError as error:
        raise DataError(f"{name}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{name}: not a problem: it is nested too deeply") from error
    if not isinstance(data, dict):
        raise DataError(f"{name}: must be an object, not {_kind(data)}")
    return data, name


def selection_task(source: str | Path | Mapping[str, Any]) -> SelectionTask:
    table = _Table(*read_problem(source))
    table.check("candidates", "capacity", latency_exponent=None)
    rows = [row.check("device", "learning_utility", "round_latency_s", "data_rate") for row in table.rows("candidates")]
    return SelectionTask(
        _names(rows, "device"),
        np.array([row.number("learning_utility") for row in rows], np.float64),
        np.array([row.number("round_latency_s", above=0.0) for row in rows], np.float64),
        np.array([row.number("data_rate", least=0.0) for row in rows], np.float64),
        table.number("capacity"),
        table.number("latency_exponent", default=1.0),
    )


def association_task(source: str | Path | Mapping[str, Any]) -> AssociationTask:
    table = _Table(*read_problem(source))
    table.check("devices", "gateways", "links", load_penalty=None, every_device=None)
    device_rows = [row.check("device", "learning_utility") for row in table.rows("devices")]
    gateway_rows = [row.check("gateway", "bandwidth") for row in table.rows("gateways")]
    link_rows = [row.check("device", "gateway", "data_rate") for row in table.rows("links")]
    devices, gateways = _names(device_rows, "device"), _names(gateway_rows, "gateway")
    utility = np.array([row.number("learning_utility") for row in device_rows], np.float64)
    bandwidth = np.array([row.number("bandwidth", above=0.0) for row in gateway_rows], np.float64)
    device_at = {name: place for place, name in enumerate(devices)}
    gateway_at = {name: place for place, name in enumerate(gateways)}
    links: dict[tuple[int, int], float] = {}
    for row in link_rows:
        ends = (row.one_of("device", device_at), row.one_of("gateway", gateway_at))
        if ends in links:
            raise row.wrong(f"the link of {devices[ends[0]]!r} to {gateways[ends[1]]!r} is given twice")
        links[ends] = row.number("data_rate", least=0.0)
    pairs = sorted(links)
    return AssociationTask(
        devices,
        gateways,
        AssociationProblem(
            utility,
            bandwidth,
            np.array([device for device, _ in pairs], np.int64),
            np.array([gateway for _, gateway in pairs], np.int64),
            np.array([links[pair] for pair in pairs], np.float64),
            np.ones(len(pairs)),
            table.number("load_penalty", least=0.0, default=0.1),
            table.truth("every_device", default=True),
            0.0,
            np.full(len(devices), -1, np.int64),
            0,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """A JSON object, and its position in the file for messages."""

    values: Mapping[str, Any]
    place: str

    def wrong(self, what: str) -> DataError:
        return DataError(f"{self.place}: {what}")

    def check(self, *required: str, **optional: None) -> _Table:
        known = [*required, *optional]
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
                rest = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
                raise self.wrong(f"unknown key {key!r}; {rest}")
        for key in required:
            if key not in self.values:
                raise self.wrong(f"has no {key!r}")
        return self

    def rows(self, key: str) -> list[_Table]:
        found = self.values[key]
        if not isinstance(found, (list, tuple)):
            raise self.wrong(f"{key} must be a list, not {_kind(found)}")
        rows = []
        for number, row in enumerate(found):
            if not isinstance(row, Mapping):
                raise self.wrong(f"{key}[{number}] must be an object, not {_kind(row)}")
            rows.append(_Table(row, f"{self.place}: {key}[{number}]"))
        return rows

    def number(
        self, key: str, *, least: float = -math.inf, above: float = -math.inf, default: float | None = None
    ) -> float:
        if default is not None and key not in self.values:
            return default
        found = self.values[key]
        if isinstance(found, bool) or not isinstance(found, (int, float, np.integer, np.floating)):
            raise self.wrong(f"{key} must be a number, not {_kind(found)}")
        try:
            value = float(found)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.wrong(f"{key} = {value} must be a finite number")
        if value < least:
            raise self.wrong(f"{key} = {value:g} must be at least {least:g}")
        if value <= above:
            raise self.wrong(f"{key} = {value:g} must be above {above:g}")
        return value

    def truth(self, key: str, *, default: bool) -> bool:
        found = self.values.get(key, default)
        if not isinstance(found, bool):
            raise self.wrong(f"{key} must be true or false, not {_kind(found)}")
        return found

    def name(self, key: str) -> str:
        found = self.values[key]
        if not isinstance(found, str):
            raise self.wrong(f"{key} must be a string, not {_kind(found)}")
        return found

    def one_of(self, key: str, known: Mapping[str, int]) -> int:
        name = self.name(key)
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
            rest = f"; did you mean {near[0]!r}?" if near else ""
            raise self.wrong(f"{key} {name!r} is not among the {key}s{rest}")
        return known[name]


def _names(rows: list[_Table], key: str) -> list[str]:
    seen: dict[str, None] = {}
    for row in rows:
        name = row.name(key)
        if name in seen:
            raise row.wrong(f"{key} {name!r} is given twice")
        seen[name] = None
    return list(seen)


def _without_repeats(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise DataError(f"{name}: {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return table


def _kind(value: object) -> str:
    shown = "null" if value is None else json.dumps(value, default=repr)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
