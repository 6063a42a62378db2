"""One decision from a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from async_hfl.cli.common import Commands, finish, print_json


def add_commands(commands: Commands) -> None:
    decide = commands.add_parser("decide", help="solve one selection or association problem from a file")
    which = decide.add_subparsers(metavar="WHAT", required=True)
    for kind, text in (("selection", "which devices to trigger"), ("association", "which device to which gateway")):
        one = which.add_parser(kind, help=text)
        one.add_argument("problem", type=Path, metavar="PROBLEM.json")
        one.add_argument("--exact", action="store_true", help="a proven optimum, however long it takes to prove")
        one.set_defaults(kind=kind)
        finish(one, _decide)


def _decide(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.decide import decide_association, decide_selection

    if options.kind == "selection":
        answer = decide_selection(options.problem, exact=options.exact)
        chosen = answer["selected"]
        lines = [f"selected {len(chosen)}: {' '.join(chosen)}" if chosen else "selected nobody"]
    else:
        answer = decide_association(options.problem, exact=options.exact)
        lines = [f"{device}  {gateway}" for device, gateway in answer["association"].items()] or ["nobody associated"]
    if options.json:
        print_json(answer)
        return 0
    print("\n".join(lines))
    print(
        f"objective {answer['objective']:.6g}, bound {answer['bound']:.6g}, gap {answer['gap']:.2g}, "
        f"{answer['seconds'] * 1e3:.2f} ms"
    )
    return 0
