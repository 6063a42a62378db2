"""The tuning file: the settings that tuning chose for each method on a task, a network and a preset. JSON or TOML.

It is read when `--tuning` names it and never otherwise. `--tuning packaged` means the file that comes with async-hfl.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from async_hfl.assembly.settings.loading import as_table
from async_hfl.assembly.settings.named_files import is_network_file
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.objects import is_object, shown
from async_hfl.core.errors import UserError
from async_hfl.experiments.tuning.tuned import Tuned, setting_texts
from async_hfl.reports.tables.formatting import flat_settings

PACKAGED = "packaged"
_PACKAGED_FILE = Path(__file__).parent / "packaged.toml"
_DIGEST_BYTES = 6


class Place(NamedTuple):
    """The problem that a method is tuned for."""

    task: str
    network: str
    preset: str

    @classmethod
    def of(cls, task: str, network: str, preset: str) -> Self:
        return cls(_unmoved(task), _unmoved(network), preset)

    def __str__(self) -> str:
        return f"{self.task} on {self.network} with preset {self.preset}"


def _unmoved(name: str) -> str:
    """Name a user's file without its folder, so that it may be moved, and an object without its digest."""
    if is_object(name):
        return shown(name)
    return Path(name).name if is_user_code(name) or is_network_file(name) else name


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: str
    network: str
    preset: str
    name: str
    """The row of a comparison to which the settings apply: a method, or the label of a method with other settings."""
    method: str
    settings: dict[str, Any]
    """The chosen settings: setting -> value."""
    seeds: list[int]
    digests: list[str]
    """The digests of the chosen runs, one for each seed; their results have the same ones in the rows file."""
    points: int
    """Number of points that were measured."""
    level: float | None = None
    """The level of the metric at which the points were compared; None if no run held any."""
    under: dict[str, Any]
    """The other settings of these runs that differ from the defaults of the schema."""
    made: str
    """The time at which the choice was made, in UTC."""
    version: str
    """The version of async-hfl."""

    @property
    def place(self) -> Place:
        return Place(self.task, self.network, self.preset)


class Tunings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal[1] = 1
    choices: list[Choice]

    @property
    def digest(self) -> str:
        """The digest of the content, whether it is written as JSON or as TOML."""
        text = json.dumps(msgspec.to_builtins(self), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def choice(self, place: Place, name: str) -> Choice | None:
        return next((one for one in self.choices if one.place == place and one.name == name), None)

    def tuned(self, place: Place, name: str, settings: dict[str, Any]) -> Tuned | None:
        """Return the tuning of a method whose settings, without it, are `settings`; None if it is not in the file."""
        choice = self.choice(place, name)
        if choice is None:
            return None
        mine, theirs = plain(settings), choice.under
        other = {key: value for key, value in theirs.items() if mine.get(key, _MISSING) != value}
        usual = plain(flat_settings(as_table(Settings())))
        added = {key: usual[key] for key in mine if key not in theirs and key not in choice.settings}
        return Tuned(
            settings=choice.settings,
            seeds=choice.seeds,
            digest=self.digest,
            made=choice.made,
            under=setting_texts({**other, **added}),
        )

    def with_choices(self, choices: Sequence[Choice]) -> Tunings:
        """Add choices; they replace those for the same place and name."""
        new = {(one.place, one.name) for one in choices}
        kept = [one for one in self.choices if (one.place, one.name) not in new]
        return Tunings(choices=sorted([*kept, *choices], key=lambda one: (one.place, one.name)))

    def places(self) -> str:
        """Name the problems and methods of the file."""
        names: dict[Place, list[str]] = {}
        for one in self.choices:
            names.setdefault(one.place, []).append(one.name)
        return "; ".join(f"{place} ({', '.join(methods)})" for place, methods in names.items()) or "nothing"


_MISSING = object()


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as they are read from a file."""
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found


def read_tunings(name: str | Path) -> Tunings:
    """Read a file, or the packaged one."""
    path = _PACKAGED_FILE if str(name) == PACKAGED else Path(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        if path == _PACKAGED_FILE:
            raise UserError(f"--tuning {PACKAGED}: this version of async-hfl comes without a tuning file") from error
        raise UserError(
            f"--tuning {name}: cannot be read ({error.strerror}); give a file that `async-hfl tune` wrote"
        ) from error
    try:
        if _is_toml(path):
            return msgspec.convert(tomllib.loads(content.decode()), Tunings)
        return msgspec.json.decode(content, type=Tunings)
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a tuning file ({error}); `async-hfl tune` writes one") from error


def write_tunings(path: Path, tunings: Tunings) -> None:
    """Write the file; a former one is replaced at once, so that there is always a whole one."""
    partial = path.with_name(f"{path.name}.part")
    if _is_toml(path):
        partial.write_text(_as_toml(tunings), encoding="utf-8")
    else:
        partial.write_text(json.dumps(msgspec.to_builtins(tunings), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def check_output(path: Path) -> None:
    """Raise UserError unless the file can be written later."""
    if path.suffix not in (".json", ".toml"):
        raise UserError(f"--output {path}: give a file that ends in .toml or .json")
    if not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no directory {path.parent}; create it, or give another file")


def _is_toml(path: Path) -> bool:
    return path.suffix == ".toml"


def _as_toml(tunings: Tunings) -> str:
    """Format as TOML, whose strings, numbers and lists are written as in JSON."""
    lines = [f"format = {tunings.format}"]
    for choice in tunings.choices:
        lines += ["", "[[choices]]"]
        tables: dict[str, dict[str, Any]] = {}
        for key, value in msgspec.to_builtins(choice).items():
            if isinstance(value, dict):
                tables[key] = value
            elif value is not None:
                lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
        for key, table in tables.items():
            lines.append(f"[choices.{key}]")
            lines += [f"{json.dumps(name)} = {_toml_value(value)}" for name, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
