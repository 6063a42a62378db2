"""The guarantees of each kind of partition, for any data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from data_cases import labelled
from hypothesis import given, settings
from hypothesis import strategies as st

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.by_class import by_class, pathological
from async_hfl.learning.partition.by_size import by_size, iid
from async_hfl.learning.partition.dealing import Deck, Rows
from async_hfl.learning.partition.dirichlet import dirichlet
from async_hfl.learning.partition.natural import natural_id
from async_hfl.learning.partition.registry import PARTITIONERS, partition
from async_hfl.learning.partition.shards import shard

SEEDS = st.integers(0, 2**32)


def shuffled(classes: int, each: int, seed: int = 0) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def well_formed(dealt: tuple[Rows, ...], devices: int) -> list[int]:
    """Check what all partitions guarantee (ascending, distinct int64 rows, never empty); return their sizes."""
    assert len(dealt) == devices
    for rows in dealt:
        assert rows.dtype == np.int64
        assert len(rows)
        assert (np.diff(rows) > 0).all()
    return [len(rows) for rows in dealt]


def counts(dealt: tuple[Rows, ...], samples: int) -> npt.NDArray[np.int64]:
    return np.bincount(np.concatenate(dealt), minlength=samples)


NAMED: dict[str, dict[str, Any]] = {
    "iid": {},
    "by_class": {"classes_per_device": 3},
    "pathological": {"classes_per_device": 3},
    "dirichlet": {"dirichlet_alpha": 1.0, "min_samples_per_device": 2},
    "shard": {"shards_per_device": 2},
    "natural_id": {},
    "by_size": {},
}


@pytest.mark.parametrize("name", PARTITIONERS)
def test_same_seed_same_partition(name: str) -> None:
    data = labelled(shuffled(5, 60), owner=np.arange(300, dtype=np.int32) % 7)
    one, again, other = (partition(name, data, 12, seed, NAMED[name]) for seed in (3, 3, 4))
    well_formed(one, 12)
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(one, other, strict=True))
    assert counts(one, 300).max() == 1, "no sample has two owners"


@pytest.mark.parametrize("name", PARTITIONERS)
def test_a_partition_needs_a_device(name: str) -> None:
    with pytest.raises(DataError, match="at least 1"):
        partition(name, labelled(shuffled(5, 60)), 0, 1, NAMED[name])


def test_names_and_settings() -> None:
    data = labelled(shuffled(4, 30))
    with pytest.raises(SettingsError, match="there is iid, by_class, pathological, dirichlet, shard"):
        partition("dirichlett", data, 3, 1, {})
    # Settings of other partitions are ignored; one that is not set leaves the default.
    dealt = partition("iid", data, 3, 1, {"dirichlet_alpha": -1, "samples_per_device": None})
    assert [len(rows) for rows in dealt] == [40, 40, 40]


@settings(max_examples=50)
@given(samples=st.integers(1, 300), devices=st.integers(1, 60), seed=SEEDS)
def test_iid_is_even_and_whole(samples: int, devices: int, seed: int) -> None:
    data = labelled(np.zeros(samples))
    if devices > samples:
        with pytest.raises(DataError, match="fewer devices"):
            iid(data, devices, seed)
        return
    sizes = well_formed(dealt := iid(data, devices, seed), devices)
    assert max(sizes) - min(sizes) <= 1
    assert (counts(dealt, samples) == 1).all()


@settings(max_examples=50)
@given(
    devices=st.integers(1, 40),
    classes=st.integers(1, 8),
    per_device=st.integers(1, 8),
    wanted=st.integers(1, 60),
    each=st.integers(5, 30),
    seed=SEEDS,
)
def test_a_number_of_samples_a_device(
    devices: int, classes: int, per_device: int, wanted: int, each: int, seed: int
) -> None:
    """More samples may be requested than there are: then every sample of a class is dealt equally often."""
    targets = shuffled(classes, each, seed)
    possible = per_device <= classes <= devices * per_device and -(-wanted // per_device) <= each
    if not possible or wanted < per_device:
        return
    data = labelled(targets, classes)
    dealt = by_class(data, devices, seed, num_classes_per_partition=per_device, samples_per_device=wanted)
    assert well_formed(dealt, devices) == [wanted] * devices
    for rows in dealt:
        held = np.bincount(targets[rows], minlength=classes)
        assert np.count_nonzero(held) == per_device
        assert held[held > 0].max() - held[held > 0].min() <= 1
    out = counts(dealt, len(targets))
    for label in range(classes):
        of_class = out[targets == label]
        assert of_class.max() - of_class.min() <= 1


def test_the_images_of_the_paper() -> None:
    """184 devices x 600 samples are 110,400 of 60,000."""
    targets = shuffled(10, 6000)
    dealt = by_class(labelled(targets), 184, 1, samples_per_device=600)
    assert well_formed(dealt, 184) == [600] * 184
    assert {tuple(np.bincount(np.bincount(targets[rows], minlength=10))[[0, 300]]) for rows in dealt} == {(8, 2)}
    assert set(counts(dealt, 60_000)) <= {1, 2}


def test_a_class_that_is_too_small() -> None:
    targets = np.repeat([0, 1], [100, 5])
    with pytest.raises(DataError, match="wants 10 samples of class 1, which has 5"):
        by_class(labelled(targets), 4, 1, samples_per_device=20)
    with pytest.raises(DataError, match="'all'"):
        by_class(labelled(targets), 4, 1, samples_per_device=0)


def test_a_class_without_samples_has_no_owner() -> None:
    targets = shuffled(4, 30) * 2  # of eight classes, the odd ones do not occur
    dealt = by_class(labelled(targets, 8), 4, 1)
    assert (counts(dealt, 120) == 1).all()
    assert all(len(np.unique(targets[rows])) == 2 for rows in dealt)


@settings(max_examples=30)
@given(size=st.integers(1, 40), draws=st.lists(st.integers(1, 40), min_size=1, max_size=20), seed=SEEDS)
def test_a_deck_deals_evenly_and_never_repeats_within_a_draw(size: int, draws: list[int], seed: int) -> None:
    deck = Deck(np.arange(size), np.random.default_rng(seed))
    dealt = np.zeros(size, int)
    for wanted in draws:
        if wanted > size:
            with pytest.raises(DataError):
                deck.draw(wanted, "it")
            continue
        drawn = deck.draw(wanted, "it")
        assert len(drawn) == wanted == len(np.unique(drawn))
        dealt[drawn] += 1
        assert dealt.max() - dealt.min() <= 1


@settings(max_examples=40)
@given(
    devices=st.integers(1, 30),
    per_device=st.integers(1, 6),
    mode=st.sampled_from(["random", "deterministic", "first-deterministic"]),
    seed=SEEDS,
)
def test_pathological_has_exactly_so_many_classes(devices: int, per_device: int, mode: Any, seed: int) -> None:
    targets = shuffled(6, 50)
    dealt = pathological(
        labelled(targets), devices, seed, num_classes_per_partition=per_device, class_assignment_mode=mode
    )
    well_formed(dealt, devices)
    held = [set(targets[rows].tolist()) for rows in dealt]
    assert all(len(labels) == per_device for labels in held)
    out = counts(dealt, 300)
    # Every sample of a class that some device has is dealt exactly once.
    assert (out == np.isin(targets, list(set.union(*held)))).all()
    if mode == "deterministic":
        assert held == [{(device + k) % 6 for k in range(per_device)} for device in range(devices)]
    if mode == "first-deterministic":
        assert all(device % 6 in labels for device, labels in enumerate(held))


def test_pathological_mistakes() -> None:
    data = labelled(shuffled(6, 50))
    with pytest.raises(DataError, match="7 of 6 classes"):
        pathological(data, 3, 1, num_classes_per_partition=7)
    with pytest.raises(DataError, match="there is random, deterministic and first-deterministic"):
        pathological(data, 3, 1, class_assignment_mode="sorted")  # type: ignore[arg-type]
    regression = Dataset("weather", data.train, data.test)
    with pytest.raises(DataError, match="weather has no classes: use iid"):
        pathological(regression, 3, 1)


@settings(max_examples=40)
@given(
    devices=st.integers(1, 20), alpha=st.floats(0.05, 100), least=st.integers(0, 5), balanced=st.booleans(), seed=SEEDS
)
def test_dirichlet_deals_every_sample_once(devices: int, alpha: float, least: int, balanced: bool, seed: int) -> None:
    data = labelled(shuffled(5, 80))
    try:
        dealt = dirichlet(data, devices, seed, alpha=alpha, min_partition_size=least, self_balancing=balanced)
    except DataError:  # with a small alpha, not every device can have the minimum
        assert alpha < 2
        return
    assert min(well_formed(dealt, devices)) >= least
    assert (counts(dealt, 400) == 1).all()


def test_alpha_goes_from_one_class_to_all() -> None:
    targets = shuffled(10, 600)
    data = labelled(targets)

    def largest_share(alpha: float) -> float:
        dealt = dirichlet(data, 20, 1, alpha=alpha, min_partition_size=1)
        return float(np.mean([np.bincount(targets[rows]).max() / len(rows) for rows in dealt]))

    shares = [largest_share(alpha) for alpha in (0.05, 0.5, 5, 1000)]
    assert all(one > next_ for one, next_ in pairwise(shares))
    assert shares[0] > 0.6
    assert shares[-1] < 0.15


def test_dirichlet_self_balancing() -> None:
    data = labelled(shuffled(10, 600))
    free, balanced = (
        np.mean([np.std([*map(len, dirichlet(data, 10, seed, alpha=0.3, self_balancing=on))]) for seed in range(10)])
        for on in (False, True)
    )
    assert balanced < 0.8 * free


@settings(max_examples=30)
@given(devices=st.integers(1, 30), wanted=st.integers(1, 200), alpha=st.floats(0.01, 50), seed=SEEDS)
def test_dirichlet_with_a_number_of_samples(devices: int, wanted: int, alpha: float, seed: int) -> None:
    data = labelled(shuffled(5, 40))
    assert well_formed(dirichlet(data, devices, seed, alpha=alpha, samples_per_device=wanted), devices) == (
        [wanted] * devices
    )


def test_dirichlet_mistakes() -> None:
    data = labelled(shuffled(5, 80))
    with pytest.raises(DataError, match="above 0"):
        dirichlet(data, 4, 1, alpha=0.0)
    with pytest.raises(DataError, match="or 4 of them, one for each device; got 3"):
        dirichlet(data, 4, 1, alpha=[1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="smaller min_partition_size"):
        dirichlet(data, 50, 1, min_partition_size=10)
    with pytest.raises(DataError, match="wants 401 samples and there are 400"):
        dirichlet(data, 4, 1, samples_per_device=401)
    assert len(dirichlet(data, 4, 1, alpha=[1.0, 2.0, 3.0, 4.0])) == 4


def test_shards_as_in_mcmahan() -> None:
    """Two shards of 300 for each of 100 devices: hardly any device has more than two classes."""
    targets = shuffled(10, 6000)
    dealt = shard(labelled(targets), 100, 1, num_shards_per_partition=2)
    assert well_formed(dealt, 100) == [600] * 100
    assert max(len(np.unique(targets[rows])) for rows in dealt) <= 2


def test_shard_sizes_as_flower_documents_them() -> None:
    data = labelled(shuffled(10, 6000))
    assert well_formed(shard(data, 10, 1, num_shards_per_partition=2, shard_size=1000), 10) == [2000] * 10
    assert well_formed(shard(data, 9, 1, shard_size=1000), 9) == [7000] * 6 + [6000] * 3
    sizes = well_formed(dealt := shard(data, 10, 1, shard_size=990, keep_incomplete_shard=True), 10)
    assert sorted(sizes) in ([5550, *[5940] * 8, 6930], [5940] * 9 + [6540])
    assert (counts(dealt, 60_000) == 1).all()


@settings(max_examples=40)
@given(
    samples=st.integers(1, 200),
    devices=st.integers(1, 20),
    number=st.none() | st.integers(1, 4),
    size=st.none() | st.integers(1, 20),
    keep=st.booleans(),
    seed=SEEDS,
)
def test_shards_are_disjoint_blocks(
    samples: int, devices: int, number: int | None, size: int | None, keep: bool, seed: int
) -> None:
    data = labelled(np.random.default_rng(seed).integers(0, 4, samples))
    try:
        dealt = shard(data, devices, seed, num_shards_per_partition=number, shard_size=size, keep_incomplete_shard=keep)
    except DataError:
        return
    sizes = well_formed(dealt, devices)
    assert counts(dealt, samples).max() == 1
    if number is not None:
        assert len(set(sizes)) == 1
        assert sizes[0] % number == 0
    elif keep:
        assert sum(sizes) == samples


def test_shard_mistakes() -> None:
    data = labelled(shuffled(5, 20))
    for arguments, told in (
        ({}, r"give num_shards_per_partition \(task\.shards_per_device\), shard_size or both"),
        ({"shard_size": 0}, "at least 1"),
        ({"shard_size": 30}, "3 shards of 30 samples for 10 devices"),
        ({"num_shards_per_partition": 20}, "200 shards of 1 samples want more than the 100"),
        ({"num_shards_per_partition": 2, "shard_size": 6}, "20 shards of 6 samples want more"),
    ):
        with pytest.raises(DataError, match=told):
            shard(data, 10, 1, **arguments)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(3, 20), min_size=1, max_size=12),
    devices=st.integers(1, 30),
    most=st.just("all") | st.integers(1, 10),
    seed=SEEDS,
)
def test_natural_owners(sizes: list[int], devices: int, most: Any, seed: int) -> None:
    owner = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int32)
    data = labelled(np.zeros(len(owner)), owner=owner)
    holders = -(-devices // len(sizes))
    if holders > 3:
        return
    dealt = natural_id(data, devices, seed, samples_per_device=most)
    well_formed(dealt, devices)
    assert counts(dealt, len(owner)).max() == 1
    assert all(len(np.unique(owner[rows])) == 1 for rows in dealt)
    if devices <= len(sizes):
        assert [owner[rows[0]] for rows in dealt] == list(range(devices)), "the first ones, in the data's order"
    if most == "all":
        assert sum(map(len, dealt)) == sum(sizes[:devices])
    else:
        assert max(map(len, dealt)) <= most


def test_natural_mistakes() -> None:
    with pytest.raises(DataError, match="no natural owners"):
        natural_id(labelled(np.zeros(10)), 2, 1)
    owner = np.array([0] * 9 + [1], dtype=np.int32)
    with pytest.raises(DataError, match="owner 1 has 1 samples, too few for 2 devices"):
        natural_id(labelled(np.zeros(10), owner=owner), 4, 1)


def test_sizes() -> None:
    data = labelled(np.zeros(1000))

    def dealt(sizes: Any, devices: int = 4) -> list[int]:
        rows = by_size(data, devices, 1, partition_sizes=sizes)
        assert counts(rows, 1000).max() == 1
        return well_formed(rows, devices)

    assert dealt("linear") == [100, 200, 300, 400]
    assert dealt("square") == [33, 133, 300, 534]
    assert dealt("exponential") == [32, 87, 237, 644]
    assert dealt([10, 20, 30, 40]) == [10, 20, 30, 40]
    for wrong, told in (
        ("cubic", "there is linear, square, exponential"),
        ([1, 2], "give 4 whole numbers"),
        ([1, 2, 3, 0], "from 1"),
        ([1, 2, 3, 1.5], "whole numbers"),
        ([1, 2, 3, 1000], "add up to 1006"),
    ):
        with pytest.raises(DataError, match=told):
            dealt(wrong)
    with pytest.raises(DataError, match="got no sample"):
        dealt("exponential", 40)
