"""Gradients of one run that may meet: whose inner products somebody will ask for.

Asking an accelerator for a number takes as long as many of its computations. So when jobs are handed to it, the
products of the gradients that they will give with all those that are still held somewhere are ordered with them, and
come back with the results.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from async_hfl.learning.card_vector import CardVector


@final
class Kin:
    """Of one learner, which may share its engine with others'."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        """What turns a job's change into a mean gradient, with its steps."""
        self._living: list[weakref.ref[CardVector]] = []

    def living(self) -> list[CardVector]:
        """In the order in which they came."""
        found = [vector for reference in self._living if (vector := reference()) is not None]
        self._living = [weakref.ref(vector) for vector in found]
        return found

    def join(self, vectors: list[CardVector]) -> None:
        self._living += [weakref.ref(vector) for vector in vectors]
