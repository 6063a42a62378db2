"""The simulator measured, and put under faults."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from async_hfl.cli.common import Commands, finish, print_json
from async_hfl.core.errors import UserError


def add_commands(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure the simulator")
    what = bench.add_subparsers(metavar="WHAT", required=True)
    events = what.add_parser("events", help="device updates per second without training, by number of devices")
    events.add_argument("--quick", action="store_true", help="1,000 and 10,000 devices only")
    finish(events, _bench_events)

    fuzz = commands.add_parser("fuzz-faults", help="simulate faults and check every invariant after every event")
    fuzz.add_argument("--seeds", type=int, default=200, metavar="N", help="how many scenarios (200)")
    fuzz.add_argument("--first-seed", type=int, default=0, metavar="S")
    fuzz.add_argument("--processes", type=int, default=None, metavar="P", help="default: one per core")
    drawn = "built in or FILE.py:CLASS (default: drawn for each scenario)"
    fuzz.add_argument("--gateway-rule", metavar="RULE", help=f"aggregation rule of the gateways, {drawn}")
    fuzz.add_argument("--cloud-rule", metavar="RULE", help=f"aggregation rule of the cloud, {drawn}")
    fuzz.add_argument("--resume", type=Path, metavar="FILE", help="note there how far it is, and go on from there")
    finish(fuzz, _fuzz)


def _bench_events(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.event_benchmark import FULL, QUICK, bench_events, print_row

    rows = bench_events(QUICK if options.quick else FULL, None if options.json else print_row)
    if options.json:
        print_json(rows)
    return 0


def _fuzz(options: argparse.Namespace) -> int:
    from async_hfl.assembly.fuzzing.campaign import Rules, campaign, check_rules, resumed

    if options.seeds < 1 or options.first_seed < 0:
        raise UserError("fuzz-faults: --seeds must be at least 1 and --first-seed at least 0")
    if options.processes is not None and options.processes < 1:
        raise UserError("fuzz-faults: --processes must be at least 1")
    rules = Rules(options.gateway_rule, options.cloud_rule)
    check_rules(rules)
    if options.resume is None:
        result = campaign(options.first_seed, options.seeds, options.processes, rules)
    else:
        result = resumed(options.resume, options.first_seed, options.seeds, options.processes, rules)
    again = "".join(f" --{place}-rule {name}" for place, name in asdict(rules).items() if name is not None)
    for seed, what in result.failures[:20]:
        print(
            f"seed {seed}: {what}\n  replay: async-hfl fuzz-faults --first-seed {seed} --seeds 1 --processes 1{again}"
        )
    if options.json:
        print_json(result.as_json())
    else:
        print(result.line())
    return 1 if result.failures else 0
