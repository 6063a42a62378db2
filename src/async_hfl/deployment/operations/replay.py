"""A node's log handled once more by a new node: does the same come out, effect for effect?

Answers of solver and training are inputs, recorded like everything else that came in; so only the node itself is tried.
A node that was killed and restarted has one log, and replays as one life. Where the oldest models were evicted, replay
begins at the first snapshot from which everything is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem
from async_hfl.core.protocol.effects import Effect, Solve
from async_hfl.core.protocol.events import Solved
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.store.build_info import this_maker
from async_hfl.deployment.store.effects_summary import Summarizer
from async_hfl.deployment.store.encoding import MissingPayload
from async_hfl.deployment.store.node_store import MAKERS
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.nodes.reliability.delivery import ReliableNode, Transmit

TOLERANCE = 1e-5
"""Relative, of every real number and of every array's sum and norm, where versions or processor differ."""
Solver = Callable[[AssociationProblem], Association]


@dataclass(slots=True)
class NodeReplay:
    name: str
    events: int = 0
    effects: int = 0
    differences: list[str] = field(default_factory=list)
    missing: set[bytes] = field(default_factory=set)
    """Payloads that were evicted."""
    skipped: int = 0
    """Events before the snapshot that replay could begin from."""
    tolerance: float = 0.0
    solutions: int = 0
    """Solved again."""


def replay_node(stored: StoredNode, name: str, make: Callable[[], ReliableNode], solve: Solver | None) -> NodeReplay:
    """`make` builds the node as its process did; with `solve` recorded solutions are worked out again and compared."""
    found = NodeReplay(name, tolerance=0.0 if made_here(stored) else TOLERANCE)
    start = 0
    while True:
        again = NodeReplay(name, tolerance=found.tolerance, skipped=start, missing=found.missing)
        broken_at = _replay_from(stored, start, make, solve, again)
        if broken_at is None:
            return again
        later = [number for number in stored.snapshots() if number >= broken_at]
        if not later:
            again.skipped = broken_at
            return again
        start = later[0]


def made_here(stored: StoredNode) -> bool:
    """Was everything worked out by the versions and the kind of processor that we are?"""
    makers = stored.get(MAKERS) or []
    return bool(makers) and all(maker == this_maker() for maker in makers)


def _replay_from(
    stored: StoredNode, start: int, make: Callable[[], ReliableNode], solve: Solver | None, found: NodeReplay
) -> int | None:
    """None, or the number of the first event that cannot be replayed."""
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
                    f"{found.name}: event {logged.number} ({kind} at {event.at:.3f} s) brought {_named(effects)}; "
                    f"when it was logged, {logged.effects.count} effects"
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
        found.differences.append(f"{found.name}: solution {solved.number} puts {moved} devices elsewhere")


def _named(effects: Sequence[Effect | Transmit]) -> str:
    names = [type(e.content).__name__ if isinstance(e, Transmit) else type(e).__name__ for e in effects]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing"
