from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from async_hfl.learning.card import Card
    from async_hfl.learning.card_vector import CardVector


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products each question to a card asks for."""
    from async_hfl.learning.card import Card  # brings JAX: only for who wants it

    found: list[int] = []
    products = Card.products

    def counted(card: Card, one: CardVector, others: Sequence[CardVector]) -> list[float]:
        found.append(len(others))
        return products(card, one, others)

    monkeypatch.setattr(Card, "products", counted)
    return found
