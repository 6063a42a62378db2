"""Local data that changes over time."""

from __future__ import annotations

import numpy as np
import pytest
from data_cases import labelled
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import scramble, stream_seed
from async_hfl.learning.partition.by_class import by_class
from async_hfl.learning.partition.dealing import Rows
from async_hfl.learning.tasks.refresh import Refresh

CLASSES = 5
TARGETS = np.random.default_rng(1).permutation(np.repeat(np.arange(CLASSES, dtype=np.int32), 80))
POOLS = [np.flatnonzero(label == TARGETS) for label in range(CLASSES)]
OWNED = by_class(labelled(TARGETS), 7, 3)


def made(share: float, seed: int = 9, owned: tuple[Rows, ...] = OWNED) -> Refresh:
    return Refresh(owned, TARGETS, classes=CLASSES, share=share, seed=seed)


def refreshed(device: int, generation: int, share: float, seed: int) -> Rows:
    """Compute the rows of one device slot by slot, as the definition says."""
    held = []
    for slot, row in enumerate(OWNED[device].tolist()):
        salt = scramble(stream_seed(seed, "refresh", device) ^ slot)
        version = int(generation * share + (salt >> 11) * 2.0**-53)
        draw, pool = scramble((salt + version) % 2**64) >> 32, POOLS[TARGETS[row]]
        held.append(row if version == 0 else int(pool[(draw * len(pool)) >> 32]))
    return np.array(held, dtype=np.int64)


@settings(max_examples=40)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 10_000)), min_size=1, max_size=6),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_it_follows_the_definition_slot_by_slot(jobs: list[tuple[int, int]], share: float, seed: int) -> None:
    devices, generations = (np.array(part) for part in zip(*jobs, strict=True))
    held = made(share, seed).rows(devices, generations)
    assert held.dtype == np.int32
    assert held.shape == (len(jobs), max(map(len, OWNED)))
    for (device, generation), rows in zip(jobs, held, strict=True):
        original = OWNED[device]
        expected = refreshed(device, generation, share, seed)
        assert rows[: len(original)].tolist() == expected.tolist()
        assert (rows[len(original) :] == rows[0]).all()
        assert (TARGETS[expected] == TARGETS[original]).all(), "each slot keeps its class"


def test_the_first_job_and_a_share_of_zero_keep_the_assigned_samples() -> None:
    devices = np.arange(7)
    for share, generation in ((0.3, 0), (1.0, 0), (0.0, 1000)):
        held = made(share).rows(devices, np.full(7, generation))
        for rows, original in zip(held, OWNED, strict=True):
            assert rows[: len(original)].tolist() == original.tolist()


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 1.0])
def test_each_slot_is_renewed_once_in_its_period(share: float) -> None:
    """A slot changes every 1/share jobs, rounded up or down, and slots are staggered."""
    jobs = 200
    refresh = made(share)
    slots = len(OWNED[0])
    held = refresh.rows(np.zeros(jobs, dtype=np.int64), np.arange(jobs))[:, :slots]
    changed = held[1:] != held[:-1]
    # One draw in 80 gives the sample that was there.
    assert changed.mean() == pytest.approx(share, rel=0.1)
    if share < 1:
        assert changed.any(axis=1).mean() > 0.95, "some change with every job"
    gaps = np.concatenate([np.diff(np.flatnonzero(column)) for column in changed.T])
    assert gaps.min() >= int(1 / share)


def test_draws_are_uniform_over_the_class() -> None:
    refresh = made(1.0)
    jobs = 4000
    held = refresh.rows(np.zeros(jobs, dtype=np.int64), np.arange(1, jobs + 1))[:, : len(OWNED[0])]
    for label in np.unique(TARGETS[OWNED[0]]):
        drawn = held[:, TARGETS[OWNED[0]] == label]
        counts = np.bincount(drawn.reshape(-1), minlength=len(TARGETS))[POOLS[label]]
        expected = drawn.size / len(POOLS[label])
        chi = ((counts - expected) ** 2 / expected).sum()
        assert chi < 79 + 5 * (2 * 79) ** 0.5


def test_devices_and_seeds_differ() -> None:
    twice = (OWNED[0], OWNED[0])
    one, other = made(1.0, owned=twice).rows(np.array([0, 1]), np.array([5, 5]))
    assert (one != other).any()
    again = made(1.0, seed=10, owned=twice).rows(np.array([0, 1]), np.array([5, 5]))
    assert (again[0] != one).any()


def test_invalid_shares() -> None:
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(SettingsError, match=r"task\.refresh"):
            made(share)
    with pytest.raises(SettingsError, match="without classes"):
        Refresh(OWNED, TARGETS, classes=0, share=0.1, seed=1)
    Refresh(OWNED, np.zeros((400, 3), np.float32), classes=0, share=0.0, seed=1)  # type: ignore[arg-type]
