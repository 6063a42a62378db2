"""Descriptions of the types of settings in words, for messages such as "must be a whole number >= 1"."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def describe_field(kind: type[Any], path: list[str]) -> str | None:
    """Describe the type of the field at `path` in the struct `kind`; return None if there is no such field."""
    found: Any = kind
    for name in path:
        if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
            return None
        found = next((field.type for field in msgspec.structs.fields(found) if field.name == name), None)
    return None if found is None or not path else _described(inspect.type_info(found))


def _described(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_described(part) for part in kind.types if not isinstance(part, inspect.NoneType))
    if isinstance(kind, inspect.IntType):
        return "a whole number" + _bounds(kind)
    if isinstance(kind, inspect.FloatType):
        return "a number" + _bounds(kind)
    if isinstance(kind, inspect.LiteralType):
        names = ", ".join(f"'{value}'" for value in kind.values)
        return names if len(kind.values) == 1 else f"one of {names}"
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.StrType):
        return "a text"
    if isinstance(kind, inspect.VarTupleType):
        return f"a list, each {_described(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return "a table of values by name"
    return "a table of settings"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    limits = [f" {sign} {limit:g}" for name, sign in _BOUNDS if (limit := getattr(kind, name)) is not None]
    return " and".join(limits)
