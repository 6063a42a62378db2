"""Replay of a node's log: across crashes, from where its models are still stored; differences are found."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.identifiers import JobId, gateway_address
from async_hfl.core.learner import TrainingResult
from async_hfl.core.protocol.events import PeerJoined, Received, Returned, Started, Trained
from async_hfl.core.protocol.messages import Train
from async_hfl.core.weights import Weights, frozen
from async_hfl.deployment.operations.replay import TOLERANCE, NodeReplay, replay_node
from async_hfl.deployment.store.node_identity import NodeIdentity, reliable
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.store.schema import BUILDS
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt, ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

IDENTITY = NodeIdentity("device", "d0", 77, 0, 5, "{}", "")
PEER = gateway_address(1)
MODEL_BYTES = 4 * 5000


def weights(seed: int) -> Weights:
    return frozen(np.random.default_rng(seed).normal(size=MODEL_BYTES // 4).astype(np.float32))


def make() -> ReliableNode:
    return reliable(IDENTITY, DeviceNode())


def live(path: Path, jobs: int, *, budget: int = 10**9, log: int = 10**9, crash_every: int = 3) -> None:
    """Run some jobs of a device; its process crashes after every few of them, with an uncommitted event."""
    number = 0
    while number < jobs:
        with NodeStore.open(path, Budget(payloads=budget, log=log)) as store:
            node = DurableNode(make, store)
            if number == 0:
                node.checkpoint()
                node.handle(Started(0.0))
            else:
                node.recover()
                node.handle(Returned(float(number)))
            store.handled(node.handle(PeerJoined(float(number), PEER)))
            for _ in range(crash_every):
                number += 1
                job = JobId(1, 1, number)
                train = Packet(77, 9, number, Train(job, weights(number), 0, 0, 1))
                result = TrainingResult(weights(1000 + number), 10, 5, 0.5, 0.25)
                for event in (
                    Arrived(float(number), PEER, train, 0.1),
                    Trained(number + 0.5, job, result, 0.4),
                    Arrived(number + 0.6, PEER, Receipt(77, 5, number), 0.0),
                ):
                    store.handled(node.handle(event))
                store.commit()
            node.checkpoint()
            node.handle(Received(number + 0.9, PEER, Train(JobId(1, 1, 999), weights(3), 0, 0, 1)))  # never committed


def replayed(path: Path) -> NodeReplay:
    with StoredNode(path) as stored:
        return replay_node(stored, "d0", make, None)


def test_a_node_that_was_killed_and_restarted_replays_as_one_log(tmp_path: Path) -> None:
    live(tmp_path, 12)
    found = replayed(tmp_path)
    assert found.differences == []
    assert found.events == 3 * 12 + 2 * 4  # every job is three events, and every life begins with two
    assert (found.skipped, found.missing, found.tolerance) == (0, set(), 0.0)
    assert found.effects >= 36


def test_where_models_were_evicted_replay_begins_later(tmp_path: Path) -> None:
    live(tmp_path, 30, budget=20 * MODEL_BYTES)
    found = replayed(tmp_path)
    assert found.differences == []
    assert found.missing
    assert 0 < found.skipped < 3 * 30 + 2 * 10
    assert found.events == 3 * 30 + 2 * 10 - found.skipped


def test_where_the_log_was_compacted_replay_begins_at_the_oldest_snapshot(tmp_path: Path) -> None:
    live(tmp_path / "whole", 30)
    live(tmp_path / "compacted", 30, log=8_000)
    whole, found = replayed(tmp_path / "whole"), replayed(tmp_path / "compacted")
    assert whole.differences == found.differences == []
    assert 0 < found.skipped < whole.events
    assert found.events == whole.events - found.skipped
    assert found.missing == set()
    with StoredNode(tmp_path / "compacted") as stored:
        assert sum(len(event.body) for event in stored.events()) < 8_000
        assert found.skipped == stored.begins_after == stored.snapshots()[0]


def change(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path / "node.db") as database:
        database.execute(statement, values)
    database.close()


def test_another_outcome_than_was_logged_is_a_difference(tmp_path: Path) -> None:
    live(tmp_path, 6)
    with sqlite3.connect(tmp_path / "node.db") as database:
        ((other,),) = database.execute("SELECT effects FROM log WHERE number = 2").fetchall()
    database.close()
    change(tmp_path, "UPDATE log SET effects = ?, crc = NULL WHERE number = 4", other)
    (difference,) = replayed(tmp_path).differences
    assert "event 4" in difference
    assert "Trained" in difference


@pytest.mark.parametrize(("factor", "differs"), [(1 + TOLERANCE / 10, False), (1 + 100 * TOLERANCE, True)])
def test_on_another_processor_a_tolerance_holds(tmp_path: Path, factor: float, differs: bool) -> None:
    """As if another machine had worked out slightly other numbers."""
    with NodeStore.open(tmp_path) as store:
        node = DurableNode(make, store)
        node.checkpoint()
        node.handle(PeerJoined(0.0, PEER))
        job = JobId(1, 1, 1)
        node.handle(Arrived(1.0, PEER, Packet(77, 9, 1, Train(job, weights(1), 0, 0, 1)), 0.1))
        trained = Trained(1.5, job, TrainingResult(weights(2), 10, 5, 0.5, 0.25), 0.4)
        node.handle(trained)
        other = make()
        other.handle(PeerJoined(0.0, PEER))
        other.handle(Arrived(1.0, PEER, Packet(77, 9, 1, Train(job, weights(1), 0, 0, 1)), 0.1))
        slightly = TrainingResult(frozen(weights(2) * np.float32(factor)), 10, 5, 0.5 * factor, 0.25)
        store.handled(other.handle(Trained(1.5, job, slightly, 0.4)))
        store.put(BUILDS, [{"processor": "another"}])
        store.commit()
    found = replayed(tmp_path)
    assert found.tolerance == TOLERANCE
    assert bool(found.differences) == differs
