from __future__ import annotations

import numpy as np
import pytest
from data_cases import labelled
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.digits import load_digits
from async_hfl.learning.partition.by_class import by_class

DATA = labelled(np.random.default_rng(1).permutation(np.repeat(np.arange(10), 150)))


@settings(max_examples=60)
@given(
    devices=st.integers(1, 120),
    seed=st.integers(0, 2**32),
    classes=st.integers(1, 12),
    classes_per_device=st.integers(1, 5),
)
def test_deals_everything_once_and_every_class_has_an_owner(
    devices: int, seed: int, classes: int, classes_per_device: int
) -> None:
    targets = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), 200))
    possible = classes_per_device <= classes <= devices * classes_per_device
    if not possible:
        with pytest.raises(DataError):
            by_class(labelled(targets), devices, seed, num_classes_per_partition=classes_per_device)
        return
    dealt = by_class(labelled(targets), devices, seed, num_classes_per_partition=classes_per_device)
    assert len(dealt) == devices
    assert sorted(np.concatenate(dealt)) == list(range(len(targets)))
    assert all(len(np.unique(targets[rows])) == classes_per_device for rows in dealt)
    owners = np.bincount(np.concatenate([np.unique(targets[rows]) for rows in dealt]), minlength=classes)
    assert owners.min() >= 1
    assert owners.max() - owners.min() <= 1, "round-robin"


def test_digits_over_sixty_devices() -> None:
    data = load_digits()
    targets, dealt = data.train.targets, by_class(data, 60, 1)
    sizes = [len(rows) for rows in dealt]
    assert sum(sizes) == 1437
    assert 22 <= min(sizes) <= max(sizes) <= 26
    pairs = {tuple(np.unique(targets[rows])) for rows in dealt}
    assert len(pairs) > 15, "decks are shuffled anew, so the same classes do not always go together"


def test_same_seed_same_partition() -> None:
    one, again, other = (by_class(DATA, 30, seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("devices", "remedy"), [(4, "at least 5 devices"), (0, "at least 1"), (3001, "fewer devices")])
def test_errors_of_impossible_partitions_name_a_remedy(devices: int, remedy: str) -> None:
    with pytest.raises(DataError, match=remedy):
        by_class(DATA, devices, 1)


def test_more_classes_than_there_are() -> None:
    with pytest.raises(DataError, match="11 of 10 classes"):
        by_class(DATA, 20, 1, num_classes_per_partition=11)


def test_fewest_devices() -> None:
    dealt = by_class(DATA, 5, 1)
    assert [len(rows) for rows in dealt] == [300] * 5
