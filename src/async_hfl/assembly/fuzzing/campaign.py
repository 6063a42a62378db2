"""A campaign of many fault scenarios on all cores, with a summary of the faults that were tested."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from async_hfl.assembly.build.aggregation_rules import cloud_rule, gateway_rule
from async_hfl.assembly.fuzzing.scenarios import fuzz
from async_hfl.assembly.user_code.loading import file_of, fingerprint, is_user_code
from async_hfl.faults.profile import Outcome

_CHUNK = 10
_SAVE_EVERY = 500
"""Seeds after which a long campaign saves its progress."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The aggregation rules of all scenarios, by name; None: drawn for each scenario."""

    gateway: str | None = None
    cloud: str | None = None

    @property
    def user_rules(self) -> list[str]:
        """The rules from a user's file, which have no checker."""
        return [name for name in (self.gateway, self.cloud) if name is not None and is_user_code(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(Outcome):
    """The results of a campaign, summed over its scenarios."""

    seeds: int
    first_seed: int
    failures: list[tuple[int, str]]
    without_checker: list[str]
    """Rules from a user's file: only the general invariants were checked."""
    wall_s: float

    def line(self) -> str:
        """Return the summary that the command prints."""
        state = "no invariant broken" if not self.failures else f"{len(self.failures)} SEEDS FAILED"
        return (
            f"fuzz-faults: {self.seeds} seeds from {self.first_seed}: {state}; {self.events:,} events, "
            f"{self.crashes:,} crashes ({self.records_torn:,} tore a record, {self.disks_lost:,} cost a disk), "
            f"{self.messages_lost:,} messages lost, {self.link_outages:,} link outages, "
            f"{self.transfers_resumed:,} transfers resumed, {self.gateways_declared_lost:,} gateways declared lost, "
            f"{self.jobs:,} jobs, {self.uploads:,} uploads; of {self.updates_acknowledged:,} acknowledged updates "
            f"{self.updates_lost:,} lost, all known by name, {self.updates_late:,} too late for the end of their run, "
            f"{self.updates_found:,} found again after they were listed as lost; {self.wall_s:.1f} s"
            + "".join(f"; rule {rule}: generic invariants only, no checker of its own" for rule in self.without_checker)
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def campaign(first_seed: int, seeds: int, processes: int | None = None, rules: Rules | None = None) -> Campaign:
    """Run one scenario per seed, on all cores unless `processes` is given."""
    began = time.perf_counter()
    rules = rules or Rules()
    chunks = [
        range(start, min(start + _CHUNK, first_seed + seeds)) for start in range(first_seed, first_seed + seeds, _CHUNK)
    ]
    workers = min(processes or len(os.sched_getaffinity(0)), len(chunks))
    run = partial(_scenarios, rules)
    if workers == 1:
        results = [run(chunk) for chunk in chunks]
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            results = list(pool.map(run, chunks))
    outcomes = [outcome for good, _ in results for outcome in good]
    return Campaign(
        seeds=seeds,
        first_seed=first_seed,
        failures=[failure for _, bad in results for failure in bad],
        without_checker=rules.user_rules,
        wall_s=time.perf_counter() - began,
        **{field.name: sum(getattr(outcome, field.name) for outcome in outcomes) for field in fields(Outcome)},
    )


def resumed(
    file: Path, first_seed: int, seeds: int, processes: int | None = None, rules: Rules | None = None
) -> Campaign:
    """Run a campaign that saves its progress in a file, and continue from there if program and rules are the same."""
    rules = rules or Rules()
    files = {name: fingerprint(file_of(name)) for name in rules.user_rules}
    key = {
        "program": _program_digest(),
        "first_seed": first_seed,
        "seeds": seeds,
        "rules": {**asdict(rules), "files": files},
    }
    whole: Campaign | None = None
    if file.is_file():
        known = json.loads(file.read_text())
        if known.pop("key") == key:
            whole = Campaign(**known)
    while whole is None or whole.seeds < seeds:
        done = 0 if whole is None else whole.seeds
        part = campaign(first_seed + done, min(_SAVE_EVERY, seeds - done), processes, rules)
        whole = part if whole is None else _sum(whole, part)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps({"key": key, **whole.as_json()}))
        beside.replace(file)
    return whole


def _sum(one: Campaign, other: Campaign) -> Campaign:
    same = {"first_seed": one.first_seed, "without_checker": one.without_checker}
    return Campaign(**{name: getattr(one, name) + getattr(other, name) for name in one.as_json()} | same)


def check_rules(rules: Rules) -> None:
    """Raise an error if a rule that is named cannot be used."""
    if rules.gateway is not None:
        gateway_rule(rules.gateway)
    if rules.cloud is not None:
        cloud_rule(rules.cloud)


def _program_digest() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _scenarios(rules: Rules, seeds: range) -> tuple[list[Outcome], list[tuple[int, str]]]:
    outcomes, failures = [], []
    for seed in seeds:
        try:
            outcomes.append(fuzz(seed, rules.gateway, rules.cloud))
        except Exception as error:  # every error under faults is a finding
            failures.append((seed, f"{type(error).__name__}: {error}"))
    return outcomes, failures
