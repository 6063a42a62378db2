"""The settings with defaults, units, ranges and meanings, as `async-hfl settings` and docs/settings.md show them.

The meanings are the texts below the fields in the classes of the schema, which Python does not keep: they are read from
the source.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from async_hfl.assembly.settings.documentation.toml_text import toml_value
from async_hfl.assembly.settings.documentation.units import READERS, UNITS
from async_hfl.assembly.settings.field_types import Section
from async_hfl.assembly.settings.loading import KINDS, nearest, packaged_tables
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.settings.type_description import describe_field
from async_hfl.core.errors import SettingsError

_ONLY = re.compile(r"([A-Za-z_][\w-]+(?:(?:, | )[\w-]+)?): (?=\S)", re.ASCII)
"""The start of a text that says where the setting applies: `mix, periods: ...`, `Deployed: ...`."""
_NOT_A_PLACE = ("auto", "true", "false", "False", "inf")
_ALSO = "Radio networks: "


@dataclass(frozen=True, slots=True)
class Setting:
    path: str
    """section.key"""
    default: str
    """As TOML."""
    range: str
    unit: str
    """Empty for a plain number, a text or a choice."""
    section_reader: str
    """The readers of the section's settings."""
    only: str
    """The only places where the setting applies, if any: a method of aggregation, a kind of network, a task."""
    meaning: str
    set_by: tuple[str, ...] = ()
    """Packaged files that give another value."""

    @property
    def read_by(self) -> str:
        return f"{self.section_reader}; only: {self.only}" if self.only else self.section_reader


@dataclass(frozen=True, slots=True)
class SectionReference:
    name: str
    meaning: str
    settings: tuple[Setting, ...]


@cache
def reference() -> tuple[SectionReference, ...]:
    """Return all sections in the order of the schema."""
    set_by = _set_by()
    found = []
    for field in msgspec.structs.fields(Settings):
        text = " ".join(inspect.cleandoc(field.type.__doc__ or "").split())
        meaning = text.partition(": ")[2]
        settings = tuple(_settings(field.type, [field.name], READERS.get(field.name, "every run"), set_by))
        found.append(SectionReference(field.name, meaning[:1].upper() + meaning[1:], settings))
    return tuple(found)


def find(name: str) -> tuple[SectionReference, ...]:
    """Return the section, or the section with the one setting, of this name."""
    sections = {one.name: one for one in reference()}
    settings = {setting.path: (one, setting) for one in reference() for setting in one.settings}
    if name in sections:
        return (sections[name],)
    if name in settings:
        section, setting = settings[name]
        return (SectionReference(section.name, section.meaning, (setting,)),)
    keys = [path for path in settings if path.rpartition(".")[2] == name]
    if keys:
        return tuple(one for path in keys for one in find(path))
    raise SettingsError(f"there is no section or setting {name!r}{nearest(name, [*sections, *settings])}")


def _settings(kind: type[Section], path: list[str], reader: str, set_by: dict[str, list[str]]) -> Iterator[Setting]:
    texts = _texts(kind)
    for field in msgspec.structs.fields(kind):
        inner = [*path, field.name]
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from _settings(field.type, inner, reader, set_by)
            continue
        name, text = ".".join(inner), texts.get(field.name, "")
        place = _ONLY.match(text)
        only = place[1] if place and not _is_value(place[1], field) else ""
        if only and _ALSO in text[1:]:
            only += f", {_ALSO.lower().rstrip(': ')}"
        yield Setting(
            name,
            _default(field),
            describe_field(kind, [field.name]) or "",
            UNITS.get(name, ""),
            reader,
            only,
            text,
            tuple(set_by.get(name, ())),
        )


def _is_value(word: str, field: msgspec.structs.FieldInfo) -> bool:
    """True if a text begins with one of the setting's own values, whose meaning follows."""
    return word in _NOT_A_PLACE or word == field.default or f"'{word}'" in str(field.type)


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "none" if value is None else toml_value(value)


@cache
def _texts(kind: type[Section]) -> dict[str, str]:
    """Return the texts below the fields of a class."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[name] = " ".join(str(node.value.value).split())
            name = ""
        else:
            name = ""
    return found


def _set_by() -> dict[str, list[str]]:
    """Return what packaged files give each setting, such as `method semi-async: 5`."""
    found: dict[str, list[str]] = {}

    def note(table: dict[str, Any], path: list[str], source: str) -> None:
        for key, value in table.items():
            if isinstance(value, dict) and len(path) < 2:
                note(value, [*path, key], source)
            elif path:
                found.setdefault(".".join([*path, key]), []).append(f"{source}: {toml_value(value)}")

    for kind in KINDS:
        for name, table in packaged_tables(kind).items():
            own = {key: value for key, value in table.items() if key not in ("description", "tasks", "methods")}
            note(own, [], f"{kind} {name}")
            for among in ("tasks", "methods"):
                for chosen, part in table.get(among, {}).items():
                    note(part, [], f"{kind} {name} with {among[:-1]} {chosen}")
    return found
