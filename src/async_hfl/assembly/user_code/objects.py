"""Objects made in Python, such as a task in a notebook cell, in the place of FILE.py:NAME.

An object gets a name, `object:NAME@DIGEST`, under which it stands in settings and manifests, and is found again in this
process as long as the caller keeps it. Other processes know the name only: they need a file. The digest covers code and
data, so two objects with the same name are the same.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

from async_hfl.assembly.user_code.content import Content, is_library
from async_hfl.core.errors import SettingsError, UserError

_PREFIX = "object:"
_DIGITS = 12
"""Hexadecimal digits of the digest in a name."""
_MOST_SOURCE = 100_000
"""The most characters of source code in a manifest."""
KINDS = {
    "task": ("task", "a task"),
    "network": ("network", "a network function"),
    "selection.policy": ("selection policy", "a selection policy"),
    "association.policy": ("association policy", "an association policy"),
    "gateway.aggregation": ("aggregation rule of gateways", "an aggregation rule"),
    "cloud.aggregation": ("aggregation rule of the cloud", "an aggregation rule"),
}
"""Arguments and settings that take an object -> its kind in words, without and with an article."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """An object as the manifest of a run records it."""

    name: str
    """The name in the settings."""
    type: str
    module: str
    sha256: str
    source: str | None
    """The code of the object, if Python knows it."""
    not_comparable: tuple[str, ...]
    """The types of parts that only this process can compare, such as an open file."""
    where: str | None
    """FILE.py:NAME if the object is a module's own, so that other processes could load it."""


_OBJECTS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_FACTS: dict[str, ObjectFacts] = {}


def is_object(name: str) -> bool:
    """True if a name is that of an object made in Python."""
    return name.startswith(_PREFIX)


def shown(name: str) -> str:
    """Return a name as people gave it: that of an object without its digest."""
    return name.removeprefix(_PREFIX).rpartition("@")[0] if is_object(name) else name


def name_of_object(setting: str, value: object) -> str:
    """Return the name for an object, and keep track of the object by it. The caller keeps the object alive."""
    if setting not in KINDS:
        raise SettingsError(f"{setting} = {value!r:.80}: takes no object; those that do: {', '.join(KINDS)}")
    content = Content(value)
    label = _label(value)
    facts = ObjectFacts(
        name=f"{_PREFIX}{label}@{content.digest[:_DIGITS]}",
        type=type(value).__qualname__,
        module=str(getattr(value, "__module__", "")),
        sha256=content.digest,
        source=_source(value),
        not_comparable=tuple(content.opaque),
        where=_where(value),
    )
    _keep(setting, facts, value)
    return facts.name


def _keep(setting: str, facts: ObjectFacts, value: object) -> None:
    try:
        _OBJECTS[facts.name] = value
    except TypeError:
        wanted = "an OwnTask, or a function that returns one" if setting == "task" else "a function or a class"
        raise SettingsError(
            f"{setting} = {value!r:.80}: a {type(value).__qualname__} cannot be {KINDS[setting][1]}; give {wanted}"
        ) from None
    _FACTS[facts.name] = facts


def object_called(setting: str, name: str) -> Any:
    """Return the object that a setting names. Raises SettingsError if this process does not have it."""
    found = _OBJECTS.get(name)
    if found is None:
        raise SettingsError(
            f"{setting.removeprefix('--')}: {shown(name)} was made in Python, and this process does not have it (any "
            "more); give the object again, or put it in a file, FILE.py:NAME, which every process can load"
        )
    return found


def objects_in(names: Mapping[str, str]) -> dict[str, ObjectFacts]:
    """Return the facts of those settings whose value is an object; `names` are the values by setting."""
    return {setting: _FACTS[name] for setting, name in names.items() if name in _FACTS}


def recorded(names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the same as plain data for a manifest."""
    return {setting: asdict(facts) for setting, facts in objects_in(names).items()}


def check_no_objects(names: Mapping[str, str], why: str) -> None:
    """Raise SettingsError if a setting is an object; `why` says which other processes would need it."""
    for setting, facts in objects_in(names).items():
        instead = facts.where or "FILE.py:NAME"
        raise SettingsError(
            f"{setting}: {shown(facts.name)} was made in Python and is known in this process only, but {why}, which "
            f"load their own: put {KINDS[setting][1]} in a file and give {setting} = {instead!r}"
        )


def give_again(run: Path, known: Mapping[str, Mapping[str, Any]], given: Mapping[str, object]) -> None:
    """Make the objects of a run that is resumed known again. `known` is what its manifest records.

    An object that is not given is looked for in this process. The caller keeps the objects alive.
    """
    for setting, value in given.items():
        if setting not in known:
            raise SettingsError(
                f"{setting}: the run {run} has no {_words(setting)} that was made in Python; leave it out"
            )
        facts = _facts_of(known[setting])
        digest = Content(value).digest
        if digest != facts.sha256:
            parts = f"; it has parts that only one process can compare: {', '.join(facts.not_comparable)}"
            raise UserError(
                f"{setting}: {_label(value)} is not what the run {run} began with: its code or data has changed "
                f"(SHA-256 {facts.sha256[:_DIGITS]}, now {digest[:_DIGITS]}); give the former one, or start a new run"
                + (parts if facts.not_comparable else "")
            )
        _keep(setting, facts, value)
    missing = {setting: shown(record["name"]) for setting, record in known.items() if record["name"] not in _OBJECTS}
    if missing:
        arguments = [f"{setting}={label}" for setting, label in missing.items() if "." not in setting]
        others = [f'"{setting}": {label}' for setting, label in missing.items() if "." in setting]
        arguments += [f"overrides={{{', '.join(others)}}}"] if others else []
        what = ", ".join(f"the {_words(setting)} {label}" for setting, label in missing.items())
        raise UserError(
            f"{run}: {what} was made in Python, not in a file; give it again: "
            f'async_hfl.resume("{run}", {", ".join(arguments)})'
        )


def _words(setting: str) -> str:
    return KINDS[setting][0] if setting in KINDS else setting


def _facts_of(record: Mapping[str, Any]) -> ObjectFacts:
    return ObjectFacts(**{**record, "not_comparable": tuple(record["not_comparable"])})


def _label(value: object) -> str:
    """Return the name of a function or class, or that of the variable in the main program that holds the value."""
    name = getattr(value, "__qualname__", None) or getattr(getattr(value, "func", None), "__qualname__", None)
    if name is None:
        main = vars(sys.modules["__main__"])
        name = next((key for key, held in list(main.items()) if held is value and not key.startswith("_")), None)
    text = str(name or type(value).__qualname__).rpartition("<locals>.")[2]
    return "".join(letter for letter in text if letter.isalnum() or letter in "_.-") or "object"


def _where(value: object) -> str | None:
    """Return FILE.py:NAME of a function, class or value at the top level of one of the user's modules."""
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    name = getattr(value, "__qualname__", "")
    file = getattr(module, "__file__", None)
    own = file and str(file).endswith(".py") and not is_library(module.__name__ if module else None)
    if not own or getattr(module, name, None) is not value:
        return None
    path = Path(str(file))
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{name}"


def _source(value: object) -> str | None:
    found = dict.fromkeys(text for part in _parts(value) if (text := _source_of(part)))
    return "\n".join(found)[:_MOST_SOURCE] or None


def _parts(value: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions and classes of the user's that an object consists of."""
    if isinstance(value, partial):
        yield from _parts(value.func)
    elif isinstance(value, type):
        yield value
    elif callable(value) and (function := inspect.unwrap(getattr(value, "__func__", value))) is not None:
        if isinstance(function, FunctionType):
            yield function
        elif not is_library(type(value).__module__):
            yield type(value)
    else:
        for part in vars(value).values() if hasattr(value, "__dict__") else ():
            if callable(part) and not is_library(getattr(part, "__module__", None)):
                yield from _parts(part)


def _source_of(part: Any) -> str | None:
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):  # typed into an interpreter; a class there has methods whose code is known
        if not isinstance(part, type):
            return None
        methods = (_source_of(method) for method in vars(part).values() if isinstance(method, FunctionType))
        return "\n".join(text for text in methods if text) or None
