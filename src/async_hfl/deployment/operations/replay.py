"""Replay of a node: a new node handles the logged events, and its effects are compared with the logged ones.

Results of the solver and of training are events in the log, so a replay tests the state machine alone. A node that was
killed and restarted has a single log. If the oldest events or models were deleted, the replay begins at the first
snapshot from which on nothing is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.policies import Association, AssociationProblem
from async_hfl.core.protocol.effects import Effect, Solve
from async_hfl.core.protocol.events import Solved
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.store.effects_summary import Summarizer
from async_hfl.deployment.store.encoding import MissingPayload
from async_hfl.deployment.store.schema import BUILDS, FORMAT, REPLAY_FROM, this_build
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.nodes.reliability.delivery import ReliableNode, Transmit

TOLERANCE = 1e-5
"""Tolerance for real numbers, and for sums and norms of arrays, if versions or processor differ."""
Solver = Callable[[AssociationProblem], Association]


@dataclass(slots=True)
class NodeReplay:
    name: str
    events: int = 0
    effects: int = 0
    differences: list[str] = field(default_factory=list)
    missing: set[bytes] = field(default_factory=set)
    """Digests of evicted payloads."""
    skipped: int = 0
    """Events before the snapshot at which the replay began."""
    tolerance: float = 0.0
    solutions: int = 0
    """Number of solutions that were computed again."""


def replay_node(stored: StoredNode, name: str, make: Callable[[], ReliableNode], solve: Solver | None) -> NodeReplay:
    """Replay one node. `make` builds it as its process did; with `solve`, recorded solutions are computed again."""
    builds = stored.get(BUILDS) or []
    if stored.format < FORMAT:
        writer = builds[-1]["async_hfl"] if builds else "an earlier release"
        raise DataError(
            f"{stored.path}: written by async-hfl {writer} in format {stored.format}, whose effects differ from "
            f"those of async-hfl {version('async-hfl')}: replay it with {writer}"
        )
    exact = builds == [this_build()]
    missing: set[bytes] = set()
    begins_after = max(stored.begins_after, stored.get(REPLAY_FROM) or 0)
    start = next((number for number in stored.snapshots() if number >= begins_after), 0) if begins_after else 0
    while True:
        found = NodeReplay(name, tolerance=0.0 if exact else TOLERANCE, skipped=start, missing=missing)
        stopped_at = _replay_from(stored, start, make, solve, found)
        if stopped_at is None:
            return found
        later = [number for number in stored.snapshots() if number >= stopped_at]
        if not later:
            found.skipped = stopped_at
            return found
        start = later[0]


def _replay_from(
    stored: StoredNode, start: int, make: Callable[[], ReliableNode], solve: Solver | None, found: NodeReplay
) -> int | None:
    """Replay the log from a snapshot on; return the number of the first event that cannot be replayed, or None."""
    node = make()
    try:
        if start in stored.snapshots():
            node.restore(stored.snapshot(start)["node"])
    except MissingPayload as missing:
        found.missing.add(missing.digest)
        return start + 1
    summarizer = Summarizer(stored.arrays)
    asked: dict[int, AssociationProblem] = {}
    for logged in stored.events(after=start):
        try:
            event = from_plain(stored.decode(logged.body))
        except MissingPayload as missing:
            found.missing.add(missing.digest)
            return logged.number
        effects = node.handle(event)
        found.events += 1
        found.effects += len(effects)
        if logged.effects is not None:
            summary = summarizer.summarize(effects)
            if not summary.agrees(logged.effects, found.tolerance):
                kind = type(event).__name__
                found.differences.append(
                    f"{found.name}: event {logged.number} ({kind} at {event.at:.3f} s) led to {_named(effects)}; "
                    f"{logged.effects.count} effects were logged"
                )
        if solve is not None:
            asked.update({effect.number: effect.problem for effect in effects if isinstance(effect, Solve)})
            if isinstance(event, Solved) and event.number in asked:
                _solve_again(event, asked.pop(event.number), solve, found)
    return None


def _solve_again(solved: Solved, problem: AssociationProblem, solve: Solver, found: NodeReplay) -> None:
    found.solutions += 1
    answer = solve(problem)
    if not np.array_equal(answer.gateway_of, solved.association.gateway_of):
        moved = int((answer.gateway_of != solved.association.gateway_of).sum())
        found.differences.append(f"{found.name}: solution {solved.number} assigns {moved} devices differently")


def _named(effects: Sequence[Effect | Transmit]) -> str:
    names = [type(e.content).__name__ if isinstance(e, Transmit) else type(e).__name__ for e in effects]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing"
