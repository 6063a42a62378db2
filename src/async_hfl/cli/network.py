"""Networks: draw them, record them from runs, compute path loss, check the radio models against ns-3."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from async_hfl.cli.common import Commands, add_command, add_group, add_run, add_settings, answer
from async_hfl.core.errors import UserError


def add_commands(commands: Commands) -> None:
    network = add_group(commands, "network", "networks: show, record, path-loss, validate")
    show = add_command(network, "show", _show, "draw a map with links and delays, as a page and as a picture")
    show.add_argument("name", metavar="NAME", help="a name from `async-hfl networks`, a network file or a RUN")
    show.add_argument("--devices", type=int, metavar="N", help="devices to place (default: 184, or all of a file)")
    show.add_argument("--gateways", type=int, metavar="G", help="gateways to place (default: depends on NAME)")
    show.add_argument("--model-bytes", type=int, metavar="B", help="the size of the model (default: 600000)")
    add_settings(show)
    show.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="the directory of both files")
    record = add_command(network, "record", _record, "write the delays in a run's journal as a network trace")
    add_run(record)
    record.add_argument("out", type=Path, metavar="OUT.csv", help="the trace to write")
    losses = add_command(
        network, "path-loss", _path_loss, "compute the path loss in dB for each pair of sites in a CSV file"
    )
    losses.add_argument("pairs", type=Path, metavar="PAIRS.csv", help="device_x_m, device_y_m, device_z_m, gateway_z_m")
    losses.add_argument("--frequency-mhz", type=float, required=True, metavar="F", help="the paper uses 2160")
    losses.add_argument("--environment", choices=["urban", "suburban", "open-areas"], default="urban", help="the area")
    losses.add_argument("--city-size", choices=["small", "medium", "large"], default="large", help="the city")
    losses.add_argument("--rooftop-m", type=float, default=20.0, metavar="H", help="the height of the rooftops")
    validate = add_command(
        network, "validate", _network_validate, "compare path loss and Wi-Fi with ns-3 (needs a source checkout)"
    )
    validate.add_argument("--quick", action="store_true", help="few transfers: minutes instead of half an hour")
    validate.add_argument("--python", type=Path, metavar="PATH", help="an interpreter with ns3 (default: this one)")


def _show(options: argparse.Namespace) -> int:
    from async_hfl.reports.figures.pictures import NO_PICTURES
    from async_hfl.reports.terminal.network_show import draw_both, find_network, network_lines

    view, short_name = find_network(
        options.name,
        devices=options.devices,
        gateways=options.gateways,
        seed=options.seed,
        overrides=options.overrides,
        model_bytes=options.model_bytes,
    )
    page, picture = draw_both(view, options.out, short_name)
    files = {"page": str(page), "picture": None if picture is None else str(picture)}
    lines = [*network_lines(view), f"page:    {page}  (open it in a browser)", f"picture: {picture or NO_PICTURES}"]
    return answer(options, {**view.as_json(), **files}, lines)


def _record(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.network_recording import record_network

    counts = record_network(options.run, options.out)
    rows = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    again = f"use it with: async-hfl run --network {options.out}"
    result = {"run": str(options.run), "trace": str(options.out), "rows": counts}
    return answer(options, result, [f"{options.out}: {rows}", again])


def _path_loss(options: argparse.Namespace) -> int:
    from async_hfl.network.radio.pair_losses import loss_lines, pair_losses, read_pairs
    from async_hfl.network.radio.propagation.surroundings import Surroundings

    around = Surroundings(options.frequency_mhz, options.environment, options.city_size, options.rooftop_m)
    pairs = read_pairs(options.pairs)
    losses = pair_losses(pairs, around)
    both = zip(pairs.names, losses.tolist(), strict=True)
    return answer(options, [{"pair": name, "path_loss_db": loss} for name, loss in both], loss_lines(pairs, losses))


def _network_validate(options: argparse.Namespace) -> int:
    script = Path(__file__).parents[3] / "benchmarks" / "ns3_validation.py"
    if not script.is_file():
        raise UserError(
            "network validate needs a source checkout of async-hfl, which has benchmarks/ns3_validation.py, and "
            "the ns3 package: in the checkout, pip install -e '.[ns3]' (Linux, 520 MB, GPL), then run it again"
        )
    flags = ["--quick"] * options.quick + ["--json"] * options.json
    python = [] if options.python is None else ["--python", str(options.python)]
    done = subprocess.run([sys.executable, script, *flags, *python], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise UserError((done.stderr.strip().splitlines() or ["the comparison ended without a message"])[-1])
    print(done.stdout, end="")
    return done.returncode
