"""The codec of a run's models and their size on a link, for simulations and deployments alike."""

from __future__ import annotations

from dataclasses import dataclass

from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.compression.model_codec import ModelCodec


@dataclass(frozen=True, slots=True)
class WireFacts:
    """Facts about a task's model as it travels."""

    codec: ModelCodec
    model_bytes: int
    """M: the mean of a model's bytes on the way down and on the way up, half of what one job moves."""
    float32_bytes: int
    gradient_size: int
    learning_rate: float


def wire_facts(
    settings: Settings,
    *,
    model_size: int,
    gradient_size: int,
    learning_rate: float,
    seed: int,
    simulated: bool = False,
) -> WireFacts:
    """Return the facts. `model_size`: numbers in a model; `gradient_size`: those of them that are trained."""
    transfer = settings.transfer
    codec = ModelCodec(
        transfer.up_kind,
        transfer.down_kind,
        size=model_size,
        trained=gradient_size,
        seed=seed,
        encodes_gradients=settings.utility.compression == "none",
        simulated=simulated,
    )
    moved = codec.bytes_of(codec.up) + codec.bytes_of(codec.down)
    return WireFacts(
        codec=codec,
        model_bytes=max(1, moved // 2),
        float32_bytes=codec.bytes_of("float32"),
        gradient_size=gradient_size,
        learning_rate=learning_rate,
    )
