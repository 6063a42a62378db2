"""The encoding of a run's models in transfers, and their encoded size, for simulations and deployments alike."""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.assembly.build.nodes import ModelFacts
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights
from async_hfl.encoding.packet_codec import share_on_wire
from async_hfl.encoding.rounding import AS_IT_IS, Encoding


@dataclass(frozen=True, slots=True)
class WireFacts:
    """Facts about a task's model as it is encoded for transfers."""

    encoding: Encoding
    share: float
    """Encoded size over plain size."""
    model_bytes: int
    """Encoded size."""
    gradient_size: int
    learning_rate: float


def wire_facts(settings: Settings, facts: ModelFacts, initial: Weights) -> WireFacts:
    """Return the facts. The compressed size is that of the initial model, so that it is known before the run."""
    encoding = Encoding(half=settings.transfer.encoding == "float16", zstd=settings.transfer.zstd)
    share = share_on_wire(to_host(initial), encoding) if encoding != AS_IT_IS else 1.0
    return WireFacts(
        encoding=encoding,
        share=share,
        model_bytes=max(1, round(share * facts.model_bytes)),
        gradient_size=facts.gradient_size,
        learning_rate=facts.learning_rate,
    )
