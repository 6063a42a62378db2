"""The command line: `async-hfl COMMAND`. Parses, calls the API, prints; decides nothing.

Exit codes: 0 done, 1 our mistake, 2 the user's, 130 interrupted. Errors go to stderr in a few lines, never a traceback
(set ASYNC_HFL_TRACEBACK=1 to see one).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from async_hfl.core.errors import AsyncHflError, DataError, UserError

_MOST_ERROR_LINES = 6


def main(arguments: Sequence[str] | None = None) -> int:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"there is no {' '.join(unknown)}")
    action: Callable[[argparse.Namespace], int] = options.action
    try:
        code = action(options)
        sys.stdout.flush()  # here, where a reader that has gone is expected, and not while Python ends
        return code
    except UserError as error:
        return _complain(str(error), 2)
    except AsyncHflError as error:
        return _complain(f"{error}\nThis is a fault of async-hfl, not yours; please report it.", 1)
    except KeyboardInterrupt:
        return _complain("interrupted; a run goes on with `async-hfl resume RUN`", 130)
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return _complain(f"not enough memory ({error}); ask for fewer devices or a smaller model", 2)
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 2)
    except Exception as error:
        return _complain(
            f"{type(error).__name__}: {error}\nThis is a fault of async-hfl, not yours; please report it.", 1
        )


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line; argparse would print the whole usage first."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


def _complain(text: str, code: int) -> int:
    if os.environ.get("ASYNC_HFL_TRACEBACK"):
        traceback.print_exc()
    lines = f"async-hfl: error: {text}".splitlines()
    print("\n".join(lines[:_MOST_ERROR_LINES]), file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="async-hfl", description="Asynchronous hierarchical federated learning, simulated in wall-clock time."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="race four methods to 90 %% on handwritten digits over NYC Mesh")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="where runs, table and plot go (runs/demo)")
    demo.add_argument("--seed", type=int, default=1)
    _finish(demo, _demo)

    run = commands.add_parser("run", help="simulate one configuration")
    run.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a run file (TOML)")
    run.add_argument("--task", help="what is learnt (`async-hfl tasks`)")
    run.add_argument("--method", help="how (`async-hfl methods`)")
    run.add_argument("--network", help="where (`async-hfl networks`)")
    run.add_argument("--preset", help="bandwidth preset: tight, paper or authors")
    run.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    run.add_argument("--seed", type=int)
    run.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: a new one under runs/)")
    run.add_argument("--start-from", type=Path, metavar="MODEL", help="begin with this model (safetensors)")
    _finish(run, _run)

    central = commands.add_parser("central", help="train a task in one place: the upper bound to compare with")
    central.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a run file (TOML)")
    central.add_argument("--task", help="what is learnt (`async-hfl tasks`)")
    central.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    central.add_argument("--seed", type=int)
    central.add_argument("--model", type=Path, metavar="OUT.safetensors", help="save the last weights here")
    _finish(central, _central)

    resume = commands.add_parser("resume", help="go on with a run that was cut off")
    resume.add_argument("run", type=Path, metavar="RUN")
    _finish(resume, _resume)

    show = commands.add_parser("show", help="the result of a run")
    show.add_argument("run", type=Path, metavar="RUN")
    _finish(show, _show)

    model = commands.add_parser("model", help="copy a run's model out")
    model.add_argument("run", type=Path, metavar="RUN")
    model.add_argument("out", type=Path, metavar="OUT.safetensors")
    _finish(model, _model)

    for kind in ("method", "task", "network", "preset"):
        listing = commands.add_parser(f"{kind}s", help=f"list the {kind}s")
        listing.set_defaults(kind=kind)
        _finish(listing, _list)

    data = commands.add_parser("data", help="the data sets: list, fetch, verify, show")
    of_data = data.add_subparsers(metavar="WHAT", required=True)
    _finish(of_data.add_parser("list", help="every data set, and where it is on this machine"), _data_list)
    fetch = of_data.add_parser("fetch", help="download data sets, or take them from $ASYNC_HFL_DATA")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="as `async-hfl data list` names them, or all")
    _finish(fetch, _data_fetch)
    verify = of_data.add_parser("verify", help="compare checksums with the published ones")
    verify.add_argument("names", nargs="*", metavar="NAME", help="default: every set that is on this machine")
    _finish(verify, _data_verify)
    show_data = of_data.add_parser("show", help="a picture of who holds what")
    show_data.add_argument("--task", help="what is learnt (`async-hfl tasks`), or FILE.py:NAME of your own")
    show_data.add_argument("--devices", type=int, metavar="N", help="as --set task.devices=N")
    show_data.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    show_data.add_argument("--seed", type=int)
    show_data.add_argument("--out", type=Path, metavar="FILE.png", help="the picture (default: TASK-devices.png)")
    _finish(show_data, _data_show)

    decide = commands.add_parser("decide", help="solve one selection or association problem from a file")
    which = decide.add_subparsers(metavar="WHAT", required=True)
    for kind, text in (("selection", "which devices to trigger"), ("association", "which device to which gateway")):
        one = which.add_parser(kind, help=text)
        one.add_argument("problem", type=Path, metavar="PROBLEM.json")
        one.add_argument("--exact", action="store_true", help="a proven optimum, however long it takes to prove")
        one.set_defaults(kind=kind)
        _finish(one, _decide)
    network = commands.add_parser(
        "network", help="networks: draw one, record one from a run, path loss, a check against ns-3"
    )
    of_network = network.add_subparsers(metavar="WHAT", required=True)
    show_network = of_network.add_parser("show", help="a map with links and delays, as a page and as a picture")
    show_network.add_argument(
        "name", metavar="NAME", help="as `async-hfl networks` lists it, a FILE of your own, a RUN"
    )
    show_network.add_argument("--devices", type=int, metavar="N", help="default: 184, of a file all")
    show_network.add_argument("--gateways", type=int, metavar="G")
    show_network.add_argument("--model-bytes", type=int, metavar="B", help="what travels (600000)")
    show_network.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    show_network.add_argument("--seed", type=int)
    show_network.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where both go (here)")
    _finish(show_network, _network_show)
    record = of_network.add_parser("record", help="write what a run's journal says of its network as a trace")
    record.add_argument("run", type=Path, metavar="RUN")
    record.add_argument("out", type=Path, metavar="OUT.csv")
    _finish(record, _network_record)
    losses = of_network.add_parser("path-loss", help="decibels lost between each pair of places in a CSV file")
    losses.add_argument("pairs", type=Path, metavar="PAIRS.csv", help="device_x_m, device_y_m, device_z_m, gateway_z_m")
    losses.add_argument("--frequency-mhz", type=float, required=True, metavar="F", help="the paper's: 2160")
    losses.add_argument("--environment", choices=["urban", "suburban", "open-areas"], default="urban")
    losses.add_argument("--city-size", choices=["small", "medium", "large"], default="large")
    losses.add_argument("--rooftop-m", type=float, default=20.0, metavar="H", help="how high the roofs are (20)")
    _finish(losses, _network_path_loss)
    validate = of_network.add_parser("validate", help="path loss and Wi-Fi transfers beside ns-3's (async-hfl[ns3])")
    validate.add_argument("--quick", action="store_true", help="a few transfers: a minute or two, not half an hour")
    validate.add_argument("--python", type=Path, metavar="PATH", help="a Python that has ns3 (default: this one)")
    _finish(validate, _network_validate)

    bench = commands.add_parser("bench", help="measure the simulator")
    what = bench.add_subparsers(metavar="WHAT", required=True)
    events = what.add_parser("events", help="device updates per second without training, by number of devices")
    events.add_argument("--quick", action="store_true", help="1,000 and 10,000 devices only")
    _finish(events, _bench_events)

    fuzz = commands.add_parser("fuzz-faults", help="simulate faults and check every invariant after every event")
    fuzz.add_argument("--seeds", type=int, default=200, metavar="N", help="how many scenarios (200)")
    fuzz.add_argument("--first-seed", type=int, default=0, metavar="S")
    fuzz.add_argument("--processes", type=int, default=None, metavar="P", help="default: one per core")
    _finish(fuzz, _fuzz)
    return parser


def _finish(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="one line of JSON, the last on stdout")
    parser.set_defaults(action=action, parser=parser)


def _print_json(data: Any) -> None:
    print(json.dumps(data))


def _run(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.reports.terminal import RunView

    with RunView(quiet=options.json) as view:
        made = api.run(
            options.file,
            task=options.task,
            method=options.method,
            network=options.network,
            preset=options.preset,
            seed=options.seed,
            overrides=options.overrides,
            out=options.out,
            start_from=options.start_from,
            on_start=view.started,
            on_epoch=view.epoch,
        )
    return _print_run(made, options.json)


def _central(options: argparse.Namespace) -> int:
    from async_hfl import api

    def told(row: dict[str, float]) -> None:
        print(f"epoch {row['epoch']:>3}  loss {row['loss']:.4f}  test {row['metric']:.4f}", flush=True)

    made = api.central(
        options.file,
        task=options.task,
        seed=options.seed,
        overrides=options.overrides,
        model=options.model,
        on_epoch=None if options.json else told,
    )
    if options.json:
        _print_json(asdict(made))
    else:
        naive = "" if made.naive is None else f"; the same as the last reading: {made.naive:.4f}"
        print(f"{made.task}: {made.metric} {made.final:.4f}, best {made.best:.4f}{naive} ({made.wall_s:.0f} s)")
    return 0


def _resume(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.reports.terminal import RunView

    with RunView(quiet=options.json) as view:
        made = api.resume(options.run, on_start=view.started, on_epoch=view.epoch)
    return _print_run(made, options.json)


def _show(options: argparse.Namespace) -> int:
    from async_hfl import api

    return _print_run(api.load_run(options.run), options.json)


def _print_run(made: Any, as_json: bool) -> int:
    from async_hfl.api import RESULT_FIELDS
    from async_hfl.reports.terminal import print_summary

    summary = made.summary
    if as_json:
        _print_json({key: summary[key] for key in RESULT_FIELDS})
    else:
        print_summary(made.manifest, summary)
    return 0


def _model(options: argparse.Namespace) -> int:
    from async_hfl import api

    source = api.load_run(options.run).model
    if options.out.suffix != ".safetensors":
        raise UserError(f"{options.out}: give the file the ending .safetensors, which is its format")
    try:
        shutil.copyfile(source, options.out)
    except OSError as error:
        raise DataError(
            f"{options.out}: cannot be written ({error.strerror or error}); give a file in a directory that exists"
        ) from error
    if options.json:
        _print_json({"run": str(options.run), "model": str(options.out)})
    else:
        print(f"{options.out}: the global model of {options.run}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from async_hfl.assembly.loading import available

    names = available(options.kind)
    if options.json:
        _print_json([{"name": name, "description": text} for name, text in names.items()])
    else:
        width = max(map(len, names))
        for name, text in names.items():
            print(f"{name:<{width}}  {text}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    from async_hfl.demo import demo

    result = demo(options.out, options.seed, quiet=options.json)
    if options.json:
        _print_json(result)
    return 0


def _data_list(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.fetching import list_sets
    from async_hfl.reports.units import size

    rows = list_sets()
    if options.json:
        _print_json([asdict(row) for row in rows])
        return 0
    for row in rows:
        missing = f"not here; `async-hfl data fetch {row.name}` ({size(row.download_bytes)})"
        where = f"{row.folder} ({size(row.bytes)})" if row.folder else row.place or missing
        print(f"{row.name:<14} {row.title}\n{'':<14} {row.train:,} to train, {row.test:,} to test; {row.licence}")
        print(f"{'':<14} {where}")
    return 0


def _data_fetch(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.catalogue import PUBLISHED, published_set
    from async_hfl.learning.datasets.fetching import fetch
    from async_hfl.reports.downloads import DownloadView
    from async_hfl.reports.units import size

    names = list(PUBLISHED) if options.names == ["all"] else options.names
    rows = []
    with DownloadView(quiet=options.json) as view:
        for published in [published_set(name) for name in names]:
            try:
                rows.append(fetch(published, view.progress))
            except KeyboardInterrupt:
                again = f"`async-hfl data fetch {published.name}` goes on where it stopped"
                return _complain(f"interrupted; {again}", 130)
    if options.json:
        _print_json([asdict(row) for row in rows])
        return 0
    what = {"there": "was there", "copied": "copied from $ASYNC_HFL_DATA", "downloaded": "downloaded"}
    for row in rows:
        print(f"{row.name:<14} {what[row.origin]}, checksums right: {row.folder} ({size(row.bytes)})")
    return 0


def _data_show(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.reports.holdings import draw_holdings, holdings_lines

    overrides = [*options.overrides, *([] if options.devices is None else [f"task.devices={options.devices}"])]
    held = api.holdings(task=options.task, seed=options.seed, overrides=overrides)
    out = options.out or Path(f"{held.short_name}-devices.png")
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{out}: give the picture the ending .png, .svg or .pdf")
    try:
        draw_holdings(held, out)
    except OSError as error:
        raise DataError(
            f"{out}: cannot be written ({error.strerror or error}); give a file in a directory that exists"
        ) from error
    if options.json:
        _print_json({**held.as_json(), "picture": str(out)})
    else:
        print("\n".join(holdings_lines(held)))
        print(f"{out}: the picture")
    return 0


def _data_verify(options: argparse.Namespace) -> int:
    from async_hfl.learning.datasets.catalogue import PUBLISHED, published_set
    from async_hfl.learning.datasets.fetching import verify

    asked = [published_set(name) for name in options.names]
    rows = []
    for published in asked or PUBLISHED.values():
        files = verify(published)
        if asked or any(file.path for file in files):
            rows += files
    if options.json:
        _print_json([asdict(row) for row in rows])
    else:
        for row in rows:
            print(f"{row.name:<14} {row.path or row.file}: {row.problem or 'right'}")
    wrong = [row for row in rows if row.problem]
    if wrong:
        names = " ".join(dict.fromkeys(row.name for row in wrong))
        remedy = f"`async-hfl data fetch {names}` gets them"
        if os.environ.get("ASYNC_HFL_DATA"):
            remedy += "; $ASYNC_HFL_DATA is read first: replace what is wrong there, or unset it"
        return _complain(f"{len(wrong)} of {len(rows)} files are not right; {remedy}", 2)
    if not rows:
        return _complain("no data set is on this machine; `async-hfl data list` shows what there is", 2)
    return 0


def _decide(options: argparse.Namespace) -> int:
    from async_hfl.assembly.deciding import decide_association, decide_selection

    if options.kind == "selection":
        answer = decide_selection(options.problem, exact=options.exact)
        chosen = answer["selected"]
        lines = [f"selected {len(chosen)}: {' '.join(chosen)}" if chosen else "selected nobody"]
    else:
        answer = decide_association(options.problem, exact=options.exact)
        lines = [f"{device}  {gateway}" for device, gateway in answer["association"].items()] or ["nobody associated"]
    if options.json:
        _print_json(answer)
        return 0
    print("\n".join(lines))
    print(
        f"objective {answer['objective']:.6g}, bound {answer['bound']:.6g}, gap {answer['gap']:.2g}, "
        f"{answer['seconds'] * 1e3:.2f} ms"
    )
    return 0


def _network_show(options: argparse.Namespace) -> int:
    from async_hfl.reports.network_show import draw_both, find_network, network_lines

    view, short_name = find_network(
        options.name,
        devices=options.devices,
        gateways=options.gateways,
        seed=options.seed,
        overrides=options.overrides,
        model_bytes=options.model_bytes,
    )
    page, picture = draw_both(view, options.out, short_name)
    if options.json:
        _print_json({**view.as_json(), "page": str(page), "picture": str(picture)})
    else:
        print("\n".join(network_lines(view)))
        print(f"{page}: the map, for a browser\n{picture}: the picture")
    return 0


def _network_record(options: argparse.Namespace) -> int:
    from async_hfl.assembly.network_recording import record_network

    counts = record_network(options.run, options.out)
    if options.json:
        _print_json({"run": str(options.run), "trace": str(options.out), "rows": counts})
    else:
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
        print(f"{options.out}: {told}\nreplay: async-hfl run --network file --set network.path={options.out}")
    return 0


def _network_path_loss(options: argparse.Namespace) -> int:
    from async_hfl.network.pair_losses import loss_lines, pair_losses, read_pairs
    from async_hfl.network.propagation.surroundings import Surroundings

    around = Surroundings(options.frequency_mhz, options.environment, options.city_size, options.rooftop_m)
    pairs = read_pairs(options.pairs)
    losses = pair_losses(pairs, around)
    if options.json:
        both = zip(pairs.names, losses.tolist(), strict=True)
        _print_json([{"pair": name, "path_loss_db": loss} for name, loss in both])
    else:
        print("\n".join(loss_lines(pairs, losses)))
    return 0


def _network_validate(options: argparse.Namespace) -> int:
    from async_hfl.network.ns3.comparison import compare, comparison_lines

    made = compare("quick" if options.quick else "full", options.python)
    if options.json:
        _print_json(made.as_json())
    else:
        print("\n".join(comparison_lines(made)))
    return 0 if made.agrees else 1


def _bench_events(options: argparse.Namespace) -> int:
    from async_hfl.assembly.event_benchmark import FULL, QUICK, bench_events, print_row

    rows = bench_events(QUICK if options.quick else FULL, None if options.json else print_row)
    if options.json:
        _print_json(rows)
    return 0


def _fuzz(options: argparse.Namespace) -> int:
    from async_hfl.assembly.fuzz_campaign import campaign

    if options.seeds < 1 or options.first_seed < 0:
        raise UserError("fuzz-faults: --seeds must be at least 1 and --first-seed at least 0")
    if options.processes is not None and options.processes < 1:
        raise UserError("fuzz-faults: --processes must be at least 1")
    result = campaign(options.first_seed, options.seeds, options.processes)
    for seed, what in result.failures[:20]:
        print(f"seed {seed}: {what}\n  replay: async-hfl fuzz-faults --first-seed {seed} --seeds 1 --processes 1")
    if options.json:
        _print_json(result.as_json())
    else:
        print(result.line())
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
