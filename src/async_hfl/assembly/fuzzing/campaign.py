"""A campaign of many fault scenarios on all cores, with a summary of the faults that were tested."""

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
"""Seeds after which a long campaign saves its progress."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """The results of a campaign, summed over its scenarios."""

    seeds: int
    first_seed: int
    failures: list[tuple[int, str]]
    events: int
    crashes: int
    records_torn: int
    """Crashes while an event was being written to the log."""
    disks_lost: int
    messages_lost: int
    """Including transfers that broke off."""
    link_outages: int
    transfers_resumed: int
    gateways_declared_lost: int
    jobs: int
    uploads: int
    updates_acknowledged: int
    updates_lost: int
    """Updates acknowledged by a gateway that was declared lost or lost its disk, and in no upload that arrived. Each is
    on the cloud's list of losses."""
    updates_found: int
    """Updates listed as lost until their gateway returned with its disk."""
    updates_late: int
    """Updates acknowledged, but not decided on by the cloud before the run ended."""
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
    """Run one scenario per seed, on all cores unless `processes` is given."""
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
        seeds=seeds,
        first_seed=first_seed,
        failures=[failure for _, bad in results for failure in bad],
        events=sum(outcome.events for outcome in outcomes),
        crashes=sum(outcome.crashes for outcome in outcomes),
        records_torn=sum(outcome.torn for outcome in outcomes),
        disks_lost=sum(outcome.disks_lost for outcome in outcomes),
        messages_lost=sum(outcome.lost for outcome in outcomes),
        link_outages=sum(outcome.outages for outcome in outcomes),
        transfers_resumed=sum(outcome.resumed for outcome in outcomes),
        gateways_declared_lost=sum(outcome.declared_lost for outcome in outcomes),
        jobs=sum(outcome.jobs for outcome in outcomes),
        uploads=sum(outcome.uploads for outcome in outcomes),
        updates_acknowledged=sum(outcome.acknowledged for outcome in outcomes),
        updates_lost=sum(outcome.updates_lost for outcome in outcomes),
        updates_found=sum(outcome.updates_found for outcome in outcomes),
        updates_late=sum(outcome.updates_late for outcome in outcomes),
        wall_s=time.perf_counter() - began,
    )


def resumed(file: Path, first_seed: int, seeds: int, processes: int | None = None) -> Campaign:
    """A campaign that saves its progress in a file, and continues from it as long as the program is the same."""
    key = {"program": _program_digest(), "first_seed": first_seed, "seeds": seeds}
    whole: Campaign | None = None
    if file.is_file():
        known = json.loads(file.read_text())
        if known.pop("key") == key:
            whole = Campaign(**known)
    while whole is None or whole.seeds < seeds:
        done = 0 if whole is None else whole.seeds
        piece = campaign(first_seed + done, min(_PIECE, seeds - done), processes)
        whole = piece if whole is None else _sum(whole, piece)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps({"key": key, **whole.as_json()}))
        beside.replace(file)
    return whole


def _sum(one: Campaign, other: Campaign) -> Campaign:
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
        except Exception as error:  # every error under faults is a finding
            failures.append((seed, f"{type(error).__name__}: {error}"))
    return outcomes, failures
