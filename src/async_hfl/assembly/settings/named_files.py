"""Methods and networks by the name of the user's file: `--method my.toml`, `--network sites.csv`.

The file of a method is like those in `assembly/methods`: sections of settings, and `tasks.NAME.SECTION` for those of
one task. A network is a file of sites, a table of measured delays, or a trace; its contents say which.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.loading import short_name as code_name
from async_hfl.core.errors import SettingsError

FROM_FILE = "file"
"""The network that is read from a file."""
_NETWORK_FILES = (".csv", ".geojson", ".json")
_ENDINGS = {"method": "in .toml", "network": "in .csv, .geojson or .json"}


def is_method_file(name: str) -> bool:
    return name.endswith(".toml")


def is_network_file(name: str) -> bool:
    return not is_user_code(name) and name.endswith(_NETWORK_FILES)


def ending_hint(kind: str, name: str) -> str:
    """Return the permitted endings, as the rest of an error message, if the name is that of a file; else nothing."""
    return f"; the name of a {kind}'s file ends {_ENDINGS[kind]}" if Path(name).suffix and kind in _ENDINGS else ""


def network_kind_of(name: str) -> str:
    """Return the name of the network that `--network` chooses."""
    return FROM_FILE if is_network_file(name) else name


def short_name(name: str) -> str:
    """Return a name for directories: of a user's file the stem, of an object and of what is built in its name."""
    return Path(name).stem if is_method_file(name) or is_network_file(name) else code_name(name)


def read_method(name: str) -> dict[str, Any]:
    """Return the settings in the file of a method."""
    table = read_toml(Path(name), "give the path of a method's file, or a name from `async-hfl methods`")
    if "run" in table:
        raise SettingsError(
            f"{name}: [run] is for run files; leave it out, or give the file as a run file: `async-hfl run {name}`"
        )
    tasks = table.get("tasks", {})
    if not isinstance(tasks, dict) or not all(isinstance(settings, dict) for settings in tasks.values()):
        raise SettingsError(f"{name}: tasks: write the settings for one task as tables: [tasks.NAME.SECTION]")
    return table


def read_toml(file: Path, remedy: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{file}: no such file; {remedy}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error
