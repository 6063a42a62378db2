"""Gradients of one run that may meet: whose inner products somebody will ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from async_hfl.learning.engine.on_device.shelf import Shelf


@final
class Kin:
    """Of one learner, which may share its engine with others'."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        """What turns a job's change into a mean gradient, with its steps."""
        self.shelf: Shelf | None = None
        """Where they lie, once there are any."""
