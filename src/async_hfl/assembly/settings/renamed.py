"""Renamed settings and values. For one release, an old name gives an error that states the new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SINCE = "0.2.0"
SECTIONS = {"life": "outages"}
SETTINGS = {
    "association.link_stretch": "association.max_latency_ratio",
    "engine.ahead": "engine.prefetch",
    "gateway.carry_staleness": "gateway.staleness_clock",
    "simulation.charge_solver": "simulation.solver_seconds",
    "transfer.half": "transfer.encoding",
}
VALUES: dict[str, dict[object, str]] = {
    "engine.vectors": {"card": "device"},
    "transfer.half": {True: "float16", False: "float32"},
}
"""Old name of a setting -> old value -> new value."""
REMOVED = {
    "cloud.evaluate_every": "the model is evaluated at times that are the same for all methods (evaluation.grid, in "
    'seconds); evaluation.grid = "aggregations" evaluates it after every aggregation',
    "transfer.zstd": 'it saved 8 % of the bytes; transfer.encoding = "int8" saves 75 %',
}
"""Old name of a setting -> why it is gone, and what serves instead."""
_WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {"cloud.evaluate_every": (1, 20), "transfer.zstd": (False,)}
"""Values of removed settings that had no effect, or that were the defaults of methods: manifests of earlier releases
contain them."""


def without_removed(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return a section of a manifest without removed settings that had no effect."""
    return {key: value for key, value in values.items() if value not in _WITHOUT_EFFECT.get(f"{section}.{key}", ())}


def renaming(section: str, values: Mapping[str, Any]) -> str | None:
    """Return a message about the first old name or value in a section; None if there is none."""
    if section in SECTIONS:
        path = ".".join([SECTIONS[section], *list(values)[:1]])
        return f"{section} is called {SECTIONS[section]} since {SINCE}: write {path}"
    for key, value in values.items():
        old = f"{section}.{key}"
        if old in REMOVED:
            return f"{old} is gone since 0.3.0: {REMOVED[old]}"
        new = SETTINGS.get(old, old)
        new_value = VALUES.get(old, {}).get(value) if isinstance(value, (str, bool)) else None
        written = new if new_value is None else f'{new} = "{new_value}"'
        if new != old:
            return f"{old} is called {new} since {SINCE}: write {written}"
        if new_value is not None:
            return f'{old} = "{value}" is called "{new_value}" since {SINCE}: write {written}'
    return None
