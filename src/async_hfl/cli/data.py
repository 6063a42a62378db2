"""Data sets: list, fetch, verify, show who holds what."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from async_hfl.cli.common import Commands, add_settings, complain, finish, print_json
from async_hfl.core.errors import DataError, UserError


def add_commands(commands: Commands) -> None:
    data = commands.add_parser("data", help="the data sets: list, fetch, verify, show")
    of_data = data.add_subparsers(metavar="WHAT", required=True)
    finish(of_data.add_parser("list", help="every data set, and where it is on this machine"), _data_list)
    fetch = of_data.add_parser("fetch", help="download data sets, or take them from $ASYNC_HFL_DATA")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="as `async-hfl data list` names them, or all")
    finish(fetch, _data_fetch)
    verify = of_data.add_parser("verify", help="compare checksums with the published ones")
    verify.add_argument("names", nargs="*", metavar="NAME", help="default: every set that is on this machine")
    finish(verify, _data_verify)
    show_data = of_data.add_parser("show", help="a picture of who holds what")
    show_data.add_argument("--task", help="what is learnt (`async-hfl tasks`), or FILE.py:NAME of your own")
    show_data.add_argument("--devices", type=int, metavar="N", help="as --set task.devices=N")
    add_settings(show_data)
    show_data.add_argument("--out", type=Path, metavar="FILE.png", help="the picture (default: TASK-devices.png)")
    finish(show_data, _data_show)


def _data_list(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.files.fetching import list_sets
    from async_hfl.reports.tables.formatting import size

    rows = list_sets()
    if options.json:
        print_json([asdict(row) for row in rows])
        return 0
    for row in rows:
        missing = f"not here; `async-hfl data fetch {row.name}` ({size(row.download_bytes)})"
        where = f"{row.folder} ({size(row.bytes)})" if row.folder else row.place or missing
        print(f"{row.name:<14} {row.title}\n{'':<14} {row.train:,} to train, {row.test:,} to test; {row.licence}")
        print(f"{'':<14} {where}")
    return 0


def _data_fetch(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.files.catalogue import PUBLISHED, published_set
    from async_hfl.learning.datasets.files.fetching import fetch
    from async_hfl.reports.tables.formatting import size
    from async_hfl.reports.terminal.downloads import DownloadView

    names = list(PUBLISHED) if options.names == ["all"] else options.names
    rows = []
    with DownloadView(quiet=options.json) as view:
        for published in [published_set(name) for name in names]:
            try:
                rows.append(fetch(published, view.progress))
            except KeyboardInterrupt:
                again = f"`async-hfl data fetch {published.name}` goes on where it stopped"
                return complain(f"interrupted; {again}", 130)
    if options.json:
        print_json([asdict(row) for row in rows])
        return 0
    what = {"there": "was there", "copied": "copied from $ASYNC_HFL_DATA", "downloaded": "downloaded"}
    for row in rows:
        print(f"{row.name:<14} {what[row.origin]}, checksums right: {row.folder} ({size(row.bytes)})")
    return 0


def _data_show(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.reports.figures.data_distribution import distribution_lines, draw_distribution

    overrides = [*options.overrides, *([] if options.devices is None else [f"task.devices={options.devices}"])]
    held = api.data_distribution(task=options.task, seed=options.seed, overrides=overrides)
    out = options.out or Path(f"{held.short_name}-devices.png")
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{out}: give the picture the ending .png, .svg or .pdf")
    try:
        draw_distribution(held, out)
    except OSError as error:
        raise DataError(
            f"{out}: cannot be written ({error.strerror or error}); give a file in a directory that exists"
        ) from error
    if options.json:
        print_json({**held.as_json(), "picture": str(out)})
    else:
        print("\n".join(distribution_lines(held)))
        print(f"{out}: the picture")
    return 0


def _data_verify(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.files.catalogue import PUBLISHED, published_set
    from async_hfl.learning.datasets.files.fetching import verify

    asked = [published_set(name) for name in options.names]
    rows = []
    for published in asked or PUBLISHED.values():
        files = verify(published)
        if asked or any(file.path for file in files):
            rows += files
    if options.json:
        print_json([asdict(row) for row in rows])
    else:
        for row in rows:
            print(f"{row.name:<14} {row.path or row.file}: {row.problem or 'right'}")
    wrong = [row for row in rows if row.problem]
    if wrong:
        names = " ".join(dict.fromkeys(row.name for row in wrong))
        remedy = f"`async-hfl data fetch {names}` gets them"
        if os.environ.get("ASYNC_HFL_DATA"):
            remedy += "; $ASYNC_HFL_DATA is read first: replace what is wrong there, or unset it"
        return complain(f"{len(wrong)} of {len(rows)} files are not right; {remedy}", 2)
    if not rows:
        return complain("no data set is on this machine; `async-hfl data list` shows what there is", 2)
    return 0
