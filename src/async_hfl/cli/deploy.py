"""A deployment: the processes of cloud, gateways and devices, and a whole cluster on one machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from async_hfl.cli.common import Commands, add_choices, add_command, add_run_file, add_settings, answer, settings_of
from async_hfl.core.errors import UserError


def add_commands(commands: Commands) -> None:
    cloud = add_command(commands, "cloud", _cloud, "run the cloud of a deployment")
    add_run_file(cloud)
    add_choices(cloud, "task", "method")
    add_settings(cloud)
    cloud.add_argument("--listen", default="0.0.0.0:7100", metavar="HOST:PORT", help="the address to listen on")
    text = "once: continue although the state is an older copy; what was done since is lost, and gateways start again"
    cloud.add_argument("--restored", action="store_true", help=text)
    _add_process(cloud, "cloud")

    gateway = add_command(commands, "gateway", _gateway, "run a gateway of a deployment")
    gateway.add_argument("--cloud", required=True, metavar="HOST:PORT", help="the address of the cloud")
    gateway.add_argument("--listen", default="0.0.0.0:7200", metavar="HOST:PORT", help="the address to listen on")
    _add_give_up(gateway, "the cloud does not answer")
    _add_process(gateway, "gateway")

    device = add_command(commands, "device", _device, "run one or several devices of a deployment")
    device.add_argument("--gateways", metavar="HOST:PORT,...", help="the gateways that the device can reach")
    device.add_argument("--data", metavar="PATH", help="the training data: a .npz or .csv file, or a folder of them")
    device.add_argument("--shard", metavar="3/8,...", help="instead of --data: this part of a built-in data set")
    device.add_argument("--task", help="the local FILE.py:NAME of the task, if the cloud's task is a file")
    text = "instead of --task: the local FILE.py:NAME of a Flower client; its model and configuration are the cloud's"
    device.add_argument("--client", metavar="FILE.py:NAME", help=text)
    device.add_argument("--slowdown", metavar="FACTOR,...", help="slow training down by this factor")
    device.add_argument("--check", action="store_true", help="load the data, train once, report the time, and exit")
    _add_give_up(device, "no gateway answers")
    _add_process(device, "device")

    cluster = add_command(commands, "cluster", _cluster, "run a whole deployment with real processes on this machine")
    add_run_file(cluster)
    cluster.add_argument("--gateways", type=int, default=2, help="the number of gateways")
    cluster.add_argument("--devices", type=int, help="the number of devices (default: 8, or the sum of the classes)")
    cluster.add_argument("--devices-per-process", type=int, default=4, help="the number of devices in a process")
    add_choices(cluster, "task", "method")
    add_settings(cluster)
    cluster.add_argument("--insecure", action="store_true", help="run without certificates")
    form = "COUNT:SLOWDOWN[:BYTES/S[:DELAY_S]]"
    text = "COUNT devices with this slowdown of training and, through proxies, this link; repeatable"
    cluster.add_argument("--class", action="append", default=[], dest="classes", metavar=form, help=text)
    cluster.add_argument("--proxies", action="store_true", help="put a proxy on every link between device and gateway")
    cluster.add_argument("--out", type=Path, metavar="DIR", help="the run directory (default: a new one under runs/)")

    chaos = add_command(commands, "chaos", _chaos, "cause random faults on a cluster, then audit its disks")
    chaos.add_argument("--minutes", type=float, default=10.0, help="how long to cause faults (default: 10)")
    chaos.add_argument("--seed", type=int, default=1, help="the seed of the faults")
    chaos.add_argument("--gateways", type=int, default=2, help="the number of gateways")
    chaos.add_argument("--devices", type=int, default=4, help="the number of devices")
    chaos.add_argument("--out", type=Path, metavar="DIR", help="keep logs and stores in this new directory")


def _add_give_up(parser: argparse.ArgumentParser, when: str) -> None:
    text = f"exit with code 3 if {when} for this long, such as 90s, 15m, 7d or never"
    parser.add_argument("--give-up", default="24h", metavar="TIME", help=text)


def _add_process(parser: argparse.ArgumentParser, role: str) -> None:
    several = "; for several devices, separated by commas" if role == "device" else ""
    parser.add_argument("--name", default=role, help=f"the name in the certificate{several}")
    parser.add_argument("--state", type=Path, metavar="DIR", help="the durable state (default: state/NAME)")
    parser.add_argument("--certificates", type=Path, metavar="DIR", help="its key.pem, certificate.pem and ca.pem")
    parser.add_argument("--insecure", action="store_true", help="run without certificates, for a lab")
    beyond = "allow --insecure on addresses that other machines can reach"
    parser.add_argument("--insecure-beyond-loopback", action="store_true", help=beyond)
    levels = ["debug", "info", "warning"]
    parser.add_argument("--log", default="info", choices=levels, help="the lowest level to log")
    parser.add_argument("--log-format", default="text", choices=["text", "json"], help="json: one object per line")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="serve Prometheus metrics (default host: loopback)")


def _begin(options: argparse.Namespace, role: Any, *names: str) -> Any:
    """Set up logging, make this process exit with its parent, and return the credentials."""
    from async_hfl.deployment.identity.credentials import Certified, Insecure
    from async_hfl.deployment.operations.logs import set_up_logs
    from async_hfl.deployment.processes.parent_death import die_with_launcher
    from async_hfl.deployment.transport.descriptors import raise_limit

    die_with_launcher()
    raise_limit()
    set_up_logs(options.log, options.log_format, role, ",".join(names))
    if options.insecure:
        return Insecure(beyond_loopback=options.insecure_beyond_loopback)
    if options.certificates is None:
        raise UserError(
            "no credentials; give the node's --certificates DIR (made by `async-hfl certs`), or --insecure in a lab"
        )
    credentials = Certified(options.certificates)
    for name in names:
        credentials.check_own_name(role, name)
    return credentials


def _run_process(options: argparse.Namespace, role: str, process: Callable[..., Any]) -> int:
    """Run a node to its end. `process` creates it; its argument `wrote` is called for every record."""
    from async_hfl.deployment.processes.main_loop import Interrupted, run_to_end
    from async_hfl.deployment.processes.went_back import WentBack, set_aside

    with ExitStack() as closing:
        wrote: Callable[[Any], None] = lambda record: None  # noqa: E731
        if options.metrics is not None:
            from async_hfl.deployment.operations.metrics import Metrics

            metrics = Metrics(role, options.name)
            closing.callback(metrics.serve(options.metrics))
            wrote = metrics.wrote
        while True:
            try:
                run_to_end(process(wrote=wrote).run())
            except Interrupted as interrupted:
                return interrupted.code
            except WentBack as error:
                set_aside(error)
                continue
            return 0


def _cloud(options: argparse.Namespace) -> int:
    credentials = _begin(options, "cloud", options.name)
    from async_hfl.assembly.deployments.plans import cloud_plan
    from async_hfl.assembly.settings.loading import compose
    from async_hfl.deployment.processes.cloud import CloudProcess

    composed = compose(**settings_of(options), network="deployed")
    plan = cloud_plan(options.name, composed.choice, composed.settings)
    state = options.state or Path("state") / options.name
    return _run_process(
        options, "cloud", partial(CloudProcess, plan, state, options.listen, credentials, restored=options.restored)
    )


def _gateway(options: argparse.Namespace) -> int:
    credentials = _begin(options, "gateway", options.name)
    from async_hfl.assembly.deployments.plans import gateway_plan
    from async_hfl.deployment.processes.gateway import GatewayProcess
    from async_hfl.deployment.processes.reconnect_deadline import parse_duration

    state = options.state or Path("state") / options.name
    plan = gateway_plan(options.name)
    give_up_s = parse_duration(options.give_up)
    addresses = (options.cloud, options.listen)
    process = partial(GatewayProcess, plan, state, *addresses, credentials, give_up_s=give_up_s)
    return _run_process(options, "gateway", process)


def _device(options: argparse.Namespace) -> int:
    names = options.name.split(",")
    local = _local(options, names)
    if options.check:
        return _check(options, local)
    if not options.gateways:
        raise UserError("no gateways; give those that the device can reach: --gateways HOST:PORT,...")
    credentials = _begin(options, "device", *names)
    from async_hfl.assembly.deployments.plans import device_plan
    from async_hfl.deployment.processes.device import DeviceProcess
    from async_hfl.deployment.processes.reconnect_deadline import parse_duration

    state = options.state or Path("state")
    states = [state] if options.state is not None and len(names) == 1 else [state / name for name in names]
    reached = [text.split(",") for text in options.gateways.split(";")]
    if len(reached) == 1:
        reached *= len(names)
    if len(reached) != len(names):
        raise UserError(f"--gateways has {len(reached)} lists (separated by ;) for {len(names)} devices")
    plan = device_plan(names, local, _slowdowns(options.slowdown, len(names)))
    give_up_s = parse_duration(options.give_up)
    process = partial(DeviceProcess, plan, states, reached, credentials, give_up_s=give_up_s)
    return _run_process(options, "device", process)


def _slowdowns(text: str | None, devices: int) -> list[float]:
    if text is None:
        return []
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--slowdown {text}: write 8, or 1,8,8 for three devices") from error
    if len(factors) == 1:
        factors *= devices
    if len(factors) != devices or not all(1 <= factor < float("inf") for factor in factors):
        raise UserError(f"--slowdown {text}: give a factor of at least 1 for each of {devices} devices")
    return factors


def _local(options: argparse.Namespace, names: list[str]) -> Any:
    """Return the data that the devices train on."""
    from async_hfl.assembly.deployments.local_learning import Files, Local

    if (options.shard is None) == (options.data is None):
        raise UserError("the device needs data: give either --data PATH, or --shard 3/8 of a built-in data set")
    texts = (options.data if options.shard is None else options.shard).split(",")
    if len(texts) != len(names):
        raise UserError(f"{len(texts)} parts of data for {len(names)} devices (--name); give one for each device")
    sources = [_part(text) if options.data is None else Files(Path(text).resolve()) for text in texts]
    if options.client and (options.task or options.data is not None or options.check):
        raise UserError(
            "--client: give it with --shard 3/8, which is its partition, and without --task, --data and --check"
        )
    return Local(tuple(sources), options.task or "", options.client or "")


def _check(options: argparse.Namespace, local: Any) -> int:
    from async_hfl.assembly.deployments.local_learning import check_device

    found = check_device(options.task, local)
    timed = zip(found["samples"], found["compute_s"], strict=True)
    lines = [f"{found['task']}: {samples} samples, one training takes {seconds:.3f} s" for samples, seconds in timed]
    return answer(options, found, lines)


def _part(text: str) -> Any:
    from async_hfl.assembly.deployments.local_learning import Part

    place, _, of = text.partition("/")
    if not (place.isdigit() and of.isdigit() and 1 <= int(place) <= int(of)):
        raise UserError(f"--shard {text}: write 3/8 for the third of eight parts")
    return Part(int(place) - 1, int(of))


def _chaos(options: argparse.Namespace) -> int:
    import tempfile

    from async_hfl.assembly.deployments.chaos import ChaosOptions, describe, run_chaos
    from async_hfl.deployment.cluster import small_disks
    from async_hfl.deployment.processes.main_loop import Interrupted

    for name in ("gateways", "devices"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: must be at least 1")
    if options.out is not None and options.out.exists():
        raise UserError(f"--out {options.out}: exists already; give a new directory")
    if not small_disks.unavailable() and not os.environ.get(small_disks.INSIDE):
        small_disks.enter_namespace(sys.argv[1:])
    chosen = ChaosOptions(options.minutes, options.seed, options.gateways, options.devices)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary) / "chaos"
        try:
            found = run_chaos(chosen, folder.absolute(), lambda text: print(text, file=sys.stderr))
        except Interrupted as interrupted:
            return interrupted.code
    answer(options, found.as_json(), describe(found))
    return 0 if found.passed else 1


def _cluster(options: argparse.Namespace) -> int:
    from async_hfl import api
    from async_hfl.cli.runs import print_run
    from async_hfl.deployment.processes.main_loop import Interrupted
    from async_hfl.reports.terminal.run_view import RunView

    for name in ("gateways", "devices", "devices_per_process"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise UserError(f"--{name.replace('_', '-')} {number}: must be at least 1")
    with RunView(quiet=options.json) as view:

        def started(run: Any, settings: Any, usual: Any) -> None:
            view.started(run, settings)
            if usual and not options.json:
                print(f"adapted to the size of the cluster: {', '.join(usual)}", file=sys.stderr)

        try:
            made = api.cluster(
                **settings_of(options),
                gateways=options.gateways,
                devices=options.devices,
                devices_per_process=options.devices_per_process,
                out=options.out,
                insecure=options.insecure,
                proxies=options.proxies,
                classes=options.classes,
                on_start=started,
                on_progress=None if options.json else view.epoch,
            )
        except Interrupted as interrupted:
            return interrupted.code
    return print_run(made, options.json)
