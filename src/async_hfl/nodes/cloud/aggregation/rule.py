"""Aggregation rules of the cloud: a base class with defaults, and the value by which a rule says what to do next.

A rule decides what becomes of the gateways' uploads. It changes nothing but its own state: it returns a `Next`, and the
cloud acts on it. A rule of your own is a subclass in a file of yours, given as `cloud.aggregation=FILE.py:NAME`:

    class MixHalf(CloudAggregation):
        def received(self, cloud, upload, staleness, at):
            model = 0.5 * cloud.state.weights + 0.5 * upload.weights
            return Next(model, ((upload, Outcome(True, staleness, 0.5)),))

Only `received` must be written. A rule that keeps uploads for later also overrides `gateway_lost`, and `changed` if it
waits for certain gateways. A rule that remembers anything keeps it in `state`, a dataclass of plain values decorated
with `async_hfl.core.serialization.plain`, and names that class in `state_type`. Nothing else survives a restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar

from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.context import Cloud

__all__ = ["NOTHING", "Cloud", "CloudAggregation", "Next"]


@dataclass(frozen=True, slots=True)
class Next:
    """What the cloud does next: it wakes gateways, adopts the model, answers what is decided, reports what is held."""

    model: Weights | None = None
    """The new global model, which makes a new cloud epoch; None: the model stays as it is."""
    decided: tuple[tuple[m.Upload, m.Outcome], ...] = ()
    """Uploads that are done with: recorded and answered. The accepted ones are inside `model`."""
    held: tuple[m.Upload, ...] = ()
    """Uploads that will be decided later: their gateways are told that they need not resend them."""
    wake: tuple[int, ...] = ()
    """Gateways to send the present global model to, before anything else happens."""


NOTHING = Next()


class CloudAggregation(ABC):
    """An aggregation rule of the cloud; see the module's docstring for how to write one."""

    state_type: ClassVar[type[Any]] = NoneType
    """The class of `state`, called without arguments."""
    state: Any

    def __init__(self) -> None:
        self.state = self.state_type()

    @abstractmethod
    def received(self, cloud: Cloud, upload: m.Upload, staleness: int, at: float) -> Next:
        """Decide on a new upload of a live gateway, now or later. Its staleness h - tau is at least 1.

        Every upload must be decided exactly once, unless its gateway is lost before."""

    def gateway_lost(self, cloud: Cloud, gateway: int, at: float) -> Next:
        """Forget the undecided uploads of a gateway that was declared lost; the gateway records their end itself."""
        return self.changed(cloud, at)

    def changed(self, cloud: Cloud, at: float) -> Next:
        """React to a change of live, associated or reachable gateways: one that was waited for may be gone."""
        return NOTHING

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)
