"""Data sets: list, fetch and verify them, show how a task distributes its data."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from async_hfl.cli.common import (
    Commands,
    add_choices,
    add_command,
    add_group,
    add_settings,
    answer,
    complain,
    not_writable,
)
from async_hfl.core.errors import UserError


def add_commands(commands: Commands) -> None:
    data = add_group(commands, "data", "data sets: list, fetch, verify, show")
    add_command(data, "list", _list, "list all data sets and their locations on this machine")
    fetch = add_command(data, "fetch", _fetch, "download data sets, or copy them from $ASYNC_HFL_DATA")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="names from `async-hfl data list`, or all")
    verify = add_command(data, "verify", _verify, "compare checksums with the published ones")
    verify.add_argument("names", nargs="*", metavar="NAME", help="names of data sets (default: all on this machine)")
    show = add_command(data, "show", _show, "draw the distribution of the data over the devices")
    add_choices(show, "task")
    show.add_argument("--devices", type=int, metavar="N", help="the same as --set task.devices=N")
    add_settings(show)
    show.add_argument("--out", type=Path, metavar="FILE.png", help="the picture (default: TASK-devices.png)")


def _list(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.files.fetching import list_sets
    from async_hfl.reports.tables.formatting import size

    rows = list_sets()
    lines = []
    for row in rows:
        missing = f"not on this machine; `async-hfl data fetch {row.name}` ({size(row.download_bytes)})"
        where = f"{row.folder} ({size(row.bytes)})" if row.folder else row.place or missing
        samples = f"{row.train:,} training samples, {row.test:,} test samples; {row.licence}"
        lines += [f"{row.name:<14} {row.title}", f"{'':<14} {samples}", f"{'':<14} {where}"]
    return answer(options, [asdict(row) for row in rows], lines)


def _fetch(options: argparse.Namespace) -> int:
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
                again = f"`async-hfl data fetch {published.name}` continues where it stopped"
                return complain(f"interrupted; {again}", 130)
    origin = {"there": "already here", "copied": "copied from $ASYNC_HFL_DATA", "downloaded": "downloaded"}
    lines = [f"{row.name:<14} {origin[row.origin]}, checksums match: {row.folder} ({size(row.bytes)})" for row in rows]
    return answer(options, [asdict(row) for row in rows], lines)


def _show(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.reports.figures.data_distribution import distribution_lines, draw_distribution

    overrides = [*options.overrides, *([] if options.devices is None else [f"task.devices={options.devices}"])]
    held = api.data_distribution(task=options.task, seed=options.seed, overrides=overrides)
    out = options.out or Path(f"{held.short_name}-devices.png")
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{out}: the name of the picture must end in .png, .svg or .pdf")
    try:
        draw_distribution(held, out)
    except OSError as error:
        raise not_writable(out, error) from error
    return answer(options, {**held.as_json(), "picture": str(out)}, [*distribution_lines(held), f"picture: {out}"])


def _verify(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.files.catalogue import PUBLISHED, published_set
    from async_hfl.learning.datasets.files.fetching import verify

    asked = [published_set(name) for name in options.names]
    rows = []
    for published in asked or PUBLISHED.values():
        files = verify(published)
        if asked or any(file.path for file in files):
            rows += files
    if rows or options.json:
        lines = [f"{row.name:<14} {row.path or row.file}: {row.problem or 'ok'}" for row in rows]
        answer(options, [asdict(row) for row in rows], lines)
    wrong = [row for row in rows if row.problem]
    if wrong:
        names = " ".join(dict.fromkeys(row.name for row in wrong))
        remedy = f"`async-hfl data fetch {names}` fetches them"
        if os.environ.get("ASYNC_HFL_DATA"):
            remedy += "; $ASYNC_HFL_DATA is read first: replace the bad files there, or unset it"
        return complain(f"{len(wrong)} of {len(rows)} files are missing or damaged; {remedy}", 2)
    if not rows:
        return complain("no data set is on this machine; `async-hfl data list` shows the available ones", 2)
    return 0
