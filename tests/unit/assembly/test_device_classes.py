"""Device classes of a cluster, as given on the command line."""

from __future__ import annotations

from math import inf

import pytest

from async_hfl.assembly.deployments.device_classes import DeviceClass, device_classes
from async_hfl.core.errors import UserError


def test_without_classes_all_devices_are_equal() -> None:
    assert device_classes((), None) == (DeviceClass(),) * 8
    assert device_classes((), 3) == (DeviceClass(),) * 3
    assert not DeviceClass().shaped


def test_classes_are_in_the_given_order() -> None:
    fast, slow = DeviceClass(1.0), DeviceClass(8.0, 20_000.0, 0.05)
    assert device_classes(("2:1", "1:8:20000:0.05"), None) == (fast, fast, slow)
    assert device_classes(("1:3:inf:0.1",), 1) == (DeviceClass(3.0, inf, 0.1),)
    assert slow.shaped


@pytest.mark.parametrize("text", ["", "x", "0:1", "2:0.5", "2:inf", "2:1:0", "2:1:9:-1", "2:1:9:1:7", "1.5:1", "2:nan"])
def test_malformed_classes(text: str) -> None:
    with pytest.raises(UserError, match="COUNT:SLOWDOWN"):
        device_classes((text,), None)


def test_counts_must_agree() -> None:
    with pytest.raises(UserError, match="the classes have 2"):
        device_classes(("2:1",), 3)
