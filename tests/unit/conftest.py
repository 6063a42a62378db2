from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps, JaxVector


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of products in each computation that was not enqueued before it was needed."""
    from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps  # imports JAX, which other tests do without

    found: list[int] = []
    products = DeviceOps.products

    def counted(ops: DeviceOps, one: JaxVector, others: Sequence[JaxVector]) -> list[float]:
        found.append(len(others))
        return products(ops, one, others)

    monkeypatch.setattr(DeviceOps, "products", counted)
    return found
