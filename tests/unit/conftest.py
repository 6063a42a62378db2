from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from async_hfl.learning.card import Card
    from async_hfl.learning.card_vector import CardVector


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many vectors each question to a card is about that it was not told of before."""
    from async_hfl.learning.card import Card  # brings JAX: only for who wants it

    found: list[int] = []
    bring_together = Card.bring_together

    def counted(card: Card, vectors: Sequence[CardVector]) -> None:
        before = {id(vector): vector.place for vector in vectors}
        bring_together(card, vectors)
        found.append(sum(vector.place is not before[id(vector)] for vector in set(vectors)))

    monkeypatch.setattr(Card, "bring_together", counted)
    return found
