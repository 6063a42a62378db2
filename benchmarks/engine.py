"""Client updates per second of the library's engine, PyTorch and other simulators, on the same work.

    python benchmarks/engine.py                         # all tasks, several minutes on a CPU
    python benchmarks/engine.py --quick                 # under 50 s on two cores
    python benchmarks/engine.py --torch-python PATH     # if this interpreter has no PyTorch
    python benchmarks/engine.py --peer-python pfl=PATH --peer-python flower=PATH

All engines train the same clients: same samples in the same order of batches, same start weights, same recipe (SGD with
momentum, weight decay, proximal term), on the same cores or the same GPU. They take turns in every round, so that other
load on the machine affects all of them; the table shows the median and the range of the rounds. The time is the wall
time of a whole call, until the weights are back on the host. The first call, which compiles, is reported separately.
The weights of all engines are compared with those of torch-loop.

    ours          Engine.begin, as a run calls it
    torch-learner the library's learner for tasks in PyTorch: a process per core, or a few that share the GPU
    torch-loop    a plain PyTorch loop, client after client, default threads
    torch-tuned   flat vectors; a single-threaded process per core, or CUDA graphs on a GPU
    pfl, flower   the simulators of these names, if they are installed

Share of peak: counted operations (see engine_peers/flops.py) divided by the measured rate of matrix products on all
cores, or on the GPU at the engine's precision. Memory: the peak of resident memory above that of the loaded libraries,
in all processes of the engine, without compilation; on a GPU the peak of its memory, but for torch-learner that of the
host.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine_peers.flops import update_flops
from engine_peers.process import EngineFailed, EngineProcess
from engine_peers.sizes import SIZES, Size, wanted_sizes

TASKS = [size.task for size in SIZES]
ENGINES = ["ours", "torch-loop", "torch-tuned", "torch-learner", "pfl", "flower"]
TOLERANCE = {"float32": 1e-3, "tf32": 0.3, "bf16": 0.7}
"""Largest distance of the weights from those of torch-loop, relative to the distance that training moved them; the
median of the clients that are checked. Rounding differs, and a maximum or rectifier near a tie may switch."""
AMPLIFIED = {"mnist": 50.0, "cifar10": 50.0}
"""Factor on the tolerance in float32: if one pool or rectifier in a late layer switches, the gradients of all earlier
layers change by thousandths."""
CHECKED = 3
QUICK_LIMITS_S = (37.0, 45.0)
"""After the first limit no further task is started; an engine that has not answered by the second is left out."""


@dataclass(frozen=True)
class Contender:
    label: str
    worker: str
    python: str
    options: dict[str, Any]
    precision: str
    """Precision of its matrix products."""
    parallel: int
    """Clients that it trains at the same time, at least."""


@dataclass
class Standing:
    contender: Contender
    process: EngineProcess
    clients: int = 1
    first_call_s: float = 0.0
    rates: list[float] = field(default_factory=list)
    weights: Path | None = None
    distance: float | None = None
    peak_bytes: int = 0


@dataclass(frozen=True)
class Machine:
    platform: str
    name: str
    cores: int
    peaks: dict[str, float]

    @property
    def accelerator(self) -> bool:
        return self.platform != "cpu"

    def peak(self, precision: str) -> float:
        return self.peaks[precision] if self.accelerator else self.peaks["all_cores"]


def main() -> int:
    arguments = parsed()
    began = time.monotonic()
    bench = Benchmark(arguments, began)
    with tempfile.TemporaryDirectory(prefix="async-hfl-engine-") as folder, ExitStack() as stack:
        rows = bench.run(Path(folder), stack)
    if arguments.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    return 1 if bench.different or bench.failed else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short rounds, synthetic data, under 50 s on two cores")
    parser.add_argument("--json", action="store_true", help="print a JSON list of the results only")
    parser.add_argument("--tasks", type=_names(TASKS), default=TASKS, metavar="A,B")
    parser.add_argument("--engines", type=_names(ENGINES), default=ENGINES, metavar="A,B")
    parser.add_argument(
        "--precision",
        type=_names(list(TOLERANCE)),
        help="precision of the library's engine; the first of several is called ours (CPU: float32, GPU: tf32,float32)",
    )
    parser.add_argument(
        "--data", choices=["auto", "real", "synthetic"], help="auto: real data if it is on this machine"
    )
    parser.add_argument("--rounds", type=int, help="turns of every engine (default 5; quick: 2)")
    parser.add_argument("--seconds", type=float, help="approximate length of a turn (default 3; quick: 0.4)")
    parser.add_argument("--clients", type=_pair(int), action="append", default=[], metavar="TASK=NUMBER")
    parser.add_argument("--memory", type=int, help="bytes that a group of the library's engine may take on a device")
    parser.add_argument(
        "--task-settings", action="store_true", help="use the epochs and batch size of the library's tasks"
    )
    parser.add_argument("--torch-python", default=sys.executable, metavar="PATH", help="interpreter that has PyTorch")
    parser.add_argument("--peer-python", type=_pair(str), action="append", default=[], metavar="NAME=PATH")
    return parser.parse_args()


class Benchmark:
    def __init__(self, arguments: argparse.Namespace, began: float) -> None:
        self._arguments = arguments
        self._quick: bool = arguments.quick
        self._rounds: int = arguments.rounds or (2 if self._quick else 5)
        self._seconds: float = arguments.seconds or (0.4 if self._quick else 3.0)
        self._data: str = arguments.data or ("synthetic" if self._quick else "auto")
        self._end, self._last = (began + limit if self._quick else float("inf") for limit in QUICK_LIMITS_S)
        self._patience = 900.0
        self._missing: set[str] = set()
        self.different = False
        """True if the weights of an engine differ from those of torch-loop."""
        self.failed = False
        """True if the library's own engine could not be measured."""

    def run(self, folder: Path, stack: ExitStack) -> list[dict[str, Any]]:
        preparer = stack.enter_context(EngineProcess("prepare", sys.executable, {}, self._patience, self._last))
        about = preparer.ready()
        accelerator = about["platform"] != "cpu"
        # With a new process for each task, memory is measured per task. A quick benchmark has no time for that.
        kept = self._ready(self._started(self._contenders(accelerator=accelerator), stack)) if self._quick else None
        peaks = preparer.ask("peak", seconds=0.3 if self._quick else 2.0)
        machine = Machine(about["platform"], about["device"] if accelerator else _processor(), _cores(), peaks)
        clients = dict(self._arguments.clients)
        sizes = wanted_sizes(
            self._arguments.tasks,
            accelerator=accelerator,
            quick=self._quick,
            task_settings=self._arguments.task_settings,
            clients=clients,
        )
        rows = []
        for number, size in enumerate(sizes):
            if time.monotonic() > self._end:
                _note(f"{size.name}: left out: the time limit of a quick benchmark is reached")
                continue
            place = folder / f"{number}-{size.name}"
            try:
                made = preparer.ask("prepare", size=asdict(size), data=self._data, folder=str(place))
            except EngineFailed as problem:
                _note(f"{size.name}: left out: {problem}")
                self.failed |= time.monotonic() < self._last
                break
            with ExitStack() as own:
                standings = kept or self._ready(self._started(self._contenders(accelerator=accelerator), own))
                standings = [Standing(each.contender, each.process) for each in standings]
                if number == 0:
                    self._better_peaks(machine, standings)
                    self._head(machine)
                standings = self._compare(place, size, standings, machine)
                rows += self._report(size, standings, machine, made["data"])
        return rows

    def _contenders(self, *, accelerator: bool) -> list[Contender]:
        options, wanted = self._arguments, self._arguments.engines
        cores = _cores()
        found = []
        precisions = options.precision or (["tf32", "float32"] if accelerator else ["float32"])
        for number, precision in enumerate(precisions if "ours" in wanted else []):
            label = "ours" if number == 0 else f"ours-{precision}"
            own = {"precision": precision, "memory": options.memory}
            found.append(Contender(label, "ours", sys.executable, own, precision, cores))
        peers = dict(options.peer_python)
        for name in wanted:
            if name != "ours" and name not in self._missing:
                python = peers.get(name, options.torch_python)
                tuned = name == "torch-tuned"
                precision = "tf32" if accelerator and tuned else "float32"
                parallel = 1 if name in ("torch-loop", "pfl") or (accelerator and tuned) else cores
                most = max((size.clients for size in SIZES), default=1)
                found.append(Contender(name, name, python, {"clients": most, "cores": cores}, precision, parallel))
        return found

    def _started(self, contenders: list[Contender], stack: ExitStack) -> list[Standing]:
        found = []
        for each in contenders:
            try:
                process = EngineProcess(each.worker, each.python, each.options, self._patience, self._last)
            except EngineFailed as problem:
                self._leave_out(each.label, problem)
                continue
            found.append(Standing(each, stack.enter_context(process)))
        return found

    def _ready(self, standings: list[Standing]) -> list[Standing]:
        found = []
        for each in standings:
            try:
                each.process.ready()
                found.append(each)
            except EngineFailed as problem:
                self._leave_out(each.contender.label, problem)
        return found

    def _leave_out(self, label: str, problem: EngineFailed) -> None:
        _note(f"{label}: left out: {problem}")
        self.failed |= label.startswith("ours")
        self._missing.add(label)

    def _better_peaks(self, machine: Machine, standings: list[Standing]) -> None:
        """Use the highest rate of the installed libraries; a lower one would overstate the share of peak."""
        for each in standings:
            if each.contender.worker == "torch-loop" and not machine.accelerator:
                for name, rate in each.process.ask("peak").items():
                    machine.peaks[name] = max(rate, machine.peaks[name])

    def _compare(self, place: Path, size: Size, standings: list[Standing], machine: Machine) -> list[Standing]:
        standings = [each for each in standings if self._warmed(each, place, size, machine)]
        for turn in range(self._rounds):
            if turn and time.monotonic() > self._end:
                break
            for shift in range(len(standings)):
                self._take_turn(standings[(turn + shift) % len(standings)], size)
        for each in standings:
            with contextlib.suppress(EngineFailed):
                each.peak_bytes = each.process.ask("memory")["peak_bytes"]
                each.process.ask("unload")
        self._check(place, size, standings)
        return [each for each in standings if each.rates]

    def _take_turn(self, each: Standing, size: Size) -> None:
        try:
            told = each.process.ask("train", clients=each.clients, at_least=self._seconds / 2)
            each.rates.append(told["updates"] / told["seconds"])
        except EngineFailed as problem:
            self._left_out(each.contender, size, problem)

    def _warmed(self, each: Standing, place: Path, size: Size, machine: Machine) -> bool:
        """Load, compile, store the weights for the check, and determine how many clients fill a turn."""
        contender = each.contender
        checked = min(1 if self._quick else CHECKED, size.clients)
        # On an accelerator, a group of another size needs another program.
        whole = contender.worker == "ours" and machine.accelerator
        first = size.clients if whole else checked
        each.weights = place / f"weights-{contender.label}.npy"
        try:
            each.process.ask("load", folder=str(place), **contender.options)
            each.first_call_s = each.process.ask("weights", clients=first, keep=checked, path=str(each.weights))[
                "seconds"
            ]
            each.process.receive()
            parallel = min(contender.parallel, size.clients)
            rate = first / each.first_call_s
            if whole:
                each.clients = size.clients
            else:
                if contender.worker == "ours" or parallel / rate < self._seconds:
                    told = each.process.ask("train", clients=parallel)
                    rate = told["updates"] / told["seconds"]
                fit = int(rate * self._seconds) // parallel * parallel
                each.clients = max(parallel, min(size.clients, fit))
            each.process.ask("forget")
        except EngineFailed as problem:
            self._left_out(contender, size, problem)
            return False
        return True

    def _left_out(self, contender: Contender, size: Size, problem: EngineFailed) -> None:
        _note(f"{size.name}, {contender.label}: left out: {problem}")
        self.failed |= contender.worker == "ours" and time.monotonic() < self._last

    def _check(self, place: Path, size: Size, standings: list[Standing]) -> None:
        reference = next((each for each in standings if each.contender.worker == "torch-loop"), None)
        if reference is None or reference.weights is None:
            return
        start = np.load(place / "start.npy")
        wanted = np.load(reference.weights)
        trained = _trained_size(place)
        moved = np.linalg.norm(wanted[:, :trained] - start[:trained], axis=1)
        for each in standings:
            if each is reference or each.weights is None:
                continue
            off = np.linalg.norm((np.load(each.weights) - wanted)[:, :trained], axis=1) / moved
            each.distance = float(np.median(off))
            if not each.distance <= _tolerance(size, each.contender):
                self.different = True

    def _head(self, machine: Machine) -> None:
        if self._arguments.json:
            return
        peaks = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in machine.peaks.items())
        print(f"{machine.name} ({machine.platform}), {machine.cores} cores")
        print(f"matrix products, GFLOP/s: {peaks}")
        allowed = ", ".join(f"{name} {limit:g}" for name, limit in TOLERANCE.items())
        more = ", ".join(f"float32 {TOLERANCE['float32'] * factor:g} for {task}" for task, factor in AMPLIFIED.items())
        print(f"largest distance from torch-loop's weights, relative to their change: {allowed}; {more}")

    def _report(self, size: Size, standings: list[Standing], machine: Machine, data: str) -> list[dict[str, Any]]:
        loop = next((each for each in standings if each.contender.worker == "torch-loop"), None)
        base = statistics.median(loop.rates) if loop and loop.rates else None
        flops = update_flops(size)
        rows = []
        if not self._arguments.json:
            print(f"\n{size.name}: one update = {size.update}; {flops / 1e9:,.2f} GFLOP; {data} data")
            print(
                f"  {'':12} {'updates/s':>10} {'(range)':>21} {'x loop':>8} {'of peak':>8} {'memory MB':>10} "
                f"{'clients':>8} {'first call':>10} {'distance':>9}"
            )
        for each in standings:
            rate = statistics.median(each.rates)
            share = flops * rate / machine.peak(each.contender.precision)
            rows.append(
                {
                    "task": size.name,
                    "engine": each.contender.label,
                    "updates_per_s": rate,
                    "ratio_to_loop": None if base is None else rate / base,
                    "share_of_peak": share,
                    "peak_bytes": each.peak_bytes,
                }
            )
            if not self._arguments.json:
                limit = _tolerance(size, each.contender)
                distance = "" if each.distance is None else f"{each.distance:9.1e}"
                wrong = "" if each.distance is None or each.distance <= limit else "  DIFFERENT WEIGHTS"
                ratio = "" if base is None else f"{rate / base:8.2f}"
                spread = f"({min(each.rates):,.2f} - {max(each.rates):,.2f})"
                print(
                    f"  {each.contender.label:12} {rate:10,.2f} {spread:>21} {ratio:>8} {share:8.1%} "
                    f"{each.peak_bytes / 1e6:10,.0f} {each.clients:8} {each.first_call_s:8.1f} s {distance:>9}{wrong}"
                )
            sys.stdout.flush()
        return rows


def _tolerance(size: Size, contender: Contender) -> float:
    limit = TOLERANCE[contender.precision]
    return limit * AMPLIFIED.get(size.task, 1.0) if contender.precision == "float32" else limit


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _trained_size(place: Path) -> int:
    layout = json.loads((place / "work.json").read_text())["layout"]
    return sum(int(np.prod(shape)) for shape in layout["shapes"][: layout["trained"]])


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _names(known: list[str]) -> Any:
    def convert(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r}: there is {', '.join(known)}")
        return names

    return convert


def _pair(kind: Any) -> Any:
    def convert(text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign:
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, kind(value)

    return convert


if __name__ == "__main__":
    sys.exit(main())
