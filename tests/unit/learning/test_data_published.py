"""The published sets, if they are on this machine: readers must reproduce the known facts about them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from async_hfl.learning.datasets import har
from async_hfl.learning.datasets.cifar10 import load_cifar10
from async_hfl.learning.datasets.files import parsed_cache
from async_hfl.learning.datasets.files.catalogue import PUBLISHED
from async_hfl.learning.datasets.har import load_har
from async_hfl.learning.datasets.hpwren import load_hpwren
from async_hfl.learning.datasets.idx_images import load_fashion_mnist, load_mnist
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.datasets.shakespeare import ALPHABET, load_shakespeare

pytestmark = pytest.mark.skipif(
    not os.environ.get("ASYNC_HFL_DATA"), reason="the published sets are read where ASYNC_HFL_DATA says where they are"
)


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASYNC_HFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def counts(data: Dataset) -> tuple[list[int], list[int]]:
    train, test = (np.bincount(part.targets, minlength=data.classes).tolist() for part in (data.train, data.test))
    return train, test


def check_size(data: Dataset) -> None:
    """The catalogue shows these numbers to the user."""
    assert {"train": len(data.train), "test": len(data.test)} == PUBLISHED[data.name].samples


def test_mnist() -> None:
    data = load_mnist()
    check_size(data)
    assert counts(data) == (
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    )
    assert data.train.inputs.shape == (60000, 28, 28, 1)
    check_scaling(data)


def check_scaling(data: Dataset) -> None:
    inputs = data.train.read(np.arange(len(data.train)))
    axes = tuple(range(inputs.ndim - 1))
    np.testing.assert_allclose(inputs.mean(axis=axes), 0, atol=1e-3)
    np.testing.assert_allclose(inputs.std(axis=axes), 1, atol=1e-3)


@pytest.mark.long
def test_fashion_mnist() -> None:
    data = load_fashion_mnist()
    check_size(data)
    assert counts(data) == ([6000] * 10, [1000] * 10)
    check_scaling(data)


@pytest.mark.long
def test_cifar10() -> None:
    """Cached arrays equal parsed ones; tested here, where parsing takes long enough to need the cache."""
    data = load_cifar10()
    check_size(data)
    assert counts(data) == ([5000] * 10, [1000] * 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsed_cache, "locate", None)
        again = load_cifar10()
    assert again.train.inputs.tobytes() == data.train.inputs.tobytes()
    pixels = data.train.read(np.arange(0, 50000, 7))
    np.testing.assert_allclose(pixels.mean(axis=(0, 1, 2)), 0, atol=0.02)
    np.testing.assert_allclose(pixels.std(axis=(0, 1, 2)), 1, atol=0.02)


@pytest.mark.long
def test_har() -> None:
    data = load_har()
    check_size(data)
    train, test = counts(data)
    assert [a + b for a, b in zip(train, test, strict=True)] == [1722, 1544, 1406, 1777, 1906, 1944]
    assert data.owner is not None
    assert data.test_owner is not None
    assert len(data.owner_names) == 30
    each, tested = np.bincount(data.owner), np.bincount(data.test_owner)
    assert len(data.train) + len(data.test) == 10299
    assert each.mean() == pytest.approx(308.5, abs=1)
    assert np.abs(tested - har.TEST_SHARE * (each + tested)).max() <= 0.5
    np.testing.assert_allclose(data.train.inputs.std(axis=0), 1, atol=1e-3)


@cache
def shakespeare(roles: int | None) -> Dataset:
    return load_shakespeare(roles=roles)


def test_shakespeare() -> None:
    data = shakespeare(143)
    check_size(data)
    assert data.owner is not None
    each = np.bincount(data.owner, minlength=143)
    assert len(data.owner_names) == len(each) == 143
    assert each.min() >= 1
    assert each.mean() == pytest.approx(2892, rel=0.02), "as many a role as the papers had"
    text = "".join(ALPHABET[symbol] for symbol in data.train.inputs)
    assert "<" not in text
    assert "WORLD LIBRARY" not in text


def test_all_of_shakespeare() -> None:
    data = shakespeare(None)
    plays = {name.rpartition(": ")[0] for name in data.owner_names}
    assert len(plays) == 36
    assert 1100 < len(data.owner_names) < 1200
    assert "THE TRAGEDY OF HAMLET, PRINCE OF DENMARK: HAM" in data.owner_names
    hamlet = data.owner_names.index("THE TRAGEDY OF HAMLET, PRINCE OF DENMARK: HAM")
    assert data.owner is not None
    first = data.train.read(np.flatnonzero(data.owner == hamlet)[:1])[0]
    assert "".join(ALPHABET[symbol] for symbol in first).startswith(
        "[aside] A little more than kin, and less than kind!"
    )


@pytest.mark.parametrize(("hourly", "a_station"), [(False, 11263), (True, 6051)])
def test_hpwren(hourly: bool, a_station: int) -> None:
    data = load_hpwren(hourly=hourly)
    if not hourly:
        check_size(data)
    assert len(data.owner_names) == 26
    assert not {"BMR", "SCI"} & set(data.owner_names)
    assert len(data.train) / 26 == pytest.approx(a_station, abs=1)
    for part in (data.train, data.test):
        assert np.isfinite(part.targets).all()
        assert np.abs(part.targets).max() <= 6
    assert data.train.starts is not None
    last = data.test.inputs[data.test.starts + data.test.window - 1]
    naive = float(((last - data.test.targets) ** 2).mean())
    assert 0.05 < naive < 0.2, "the error of `as it is now`, which a model must beat"
