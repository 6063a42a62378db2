"""The links of devices, on maps small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from radio_maps import places, straight_air

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.network.radio.links import LinkRules, best_links, shadowing
from async_hfl.network.radio.places import Places

EVERY = LinkRules(least_rate=10_000)


def pairs(links: object) -> list[tuple[int, int]]:
    return list(zip(links.device.tolist(), links.gateway.tolist(), strict=True))  # type: ignore[attr-defined]


def test_links_by_hand() -> None:
    """Uploads are half as fast: at a least rate of 10 kB/s a link may be 80 m long."""
    devices = places((0, 0), (100, 0), (300, 0))
    gateways = places((0, 30), (90, 0), (180, 0))
    links = best_links(devices, gateways, straight_air(), EVERY, seed=1)
    assert pairs(links) == [(0, 0), (1, 1), (1, 2)], "device 0 is 90 m from gateway 1, device 2 reaches no gateway"
    assert links.download_rate.tolist() == [70_000, 90_000, 20_000]
    assert links.upload_rate.tolist() == [35_000, 45_000, 10_000]


def test_the_best_of_the_candidates() -> None:
    devices = places((0, 0))
    gateways = places((50, 0), (0, 10), (-30, 0), (0, -20))
    assert pairs(best_links(devices, gateways, straight_air(), LinkRules(1.0, 2, 4), seed=1)) == [(0, 1), (0, 3)]
    assert pairs(best_links(devices, gateways, straight_air(), LinkRules(1.0, 3, 3), seed=1)) == [
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    equal = best_links(places((0, 0)), places((7, 0), (0, 7), (-7, 0)), straight_air(), LinkRules(1.0, 2, 3), seed=1)
    assert pairs(equal) == [(0, 0), (0, 1)], "ties go to the lower number"


def test_links_of_a_large_map() -> None:
    random = np.random.default_rng(3)
    devices = places(*random.uniform(0, 2000, (500, 2)).tolist())
    gateways = places(*random.uniform(0, 2000, (80, 2)).tolist(), first_key=1000)
    rules = LinkRules(least_rate=5000, links=4, candidates=20)
    links = best_links(devices, gateways, straight_air(400.0, shadowing_db=30.0), rules, seed=5)
    assert (np.lexsort((links.gateway, links.device)) == np.arange(len(links))).all()
    assert len(set(pairs(links))) == len(links)
    assert np.bincount(links.device).max() == 4
    assert (np.minimum(links.download_rate, links.upload_rate) >= 5000).all()
    again = best_links(devices, gateways, straight_air(400.0, shadowing_db=30.0), rules, seed=5)
    assert again.download_rate.tolist() == links.download_rate.tolist()
    other = best_links(devices, gateways, straight_air(400.0, shadowing_db=30.0), rules, seed=6)
    assert other.download_rate.tolist() != links.download_rate.tolist()
    part = best_links(devices.take(slice(100)), gateways, straight_air(400.0, shadowing_db=30.0), rules, seed=5)
    assert part.download_rate.tolist() == links.download_rate[links.device < 100].tolist(), "others do not matter"


def test_shadowing_is_normal_and_depends_on_the_pair() -> None:
    one, other = (places(*np.zeros((20_000, 2)).tolist(), first_key=key) for key in (0, 50_000))
    drawn = shadowing(one, other, 7.0, seed=1)
    assert abs(drawn.mean()) < 0.2
    assert drawn.std() == pytest.approx(7.0, rel=0.03)
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03
    assert (np.abs(drawn) > 14).mean() == pytest.approx(0.0455, abs=0.01)
    assert shadowing(one.take(slice(5)), other.take(slice(5)), 7.0, seed=1).tolist() == drawn[:5].tolist()
    assert shadowing(one.take(slice(5)), other.take(slice(5)), 7.0, seed=2).tolist() != drawn[:5].tolist()


def test_rules_and_places_are_checked() -> None:
    with pytest.raises(SettingsError, match="11 links a device out of the 10 nearest"):
        LinkRules(1.0, 11, 10)
    with pytest.raises(DataError, match="place 1: x, y or height is not a finite number"):
        places((0, 0), (np.nan, 0))
    with pytest.raises(DataError, match=r"place 0: a height of 0.0 m"):
        places((0, 0, 0))
    with pytest.raises(DataError, match="columns of one length"):
        Places(np.zeros(2), np.zeros(2), np.ones(2), np.arange(3))
