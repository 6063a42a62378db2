"""How models travel, and what they weigh then: settled once for a run, the same for both shells."""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.assembly.build.nodes import Facts
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights
from async_hfl.encoding.packet_codec import share_on_wire
from async_hfl.encoding.rounding import AS_IT_IS, Encoding


@dataclass(frozen=True, slots=True)
class OnTheWire:
    """Facts of a task as nodes reckon with them: a model weighs what it takes to send it."""

    encoding: Encoding
    share: float
    model_bytes: int
    gradient_size: int
    learning_rate: float


def on_the_wire(settings: Settings, facts: Facts, initial: Weights) -> OnTheWire:
    encoding = Encoding(settings.transfer.half, settings.transfer.zstd)
    share = share_on_wire(to_host(initial), encoding) if encoding != AS_IT_IS else 1.0
    return OnTheWire(
        encoding, share, max(1, round(share * facts.model_bytes)), facts.gradient_size, facts.learning_rate
    )
