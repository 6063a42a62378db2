"""Events are ordered by time, then by insertion, on every machine and after every checkpoint."""

from __future__ import annotations

import random
from heapq import heappop

import pytest

from async_hfl.core.protocol.events import Started, TimerFired
from async_hfl.simulation.event_queue import EventQueue


def drained(queue: EventQueue) -> list[tuple[float, int, int, object]]:
    return [heappop(queue.heap) for _ in range(len(queue.heap))]


def test_events_come_out_by_time_then_by_insertion() -> None:
    queue = EventQueue()
    for at, node in ((5.0, 1), (3.0, 2), (5.0, 3), (3.0, 4), (4.0, 5)):
        queue.push(at, node, Started(at))
    assert [(at, node) for at, _, node, _ in drained(queue)] == [(3.0, 2), (3.0, 4), (4.0, 5), (5.0, 1), (5.0, 3)]


def test_events_need_not_be_comparable() -> None:
    queue = EventQueue()
    queue.push(1.0, 0, object())
    queue.push(1.0, 0, object())
    assert len(drained(queue)) == 2


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_a_restored_queue_continues_alike(chunk: int) -> None:
    rng = random.Random(1)
    queue = EventQueue()
    for node in range(50):
        at = float(rng.randrange(5))
        queue.push(at, node, TimerFired(at, f"timer {node}"))
    for _ in range(10):
        heappop(queue.heap)
    parts = list(queue.snapshot(chunk))
    restored = EventQueue()
    restored.restore(parts)
    for both in (queue, restored):
        both.push(2.0, 99, Started(2.0))
    assert drained(restored) == drained(queue)


def test_an_empty_queue_keeps_its_sequence_number() -> None:
    queue = EventQueue()
    queue.push(1.0, 0, Started(1.0))
    heappop(queue.heap)
    restored = EventQueue()
    restored.restore(list(queue.snapshot(10)))
    assert restored.push(1.0, 0, Started(1.0)) == queue.push(1.0, 0, Started(1.0)) == 2
