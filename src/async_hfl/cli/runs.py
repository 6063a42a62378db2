"""Single runs: simulate, train centrally, resume, show; the listings of methods, tasks, networks and presets."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from async_hfl.cli.common import (
    Commands,
    add_choices,
    add_command,
    add_run,
    add_run_file,
    add_settings,
    answer,
    print_json,
    settings_of,
)
from async_hfl.cli.reports import add_trackers


def add_commands(commands: Commands) -> None:
    demo = add_command(commands, "demo", _demo, "race six methods to 90 %% on handwritten digits over NYC Mesh")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="the directory to write")
    demo.add_argument("--seed", type=int, default=1, help="the seed of all random streams")

    run = add_command(commands, "run", _run, "simulate one configuration")
    add_run_file(run)
    add_choices(run, "task", "method", "network", "preset")
    add_settings(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default: a new one under runs/)")
    run.add_argument("--start-from", type=Path, metavar="MODEL", help="start with this model (a safetensors file)")
    add_trackers(run)

    central = add_command(commands, "central", _central, "train a task on all its data in one place, as an upper bound")
    add_run_file(central)
    add_choices(central, "task")
    add_settings(central)
    central.add_argument("--model", type=Path, metavar="OUT.safetensors", help="save the final weights here")

    add_run(add_command(commands, "resume", _resume, "continue an interrupted run"))

    add_run(add_command(commands, "show", _show, "print the result of a run"))

    model = add_command(commands, "model", _model, "copy the model of a run to a file")
    add_run(model)
    model.add_argument("out", type=Path, metavar="OUT.safetensors", help="the file to write")

    for kind in ("method", "task", "network", "preset"):
        listing = add_command(commands, f"{kind}s", _list, f"list the {kind}s")
        listing.set_defaults(kind=kind)


def _run(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.cli.interruption import Signals, make_run
    from async_hfl.reports.terminal.run_view import RunView

    def make(signals: Signals) -> api.Run:
        def started(made: api.Run, settings: Any) -> None:
            signals.directory = made.path
            view.started(made, settings)

        own = {name: getattr(options, name) for name in ("out", "start_from", "tensorboard", "mlflow")}
        with RunView(quiet=options.json) as view:
            return api.run(
                **settings_of(options),
                **own,
                progress=False,
                on_start=started,
                on_epoch=view.epoch,
                pause=signals.pause,
            )

    return print_run(make_run(make), options.json)


def _central(options: argparse.Namespace) -> int:
    from async_hfl import api

    def print_epoch(row: dict[str, float]) -> None:
        print(f"epoch {row['epoch']:>3}  loss {row['loss']:.4f}  test {row['metric']:.4f}", flush=True)

    made = api.central(**settings_of(options), model=options.model, on_epoch=None if options.json else print_epoch)
    naive = "" if made.naive is None else f"; predicting the last reading: {made.naive:.4f}"
    line = f"{made.task}: {made.metric} {made.final:.4f}, best {made.best:.4f}{naive} ({made.wall_s:.0f} s)"
    return answer(options, asdict(made), [line])


def _resume(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.cli.interruption import Signals, make_run
    from async_hfl.reports.terminal.run_view import RunView

    def make(signals: Signals) -> api.Run:
        signals.directory = options.run
        with RunView(quiet=options.json) as view:
            return api.resume(
                options.run, progress=False, on_start=view.started, on_epoch=view.epoch, pause=signals.pause
            )

    return print_run(make_run(make), options.json)


def _show(options: argparse.Namespace) -> int:
    from async_hfl import api

    return print_run(api.load_run(options.run), options.json)


def print_run(made: Any, as_json: bool) -> int:
    from async_hfl.api import RESULT_FIELDS
    from async_hfl.journal.file_record import REMEDY
    from async_hfl.reports.terminal.run_summary import print_summary

    summary, lost = made.summary, made.directory.damage()
    if as_json:
        print_json({key: summary[key] for key in RESULT_FIELDS} | ({} if lost is None else {"damage": lost}))
    else:
        print_summary(made.manifest, summary)
    if lost is not None:
        print(f"async-hfl: warning: {lost}; {REMEDY}", file=sys.stderr)
    return 0


def _model(options: argparse.Namespace) -> int:
    from async_hfl import api

    api.load_run(options.run).save_model(options.out)
    made = {"run": str(options.run), "model": str(options.out)}
    return answer(options, made, [f"{options.out}: the global model of {options.run}"])


def _list(options: argparse.Namespace) -> int:
    from async_hfl.assembly.settings.loading import available

    names = available(options.kind)
    width = max(map(len, names))
    rows = [{"name": name, "description": text} for name, text in names.items()]
    return answer(options, rows, [f"{name:<{width}}  {text}" for name, text in names.items()])


def _demo(options: argparse.Namespace) -> int:
    from async_hfl.demo import demo

    result = demo(options.out, options.seed, quiet=options.json)
    if options.json:
        print_json(result)
    return 0
