"""Tools: single decisions, replays, the benchmark of the simulator, fault fuzzing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from async_hfl.cli.common import Commands, add_command, add_group, answer, print_json
from async_hfl.core.errors import UserError


def add_commands(commands: Commands) -> None:
    decide = add_group(commands, "decide", "solve one selection or association problem from a file")
    for kind, text in (("selection", "choose the devices to trigger"), ("association", "assign devices to gateways")):
        one = add_command(decide, kind, _decide, text)
        one.add_argument("problem", type=Path, metavar="PROBLEM.json", help="the problem")
        one.add_argument("--exact", action="store_true", help="find a proven optimum, however long it takes")
        one.set_defaults(kind=kind)

    replay = add_command(commands, "replay", _replay, "feed the logs of a run to new nodes and compare every effect")
    replay.add_argument("path", type=Path, metavar="RUN|NODE_DIR", help="a run, or the state directory of a node")
    replay.add_argument("--resolve", action="store_true", help="also solve the associations again and compare them")

    bench = add_group(commands, "bench", "measure the simulator: events")
    events = add_command(bench, "events", _bench_events, "measure device updates per second without training")
    events.add_argument("--quick", action="store_true", help="1,000 and 10,000 devices only")

    fuzz = add_command(commands, "fuzz-faults", _fuzz, "simulate faults and check every invariant after every event")
    fuzz.add_argument("--seeds", type=int, default=200, metavar="N", help="the number of scenarios")
    fuzz.add_argument("--first-seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    fuzz.add_argument("--processes", type=int, metavar="P", help="the number of processes (default: one per core)")
    drawn = "a built-in rule or FILE.py:CLASS (default: drawn for each scenario)"
    fuzz.add_argument("--gateway-rule", metavar="RULE", help=f"the aggregation rule of the gateways: {drawn}")
    fuzz.add_argument("--cloud-rule", metavar="RULE", help=f"the aggregation rule of the cloud: {drawn}")
    fuzz.add_argument("--resume", type=Path, metavar="FILE", help="keep the progress in FILE and continue from it")


def _decide(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.decide import decide_association, decide_selection

    if options.kind == "selection":
        found = decide_selection(options.problem, exact=options.exact)
        chosen = found["selected"]
        lines = [f"selected {len(chosen)}: {' '.join(chosen)}" if chosen else "no device selected"]
    else:
        found = decide_association(options.problem, exact=options.exact)
        lines = [f"{device}  {gateway}" for device, gateway in found["association"].items()] or ["no device associated"]
    lines.append(
        f"objective {found['objective']:.6g}, bound {found['bound']:.6g}, gap {found['gap']:.2g}, "
        f"{found['seconds'] * 1e3:.2f} ms"
    )
    return answer(options, found, lines)


def _replay(options: argparse.Namespace) -> int:
    from async_hfl.assembly.runs.replay import describe, replay

    found = replay(options.path, resolve=options.resolve)
    answer(options, found.as_json(), [describe(found)])
    return 1 if found.differences else 0


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
    answer(options, result.as_json(), [result.line()])
    return 1 if result.failures else 0
