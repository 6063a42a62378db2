from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps
    from async_hfl.learning.engine.on_device.jax_vectors import JaxVector


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each question to a card is about that it was not told of before."""
    from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps  # brings JAX: only for who wants it

    found: list[int] = []
    bring_together = DeviceOps.bring_together

    def counted(card: DeviceOps, vectors: Sequence[JaxVector]) -> None:
        before = {id(vector): vector.place for vector in vectors}
        bring_together(card, vectors)
        found.append(sum(vector.place is not before[id(vector)] for vector in set(vectors)))

    monkeypatch.setattr(DeviceOps, "bring_together", counted)
    return found
