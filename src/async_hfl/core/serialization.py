"""Conversion of values to plain data and back, for snapshots, checkpoints and logs.

Plain data are None, bool, int, float, str, numpy arrays, and lists and dicts of these. Tuples, sets, non-string keys
and registered classes are tagged, so that `from_plain(to_plain(x)) == x`. Nothing is pickled: only registered classes
are instantiated. Use `value` for a frozen dataclass, `plain` for any other dataclass or NamedTuple.

New fields are added at the end of a class, with defaults. Data that was stored before lacks them, and the defaults are
filled in. A change that cannot be made in that way needs a conversion of the former fields (`earlier`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from types import MemberDescriptorType
from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.vectors import DeviceEncoded, DeviceVector, StoredEncoded

Plain: TypeAlias = Any
"""Plain data, a recursive type that is not spelled out."""

C = TypeVar("C", bound=type)

_CLASS, _FIELDS, _TUPLE, _SET, _PAIRS, _ENCODED = "$class", "fields", "$tuple", "$set", "$pairs", "$encoded"
_registry: dict[str, type] = {}
_field_names: dict[type, tuple[str, ...]] = {}
_defaults: dict[type, tuple[Callable[[], Any] | None, ...]] = {}
_earlier: dict[tuple[type, int], Callable[[list[Any]], list[Any]]] = {}


def plain(cls: C) -> C:
    """Class decorator: register a dataclass or NamedTuple for conversion to plain data."""
    known = _registry.get(cls.__name__)
    # A dataclass with slots is a second class object of the same name and module; it may replace the first.
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two plain classes are called {cls.__name__}")
    shape = cast(Any, cls)
    names = shape._fields if issubclass(cls, tuple) else tuple(f.name for f in dataclasses.fields(shape))
    _registry[cls.__name__] = cls
    _field_names[cls] = names
    _defaults[cls] = _defaults_of(shape, names)
    if dataclasses.is_dataclass(cls):
        fast_init(cls)
    return cls


def earlier(cls: type, fields: int) -> Callable[[Callable[[list[Any]], list[Any]]], None]:
    """Decorator: register the conversion of a class that was stored with another number of fields.

    The function takes the stored values, and returns those of the class's first fields."""

    def register(convert: Callable[[list[Any]], list[Any]]) -> None:
        _earlier[cls, fields] = convert

    return register


def _defaults_of(cls: Any, names: tuple[str, ...]) -> tuple[Callable[[], Any] | None, ...]:
    """Return a function for the default of each field, None for a field without one."""
    if not dataclasses.is_dataclass(cls):
        return tuple(partial(cls._field_defaults.get, name) if name in cls._field_defaults else None for name in names)
    found: list[Callable[[], Any] | None] = []
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            found.append(field.default_factory)
        else:
            found.append(None if field.default is dataclasses.MISSING else partial(_identity, field.default))
    return tuple(found)


def _identity(value: Any) -> Any:
    return value


@dataclass_transform(frozen_default=True)
def value(cls: C) -> C:
    """Class decorator: make a frozen dataclass with slots and register it for conversion to plain data."""
    return plain(cast(C, dataclasses.dataclass(frozen=True, slots=True)(cls)))


def fast_init(cls: C) -> C:
    """Class decorator: replace the `__init__` of a frozen dataclass by one that fills its slots directly.

    A run creates some ten such values per device update, and the generated `__init__` takes twice as long."""
    made = cast(Any, cls)
    fields = dataclasses.fields(made)
    slots = [cls.__dict__.get(field.name) for field in fields]
    if (
        not made.__dataclass_params__.frozen
        or hasattr(cls, "__post_init__")
        or not all(isinstance(slot, MemberDescriptorType) for slot in slots)
    ):
        return cls
    missing = dataclasses.MISSING
    namespace: dict[str, Any] = {"_missing": missing}
    arguments, body = ["self"], []
    for field, slot in zip(fields, slots, strict=True):
        name, value = field.name, field.name
        namespace[f"_set_{name}"] = cast(MemberDescriptorType, slot).__set__
        if field.default_factory is not missing:
            namespace[f"_make_{name}"] = field.default_factory
            arguments.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not missing:
            namespace[f"_default_{name}"] = field.default
            arguments.append(f"{name}=_default_{name}")
        else:
            arguments.append(name)
        body.append(f"    _set_{name}(self, {value})")
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *(body or ["    pass"])]), namespace)
    namespace["__init__"].__annotations__ = dict(made.__init__.__annotations__)
    made.__init__ = namespace["__init__"]
    return cls


def to_plain(value: object) -> Plain:
    """Convert to plain data. Mutable containers are copied, and arrays unless they are read-only."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise TypeError(f"{value} does not fit into 64 bits")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        return value if not value.flags.writeable else value.copy()
    if isinstance(value, DeviceVector):
        return value  # immutable; a checkpoint stores its numbers
    if isinstance(value, DeviceEncoded):
        return {_ENCODED: [value.to_host(), to_plain(value.decoded), value.finite]}
    kind = type(value)
    names = _field_names.get(kind)
    if names is not None:
        return {_CLASS: kind.__name__, _FIELDS: [to_plain(getattr(value, name)) for name in names]}
    if isinstance(value, tuple):
        return {_TUPLE: [to_plain(item) for item in value]}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {_SET: [to_plain(item) for item in sorted(value)]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: to_plain(item) for key, item in value.items()}
        return {_PAIRS: [[to_plain(key), to_plain(item)] for key, item in value.items()]}
    raise TypeError(f"{kind.__name__} cannot become plain data: register it with @plain")


def from_plain(data: Plain) -> Any:
    """Return the value that `to_plain` converted."""
    if isinstance(data, list):
        return [from_plain(item) for item in data]
    if not isinstance(data, dict):
        return data.copy() if isinstance(data, np.ndarray) and data.flags.writeable else data
    if _CLASS in data:
        cls = _registry.get(data[_CLASS])
        if cls is None:
            raise DataError(f"unknown class {data[_CLASS]!r} in stored data: written by another version?")
        values = [from_plain(item) for item in data[_FIELDS]]
        names = _field_names[cls]
        if len(values) != len(names):
            values = _completed(cls, values)
        if issubclass(cls, tuple):
            return cls(*values)
        made = cast(Any, object.__new__(cls))
        for name, item in zip(names, values, strict=True):
            object.__setattr__(made, name, item)
        return made
    if _ENCODED in data:
        return StoredEncoded(*data[_ENCODED])
    if _TUPLE in data:
        return tuple(from_plain(item) for item in data[_TUPLE])
    if _SET in data:
        return {from_plain(item) for item in data[_SET]}
    if _PAIRS in data:
        return {from_plain(key): from_plain(item) for key, item in data[_PAIRS]}
    return {key: from_plain(item) for key, item in data.items()}


def _completed(cls: type, values: list[Any]) -> list[Any]:
    """Return the values of all fields of a class that was stored with another number of fields."""
    convert = _earlier.get((cls, len(values)))
    known = values if convert is None else convert(values)
    defaults = _defaults[cls][len(known) :]
    if len(known) > len(_defaults[cls]) or None in defaults:
        raise DataError(
            f"stored {cls.__name__} has {len(values)} fields, not {len(_defaults[cls])}: another version of async-hfl?"
        )
    return [*known, *(default() for default in defaults if default is not None)]
