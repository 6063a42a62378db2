"""Changes of settings as Python values: `{"cloud.epochs": 50}`, or the texts of `--set`, `["cloud.epochs=50"]`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from async_hfl.assembly.user_code.objects import name_of_object
from async_hfl.core.errors import SettingsError

Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]
"""A value by setting, `section.key` or in a mapping of each section; or texts `section.key=value`. Policies and
aggregation rules may be functions and classes."""


def override_texts(overrides: Overrides) -> list[str]:
    """Return the changes as texts `section.key=value`. The caller keeps objects among the values alive.

    >>> override_texts({"cloud.epochs": 50, "gateway": {"bandwidth": "50%"}})
    ['cloud.epochs=50', 'gateway.bandwidth="50%"']
    """
    if isinstance(overrides, Mapping):
        return [f"{key}={_text(key, value)}" for key, value in _flat("", overrides)]
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise SettingsError(f'overrides = {overrides!r:.80}: give a mapping, {{"cloud.epochs": 50}}')
    return list(overrides)


def value_text(value: Any) -> str | None:
    """Return a value as TOML: the same as JSON for all values of settings but infinity. None for any other object."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        parts = [value_text(part) for part in value]
        return None if None in parts else f"[{', '.join(filter(None, parts))}]"
    return None


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _text(key: str, value: Any) -> str:
    if value is None:
        raise SettingsError(f"{key} = None: is not a value; leave it out for the default")
    text = value_text(value)
    return json.dumps(name_of_object(key, value)) if text is None else text
