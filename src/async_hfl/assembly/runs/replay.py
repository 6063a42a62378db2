"""`async-hfl replay`: repeat a simulation, or deployed nodes from their recorded inputs, and compare the results."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.assembly.build.nodes import method_of
from async_hfl.assembly.build.policies import association_policy
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.build.task import build_learner
from async_hfl.assembly.deployments.deployed_nodes import (
    TaskFacts,
    deployed_cloud,
    deployed_device,
    deployed_gateway,
    settings_of,
)
from async_hfl.assembly.runs.simulated_run import recorded_run_for
from async_hfl.assembly.settings.loading import settings_from
from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.weights import frozen
from async_hfl.deployment.operations.replay import TOLERANCE, NodeReplay, replay_node
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity, reliable
from async_hfl.deployment.store.schema import DATABASE, REPLAY_FROM
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.model_file import load_model
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.nodes.reliability.delivery import Node


@dataclass(slots=True)
class Replay:
    """The result of a replay, as `--json` prints it."""

    nodes: int = 0
    events: int = 0
    effects: int = 0
    differences: int = 0
    payloads_missing: int = 0
    events_skipped: int = 0
    """Events before the first snapshot from which on no model is missing."""
    solutions: int = 0
    """Associations solved again, with `--resolve`."""
    tolerance: float = 0.0
    """0 if everything was compared bit by bit."""
    first_differences: list[str] = field(default_factory=list)

    def add(self, node: NodeReplay) -> None:
        self.nodes += 1
        self.events += node.events
        self.effects += node.effects
        self.differences += len(node.differences)
        self.payloads_missing += len(node.missing)
        self.events_skipped += node.skipped
        self.solutions += node.solutions
        self.tolerance = max(self.tolerance, node.tolerance)
        self.first_differences += node.differences[: 10 - len(self.first_differences)]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(path: str | Path, *, resolve: bool = False) -> Replay:
    """Replay a node's state directory, all nodes below a directory, or a simulated run."""
    path = Path(path)
    states = sorted(file.parent for file in path.rglob(DATABASE)) if path.is_dir() else []
    if not states:
        return _simulate_again(RunDirectory.open(path))
    found = Replay()
    for state in states:
        with StoredNode(state) as stored:
            identity = stored.get(IDENTITY)
            if identity is not None:
                found.add(_replay_stored(stored, NodeIdentity.stored(identity), resolve=resolve))
    if not found.nodes:
        raise RunDirectoryError(f"{path}: none of its nodes has joined a run; there is nothing to replay")
    return found


def _replay_stored(stored: StoredNode, identity: NodeIdentity, *, resolve: bool) -> NodeReplay:
    settings, facts = settings_of(identity), TaskFacts.of(identity)

    def make() -> Node:
        if identity.role == "gateway":
            return deployed_gateway(identity)
        if identity.role == "device":
            return deployed_device(identity)
        # The first snapshot contains the model from which the replay begins, so that the task need not be loaded.
        if 0 in stored.snapshots() or stored.begins_after or stored.get(REPLAY_FROM):
            return deployed_cloud(identity, frozen(np.zeros(facts.model_size, np.float32)))
        learner = build_learner(settings, facts.seed, method_of(settings, facts.seed).gradient)
        return deployed_cloud(identity, learner.initial_weights(facts.seed))

    solve = association_policy(settings).solve if resolve and identity.role == "cloud" else None
    return replay_node(stored, identity.name, lambda: reliable(identity, make()), solve)


def _simulate_again(run: RunDirectory) -> Replay:
    """Simulate a run again and compare the journals: its only inputs are its settings and its seed."""
    run.check_lengths()
    manifest = run.read_manifest()
    if not run.events.is_file():
        raise RunDirectoryError(f"{run.path}: has no events.jsonl; there is nothing to compare with")
    settings, start = settings_from(manifest["settings"]), manifest["start_from"]
    load = None if start is None else lambda learner: load_model(Path(start), learner.layout)
    built = build(settings, manifest["seed"], start_from=load)
    built.world.learner.compile()
    complete = run.read_summary() is not None
    with tempfile.TemporaryDirectory() as folder:
        again = RunDirectory.create(Path(folder) / "again", manifest)
        # Write the same checkpoints as the run, since they affect the grouping of jobs.
        with closing(recorded_run_for(built.world, again, settings)) as repeated:
            repeated.run(None)
        found = Replay(nodes=1 + manifest["gateways"] + manifest["devices"])
        for number, (was, new) in enumerate(zip_longest(_lines(run.events), _lines(again.events)), 1):
            if was is None and not complete:
                break  # the run was interrupted: compare only the lines that it has written
            found.events += 1
            found.effects += 1
            if was != new:
                found.differences += 1
                if len(found.first_differences) < 10:
                    found.first_differences.append(f"{run.events.name}, line {number}: {_short(was)} now {_short(new)}")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _short(line: bytes | None) -> str:
    return "nothing" if line is None else line.decode(errors="replace").strip()[:120]


def describe(found: Replay) -> str:
    """Return the result in words."""
    how = "bit by bit" if found.tolerance == 0 else f"within {TOLERANCE:g} (other versions, or another processor)"
    lines = [
        f"{found.nodes} nodes, {found.events:,} events, {found.effects:,} effects compared {how}: "
        + ("no difference" if not found.differences else f"{found.differences:,} DIFFERENCES")
    ]
    if found.solutions:
        lines.append(f"{found.solutions:,} associations solved again")
    if found.payloads_missing:
        lines.append(
            f"{found.payloads_missing:,} models were evicted, so {found.events_skipped:,} events could not be replayed"
        )
    return "\n".join([*lines, *found.first_differences])
