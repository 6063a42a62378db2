"""Encoding and decoding of the vectors inside messages, by the codec of a run."""

from __future__ import annotations

from dataclasses import replace

from async_hfl.core.compression.model_codec import Direction, ModelCodec, plain_vector
from async_hfl.core.protocol.messages import DeviceKnowledge, Update
from async_hfl.core.weights import Weights


def decode_update(codec: ModelCodec, update: Update, sent: Weights) -> Update:
    """Return the update with its decoded model. `sent` is the model that the device has trained from."""
    if not codec.encodes_up:
        return update
    weights = codec.decode_change(update.weights, sent)
    if update.gradient is None or update.compressed:
        return replace(update, weights=weights)
    return replace(update, weights=weights, gradient=codec.decode_gradient(update.gradient, "up"))


def encode_knowledge(codec: ModelCodec, known: DeviceKnowledge, direction: Direction, key: int) -> DeviceKnowledge:
    """Return the knowledge with its gradient encoded."""
    if known.gradient is None or known.compressed or not codec.encodes_gradient(direction):
        return known
    return replace(known, gradient=codec.encode_gradient(plain_vector(known.gradient), direction, key))


def decode_knowledge(codec: ModelCodec, known: DeviceKnowledge, direction: Direction) -> DeviceKnowledge:
    """Return the knowledge with its gradient decoded."""
    if known.gradient is None or known.compressed or not codec.encodes_gradient(direction):
        return known
    return replace(known, gradient=codec.decode_gradient(known.gradient, direction))
