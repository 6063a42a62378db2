"""Run files that explain themselves, as `async-hfl init` writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from async_hfl.assembly.settings.checks.consistency import check
from async_hfl.assembly.settings.documentation.entries import Setting, reference
from async_hfl.assembly.settings.documentation.toml_text import toml_value
from async_hfl.assembly.settings.loading import Composed, Table
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import SettingsError

_WIDTH = 118
_CHOSEN = ("task.name", "network.name")
"""Settings that the table [run] determines."""


def run_file(composed: Composed, given: Table, *, everything: bool) -> str:
    """Return a run file for a choice of files and `given` settings.

    The given settings are set; others stand behind # with the values that they have then: those that differ from the
    defaults, or with `everything` all that have an effect.
    """
    choice = msgspec.structs.asdict(composed.choice)
    lines = [
        "# A run file: `async-hfl run FILE`. Remove the # before a setting to change it; --set changes it once.",
        "# `async-hfl settings SECTION.KEY` explains a setting, and docs/settings.md lists all.",
        "",
        "[run]",
        *(f"{key} = {toml_value(value)}" for key, value in choice.items()),
    ]
    resolved = msgspec.to_builtins(composed.settings)
    for section in reference():
        tables: dict[str, list[str]] = {}
        for setting in section.settings:
            table, _, key = setting.path.rpartition(".")
            value, chosen = _at(resolved, setting.path), _at(given, setting.path)
            if setting.path in _CHOSEN or value is None or not _has_effect(composed.settings, setting.path):
                continue
            text = f"{key} = {toml_value(value if chosen is None else chosen)}"
            if chosen is not None:
                tables.setdefault(table, []).extend([*_comment(setting), text])
            elif everything or toml_value(value) != setting.default:
                tables.setdefault(table, []).extend([*_comment(setting), f"# {text}"])
        for table, body in tables.items():
            lines += ["", f"[{table}]", *body]
    return "\n".join(lines) + "\n"


def _has_effect(settings: Settings, path: str) -> bool:
    """False if the setting would be refused in a run file, because nothing reads it in this run."""
    try:
        check(settings, {path: "the run file"})
    except SettingsError:
        return False
    return True


def _comment(setting: Setting) -> list[str]:
    """Return what the setting means, in lines."""
    unit = f" ({setting.unit})" if setting.unit else ""
    words = f"{setting.meaning or setting.path}{unit} Default: {setting.default}; {setting.range}.".split()
    lines = ["#"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("#")
        lines[-1] += f" {word}"
    return lines


def _at(table: Table, path: str) -> Any:
    found: Any = table
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found
