"""Commands for the operator of a deployment: status, drain, collect."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from async_hfl.cli.common import Commands, add_command, answer, print_json


def add_commands(commands: Commands) -> None:
    status = add_command(commands, "status", _status, "show the state of a deployment")
    _add_cloud(status)
    status.add_argument("--watch", type=float, metavar="SECONDS", help="repeat at this interval until the run is over")

    drain = add_command(commands, "drain", _drain, "end the run of a deployment now, gracefully")
    _add_cloud(drain)

    collect = add_command(commands, "collect", _collect, "merge the journals of a deployment into a run directory")
    collect.add_argument("out", type=Path, metavar="OUT", help="the run directory to create")
    collect.add_argument("states", nargs="*", type=Path, metavar="DIR", help="state directories, or folders of them")
    collect.add_argument("--cloud", metavar="HOST:PORT", help="fetch the journal of a running cloud")
    collect.add_argument("--gateways", default="", metavar="HOST:PORT,...", help="fetch those of running gateways")
    _add_trust(collect)


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cloud", metavar="HOST:PORT|RUN", help="the address of the cloud, or the RUN of a cluster")
    _add_trust(parser)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--certificates", type=Path, metavar="DIR", help="the directory of an operator's certificate")
    parser.add_argument("--insecure", action="store_true", help="the deployment runs without certificates")


def _status(options: argparse.Namespace) -> int:
    from async_hfl.api.operated import cloud_of
    from async_hfl.deployment.operations.operators import ask_status

    address, credentials = cloud_of(options.cloud, options.certificates, insecure=options.insecure)
    while True:
        found = ask_status(address, credentials)
        if options.json:
            print_json(found)
        else:
            _show(found)
        if not options.watch or found["phase"] == "over":
            return 0
        time.sleep(options.watch)


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table

    from async_hfl.reports.tables.formatting import duration
    from async_hfl.reports.terminal.console import console as make_console

    console = make_console(highlight=True)
    metric = "none yet" if found["metric"] is None else f"{found['metric']:.4f}"
    console.print(
        f"[bold]{found['task']} · {found['method']}[/bold]  run {found['run']}  {found['phase']} for "
        f"{duration(found['at'])}: epoch {found['cloud_epoch']}, {found['updates_in_model']} updates in the model, "
        f"metric {metric} (target {found['target']:g})"
    )
    gateways = Table("gateway", "state", "devices", "leases", "in flight", "epoch", "phase")
    for one in found["gateways"]:
        rest = [str(one.get(key, "")) for key in ("in_flight", "gateway_epoch", "phase")]
        gateways.add_row(one["name"], one["state"], str(one["devices"]), str(one["holds"]), *rest)
    console.print(gateways)
    devices = Table("device", "gateway", "reaches", "samples", "latency", "loss")
    for one in found["devices"]:
        latency = "" if one["round_latency_s"] is None else f"{one['round_latency_s']:.3f} s"
        loss = "" if one["loss"] is None else f"{one['loss']:.3f}"
        reaches = ", ".join(one["reaches"])
        devices.add_row(one["name"], one["gateway"] or "", reaches, str(one["samples"]), latency, loss)
    console.print(devices)


def _drain(options: argparse.Namespace) -> int:
    from async_hfl.api.operated import drain

    address = drain(options.cloud, certificates=options.certificates, insecure=options.insecure)
    lines = [f"{address}: is ending the run and telling gateways and devices"]
    return answer(options, {"draining": True, "cloud": address}, lines)


def _collect(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.api.operated import trust
    from async_hfl.deployment.operations.operators import fetch_journal

    with tempfile.TemporaryDirectory() as folder:
        fetched = []
        if options.cloud or options.gateways:
            credentials = trust(options.certificates, insecure=options.insecure)
            wanted: list[tuple[str, Any]] = [(options.cloud, "cloud")] if options.cloud else []
            wanted += [(target, "gateway") for target in options.gateways.split(",") if target]
            fetched = [fetch_journal(target, role, credentials, Path(folder)) for target, role in wanted]
        made = api.collect(options.out, [*options.states, *fetched])
    nodes = made.manifest["nodes"]
    state = "the run is complete" if made.complete else "the run is not over"
    result = {"run": str(made.path), "complete": made.complete, "nodes": nodes}
    return answer(options, result, [f"{made.path}: journals of {len(nodes)} nodes; {state}"])
