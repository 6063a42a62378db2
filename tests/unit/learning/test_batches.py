from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.randomness import scramble
from async_hfl.learning.engine import batches
from async_hfl.learning.engine.batches import BatchOrders
from async_hfl.learning.engine.recipe import StaticHyperparameters

OWNED = tuple(np.array(rows, dtype=np.int32) for rows in ([3, 5, 8], [10, 11, 12, 13, 14], [7]))


def planner(*, epochs: int = 4, batch_size: int = 2, in_stored_order: bool = False) -> StaticHyperparameters:
    return StaticHyperparameters(epochs, batch_size, in_stored_order)


def orders_of(shape: StaticHyperparameters, devices: list[int], seeds: list[int]) -> np.ndarray:
    return drawn(shape, devices, seeds, steps=3).draw().reshape(len(devices), shape.passes, -1)


def drawn(shape: StaticHyperparameters, devices: list[int], seeds: list[int], **room: int) -> BatchOrders:
    return BatchOrders([OWNED[device] for device in devices], np.array(seeds, dtype=np.uint64), shape, **room)


def test_every_epoch_visits_every_sample_once() -> None:
    orders = orders_of(planner(), [0, 1, 2], [1, 2, 3])
    for device, rows in enumerate(OWNED):
        for epoch in orders[device]:
            assert sorted(epoch[: len(rows)]) == list(rows)
            assert (epoch[len(rows) :] == rows[0]).all(), "padding repeats the device's first sample"


def test_epochs_and_seeds_differ() -> None:
    orders = orders_of(planner(epochs=20), [1, 1], [1, 2])
    assert len({tuple(epoch) for epoch in orders[0]}) > 10
    assert (orders[0] != orders[1]).any()


def test_an_order_depends_on_seed_and_size_alone() -> None:
    together = orders_of(planner(), [0, 1, 2, 1], [9, 8, 7, 2**64 - 1])
    for place, (device, seed) in enumerate([(0, 9), (1, 8), (2, 7), (1, 2**64 - 1)]):
        assert (orders_of(planner(), [device], [seed])[0] == together[place]).all()


def test_the_order_is_that_of_the_hashes() -> None:
    seed = 123
    keys = [scramble(scramble(seed) ^ (2 << 32 | position)) for position in range(5)]
    expected = OWNED[1][np.argsort(keys)]
    assert (orders_of(planner(), [1], [seed])[0][2][:5] == expected).all()


def test_the_pass_in_stored_order_comes_last() -> None:
    shuffled, plain = planner(), planner(in_stored_order=True)
    assert plain.passes == 5
    orders = orders_of(plain, [1], [4])
    assert list(orders[0][4][:5]) == list(OWNED[1])
    assert (orders[0][:4] == orders_of(shuffled, [1], [4])[0]).all()


def test_orders_are_uniform() -> None:
    plan = planner(epochs=1)
    firsts = orders_of(plan, [1] * 5000, list(range(5000)))[:, 0, 0]
    counts = np.bincount(firsts - 10, minlength=5)
    assert np.abs(counts - 1000).max() < 120, "four standard deviations"


@given(st.data())
def test_orders_do_not_depend_on_how_they_are_drawn(data: st.DataObject) -> None:
    """Whichever passes are requested, in however many parts keys are computed, with any number of empty places."""
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    rows = [np.arange(100 * job, 100 * job + size, dtype=np.int32) for job, size in enumerate(sizes)]
    seeds = np.arange(len(rows), dtype=np.uint64)
    shape = StaticHyperparameters(data.draw(st.integers(1, 4)), 3, gradient=data.draw(st.booleans()))
    alone = [BatchOrders([own], seeds[job : job + 1], shape).draw()[0] for job, own in enumerate(rows)]
    keys = data.draw(st.integers(1, 200))
    with mock.patch.object(batches, "_KEYS", keys):
        places = len(rows) + data.draw(st.integers(0, 2))
        orders = BatchOrders(rows, seeds, shape, places=places)
        steps = np.array([shape.steps_per_epoch(size) for size in [*sizes, *[sizes[0]] * (places - len(rows))]])
        for turn in data.draw(st.permutations(range(shape.passes))):
            orders.prefetch(data.draw(st.integers(0, shape.passes + 1)))
            step = np.stack([data.draw(st.integers(0, own - 1)) for own in steps])[:, None]
            found = orders.batches(np.full_like(step, turn), step)
            for place in range(places):
                job = place if place < len(rows) else 0
                assert (found[place, 0] == alone[job][turn, step[place, 0]]).all()
        whole = orders.draw()
    for job, own in enumerate(alone):
        assert (whole[job, :, : own.shape[1]] == own).all()
    assert not whole[len(rows) :].any()


def test_a_failed_draw_is_repeated() -> None:
    orders, expected = (drawn(planner(), [1], [4]) for _ in range(2))
    with mock.patch.object(batches, "scramble_many", side_effect=MemoryError):
        orders.prefetch(2)
        with pytest.raises(MemoryError):
            orders.draw()
    assert (orders.draw() == expected.draw()).all()
