"""Settings: a reference in the terminal and as a page, and run files to start from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from async_hfl.cli.common import (
    Commands,
    add_choices,
    add_command,
    add_settings,
    answer,
    settings_of,
)
from async_hfl.core.errors import UserError

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.assembly.settings.documentation.entries import SectionReference, Setting


def add_commands(commands: Commands) -> None:
    settings = add_command(commands, "settings", _settings, "explain settings: defaults, units, ranges, meaning")
    settings.add_argument(
        "name", nargs="?", metavar="SECTION|KEY", help="a section, a setting, or a key of any section"
    )
    settings.add_argument("--markdown", action="store_true", help="print the page docs/settings.md")
    init = add_command(commands, "init", _init, "write a commented run file")
    init.add_argument("out", nargs="?", type=Path, default=Path("run.toml"), metavar="FILE", help="the file to write")
    add_choices(init, "task", "method", "network", "preset")
    add_settings(init)
    init.add_argument("--all", action="store_true", help="list every setting, not only those that the choices change")


def _settings(options: argparse.Namespace) -> int:
    from async_hfl.assembly.settings.documentation.entries import find, reference
    from async_hfl.assembly.settings.documentation.page import settings_page

    if options.markdown:
        if options.name or options.json:
            raise UserError("settings --markdown: prints all settings as a page; leave out the name and --json")
        sys.stdout.write(settings_page())
        return 0
    found = reference() if options.name is None else find(options.name)
    rows = [asdict(setting) | {"read_by": setting.read_by} for section in found for setting in section.settings]
    whole = options.name is None
    lines = [line for section in found for line in _lines(section, whole=whole)]
    return answer(options, rows, lines[:-1])


def _lines(section: SectionReference, *, whole: bool) -> Iterator[str]:
    """Yield a section as text: of a list of all sections only names and defaults, else everything."""
    yield f"[{section.name}]  {section.meaning}"
    width = max(len(setting.path) for setting in section.settings)
    for setting in section.settings:
        if whole:
            unit = f" {setting.unit}" if setting.unit else ""
            yield f"  {setting.path:<{width}}  {setting.default}{unit}"
        else:
            yield from _explained(setting)
    yield ""


def _explained(setting: Setting) -> Iterator[str]:
    yield ""
    yield f"  {setting.path} = {setting.default}"
    if setting.meaning:
        yield f"    {setting.meaning}"
    yield f"    {setting.range}" + (f"; {setting.unit}" if setting.unit else "")
    yield f"    read by: {setting.read_by}"
    if setting.set_by:
        yield f"    set by: {'; '.join(setting.set_by)}"


def _init(options: argparse.Namespace) -> int:
    from async_hfl.api.listings import init

    init(options.out, **settings_of(options), everything=options.all)
    return answer(options, {"file": str(options.out)}, [f"{options.out}: `async-hfl run {options.out}` runs it"])
