"""Shared parts of the commands: options, output as text or JSON, error messages."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from async_hfl.core.errors import DataError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The object to which a module adds its commands."""
Action: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command and returns its exit code."""
_MOST_ERROR_LINES = 6
_CHOICES = {
    "task": "what to learn: a name from `async-hfl tasks`, or FILE.py:NAME",
    "method": "how to learn: a name from `async-hfl methods`, or a file (TOML)",
    "network": "the network: a name from `async-hfl networks`, a file (CSV, GeoJSON), or FILE.py:NAME",
    "preset": "the bandwidth of gateways: a name from `async-hfl presets`",
}
_SETTINGS = ("file", *_CHOICES, "seed", "overrides")


class Interruption(KeyboardInterrupt):
    """A command was ended by a signal. `code` is its exit code."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(what)
        self.code = 128 + number


def add_command(commands: Commands, name: str, action: Action, summary: str) -> argparse.ArgumentParser:
    """Add a command that calls `action`; the caller adds its options to the parser returned."""
    description = f"{summary[0].upper()}{summary[1:]}.".replace("%%", "%")
    parser = commands.add_parser(name, help=summary, description=description)
    parser.add_argument("--json", action="store_true", help="print the result as JSON, as the last line of stdout")
    parser.set_defaults(action=action, parser=parser)
    return parser


def add_group(commands: Commands, name: str, summary: str) -> Commands:
    """Add a command that consists of subcommands."""
    return commands.add_parser(name, help=summary).add_subparsers(metavar="WHAT", required=True)


def add_run_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a run file (TOML)")


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")


def add_choices(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of --task, --method, --network and --preset."""
    for name in names:
        parser.add_argument(f"--{name}", help=_CHOICES[name])


def add_settings(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add --set and --seed."""
    form, text = "SECTION.KEY=VALUE", "change a setting; repeatable"
    parser.add_argument("--set", action="append", default=[], metavar=form, dest="overrides", help=text)
    if seed:
        parser.add_argument("--seed", type=int, help="the seed of all random streams (default: 1)")


def names_in(text: str | None) -> list[str]:
    """Split names that are separated by commas; an option that was not given has none."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return those of file, task, method, network, preset, seed and overrides that the command has."""
    return {key: getattr(options, key) for key in _SETTINGS if hasattr(options, key)}


def answer(options: argparse.Namespace, data: Any, lines: Iterable[str]) -> int:
    """Print a result, as JSON if --json was given and as lines of text otherwise; return exit code 0."""
    if options.json:
        print_json(data)
    else:
        print("\n".join(lines))
    return 0


def print_json(data: Any) -> None:
    print(json.dumps(data))


def not_writable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or error
    return DataError(f"{path}: cannot be written ({reason}); give a file in a directory that exists")


def complain(text: str, code: int) -> int:
    """Print an error message on stderr and return the exit code."""
    if os.environ.get("ASYNC_HFL_TRACEBACK"):
        traceback.print_exc()
    lines = f"async-hfl: error: {text}".splitlines()
    print("\n".join(lines[:_MOST_ERROR_LINES]), file=sys.stderr)
    return code
