"""What the commands share: the last line of JSON, and complaints."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a family of commands adds its own."""
_MOST_ERROR_LINES = 6


def finish(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace], int]) -> None:
    """The last thing to do with a command's parser."""
    parser.add_argument("--json", action="store_true", help="one line of JSON, the last on stdout")
    parser.set_defaults(action=action, parser=parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options by which every command that composes settings takes them."""
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    parser.add_argument("--seed", type=int)


def print_json(data: Any) -> None:
    print(json.dumps(data))


def complain(text: str, code: int) -> int:
    if os.environ.get("ASYNC_HFL_TRACEBACK"):
        traceback.print_exc()
    lines = f"async-hfl: error: {text}".splitlines()
    print("\n".join(lines[:_MOST_ERROR_LINES]), file=sys.stderr)
    return code
