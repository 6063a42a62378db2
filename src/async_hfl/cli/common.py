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
_MOST_ERROR_LINES = 6
_CHOICES = {
    "task": "what to learn: a name from `async-hfl tasks`, or FILE.py:NAME",
    "method": "how to learn: a name from `async-hfl methods`",
    "network": "the network: a name from `async-hfl networks`",
    "preset": "the bandwidth preset: tight, paper or authors",
}
_SETTINGS = ("file", *_CHOICES, "seed", "overrides")


def finish(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace], int]) -> None:
    """Add the options that every command has, and the action to call. The last step in defining a command."""
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON, last on stdout")
    parser.set_defaults(action=action, parser=parser)


def add_run_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a run file (TOML)")


def add_choices(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of --task, --method, --network and --preset."""
    for name in names:
        parser.add_argument(f"--{name}", help=_CHOICES[name])


def add_settings(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add --set and --seed."""
    metavar = "SECTION.KEY=VALUE"
    parser.add_argument(
        "--set", action="append", default=[], metavar=metavar, dest="overrides", help="change a setting; repeatable"
    )
    if seed:
        parser.add_argument("--seed", type=int, help="the seed of all random streams (1)")


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
