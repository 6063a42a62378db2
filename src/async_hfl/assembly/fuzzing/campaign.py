"""Many fault scenarios over the cores, with a summary that says how much was put to the test."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from async_hfl.assembly.fuzzing.scenarios import fuzz
from async_hfl.faults.hosts import Outcome

_CHUNK = 10
_PIECE = 500
"""Seeds after which a long campaign notes how far it is."""


@dataclass(frozen=True, slots=True)
class Campaign:
    seeds: int
    first_seed: int
    failures: list[tuple[int, str]]
    events: int
    crashes: int
    records_torn: int
    """Crashes before the event at hand was in the log."""
    disks_lost: int
    messages_lost: int
    """Or transfers broken off."""
    link_outages: int
    transfers_resumed: int
    gateways_declared_lost: int
    jobs: int
    uploads: int
    updates_acknowledged: int
    updates_lost: int
    """Acknowledged by a gateway that was declared lost or lost its disk, and in no upload that arrived; all known."""
    updates_found: int
    """Listed as lost, until their gateway was back with its disk."""
    updates_late: int
    """Acknowledged, and the run ended before the cloud decided on them."""
    wall_s: float

    def line(self) -> str:
        state = "no invariant broken" if not self.failures else f"{len(self.failures)} SEEDS FAILED"
        return (
            f"fuzz-faults: {self.seeds} seeds from {self.first_seed}: {state}; {self.events:,} events, "
            f"{self.crashes:,} crashes ({self.records_torn:,} tore a record, {self.disks_lost:,} cost a disk), "
            f"{self.messages_lost:,} messages lost, {self.link_outages:,} link outages, "
            f"{self.transfers_resumed:,} transfers resumed, {self.gateways_declared_lost:,} gateways declared lost, "
            f"{self.jobs:,} jobs, {self.uploads:,} uploads; of {self.updates_acknowledged:,} acknowledged updates "
            f"{self.updates_lost:,} lost, all known by name, {self.updates_late:,} too late for the end of their run, "
            f"{self.updates_found:,} found again after they were listed as lost; {self.wall_s:.1f} s"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def campaign(first_seed: int, seeds: int, processes: int | None = None) -> Campaign:
    began = time.perf_counter()
    chunks = [
        range(start, min(start + _CHUNK, first_seed + seeds)) for start in range(first_seed, first_seed + seeds, _CHUNK)
    ]
    workers = min(processes or len(os.sched_getaffinity(0)), len(chunks))
    if workers == 1:
        results = [_scenarios(chunk) for chunk in chunks]
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            results = list(pool.map(_scenarios, chunks))
    outcomes = [outcome for good, _ in results for outcome in good]
    return Campaign(
        seeds,
        first_seed,
        [failure for _, bad in results for failure in bad],
        sum(o.events for o in outcomes),
        sum(o.crashes for o in outcomes),
        sum(o.torn for o in outcomes),
        sum(o.disks_lost for o in outcomes),
        sum(o.lost for o in outcomes),
        sum(o.outages for o in outcomes),
        sum(o.resumed for o in outcomes),
        sum(o.declared_lost for o in outcomes),
        sum(o.jobs for o in outcomes),
        sum(o.uploads for o in outcomes),
        sum(o.acknowledged for o in outcomes),
        sum(o.updates_lost for o in outcomes),
        sum(o.updates_found for o in outcomes),
        sum(o.updates_late for o in outcomes),
        time.perf_counter() - began,
    )


def resumed(file: Path, first_seed: int, seeds: int, processes: int | None = None) -> Campaign:
    """The same in pieces: what is done stands in the file, and is not done again while the program stays the same."""
    key = {"program": _program_digest(), "first_seed": first_seed, "seeds": seeds}
    whole: Campaign | None = None
    if file.is_file():
        known = json.loads(file.read_text())
        if known.pop("key") == key:
            whole = Campaign(**known)
    while whole is None or whole.seeds < seeds:
        done = 0 if whole is None else whole.seeds
        piece = campaign(first_seed + done, min(_PIECE, seeds - done), processes)
        whole = piece if whole is None else _together(whole, piece)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps({"key": key, **whole.as_json()}))
        beside.replace(file)
    return whole


def _together(one: Campaign, other: Campaign) -> Campaign:
    sums = {name: getattr(one, name) + getattr(other, name) for name in one.as_json() if name != "first_seed"}
    return Campaign(first_seed=one.first_seed, **sums)


def _program_digest() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _scenarios(seeds: range) -> tuple[list[Outcome], list[tuple[int, str]]]:
    outcomes, failures = [], []
    for seed in seeds:
        try:
            outcomes.append(fuzz(seed))
        except Exception as error:  # whatever breaks under faults is a finding
            failures.append((seed, f"{type(error).__name__}: {error}"))
    return outcomes, failures
