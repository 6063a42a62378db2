"""The interface of the cloud's aggregation rule: subclass `CloudAggregation` to write one.

A rule decides how the gateways' uploads become the next global model. It changes nothing but its own state: it returns
a `Next`, which the cloud carries out. Name your own rule, in your own file, as `cloud.aggregation=FILE.py:NAME`:

    class MixHalf(CloudAggregation):
        def received(self, cloud, upload, staleness, at):
            model = 0.5 * cloud.state.weights + 0.5 * upload.weights
            return Next(model, ((upload, Outcome(True, staleness, 0.5)),))

The numbers of a model from `cloud.config.gradient_size` on are running statistics, such as variances: only average
them.

Only `received` is required. A rule that keeps uploads for later also overrides `gateway_lost`, and `changed` if it
waits for certain gateways. It keeps them in `state`, a dataclass of plain values decorated with
`async_hfl.core.serialization.plain`, and names that class in `state_type`. Nothing else survives a restart.
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
    """The cloud's next steps, in order: send models to `wake`, adopt `model`, answer `decided`, acknowledge `held`."""

    model: Weights | None = None
    """The global model of a new cloud epoch; None: no new epoch."""
    decided: tuple[tuple[m.Upload, m.Outcome], ...] = ()
    """Uploads to record and answer. The accepted ones are in `model`."""
    held: tuple[m.Upload, ...] = ()
    """Uploads that will be decided on later; their gateways stop resending them."""
    wake: tuple[int, ...] = ()
    """Gateways to which the current global model is sent first."""


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
        """Decide on a new upload, now or later. Its staleness h - tau is at least 1.

        Every upload must be decided on exactly once, unless its gateway is lost before. If updates travel encoded, an
        upload staler than `config.max_staleness` is dropped before it gets here: the cloud has forgotten the model
        that it is a change of."""

    def gateway_lost(self, cloud: Cloud, gateway: int, at: float) -> Next:
        """Discard the undecided uploads of a gateway that was declared lost or suspended."""
        return self.changed(cloud, at)

    def changed(self, cloud: Cloud, at: float) -> Next:
        """Handle a change of the live gateways, the association or the links: the rule may wait for a lost gateway."""
        return NOTHING

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)
