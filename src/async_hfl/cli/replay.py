"""Replay: the log of every node handled once more."""

from __future__ import annotations

import argparse
from pathlib import Path

from async_hfl.cli.common import Commands, finish, print_json


def add_commands(commands: Commands) -> None:
    replay = commands.add_parser("replay", help="let nodes handle their logs again and compare every effect")
    replay.add_argument("path", type=Path, metavar="RUN|NODE_DIR", help="a run directory, or one node's state")
    replay.add_argument("--resolve", action="store_true", help="solve associations again and compare those, too")
    finish(replay, _replay)


def _replay(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.replay import describe, replay

    found = replay(options.path, resolve=options.resolve)
    if options.json:
        print_json(found.as_json())
    else:
        print(describe(found))
    return 1 if found.differences else 0
