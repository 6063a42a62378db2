"""Encoded models of gateways: encoded once per version on the way down, as changes on the way up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, vector

from async_hfl.core.compression.codec import decode, decode_change, encode_change
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import Model, ModelCodec
from async_hfl.core.identifiers import UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway.node import GatewayNode

START = vector(1.0, 0.3)


def codec(kind: EncodingKind = "int8") -> ModelCodec:
    return ModelCodec(kind, kind, size=2, trained=2, seed=3)


def light(model: Model) -> bytes:
    assert isinstance(model, np.ndarray)
    assert model.dtype == np.uint8
    return model.tobytes()


def host(weights: Weights | None) -> Any:
    assert weights is not None
    return np.asarray(weights)


@pytest.mark.parametrize("kind", ["float16", "int8", "int4"])
def test_a_version_is_encoded_once_and_the_bytes_of_the_cloud_are_forwarded(kind: EncodingKind) -> None:
    stage = Stage(weights=START, codec=codec(kind), gateway={"epochs": 3})
    stage.begin(0, 0, 1)
    (first, other), (at_g1,) = [
        [message.weights for message in stage.sent if isinstance(message, m.Train) and message.job.gateway == gateway]
        for gateway in (0, 1)
    ]
    models = [message.weights for message in stage.sent if isinstance(message, m.GlobalModel)]
    assert {light(model) for model in (*models, first, other, at_g1)} == {light(models[0])}
    assert first is other
    # The gateway, the device and the cloud have the same model.
    start = decode(models[0], kind, 2, 2)  # type: ignore[arg-type]
    np.testing.assert_array_equal(host(stage.model("g0")), start)
    np.testing.assert_array_equal(host(stage.cloud.state.bases[0]), start)

    # After an aggregation the model is another, and so are the bytes; they are what the devices train from.
    stage.returns("d0", (2.0, 0.55), at=100)
    (second,) = stage.waiting("d0", m.Train)
    assert light(second.weights) != light(first)
    sent = stage.gateways[0].state.in_flight_jobs[3].sent
    np.testing.assert_array_equal(host(sent), decode(second.weights, kind, 2, 2))  # type: ignore[arg-type]
    # d1's update changes the model again: both later jobs have other bytes than the one before.
    stage.returns("d1", (-3.0, 2.0), at=110)
    (third,) = stage.waiting("d1", m.Train)
    assert light(third.weights) not in (light(first), light(second.weights))
    assert stage.gateways[0].state.versions == 2


def test_devices_that_are_selected_later_are_sent_the_same_bytes() -> None:
    stage = Stage(weights=START, codec=codec(), gateway={"epochs": 3})
    stage.begin(0, 0, 1)
    stage.returns("d0", (2.0, 0.55), at=100)
    # d1 gives up its job, and is triggered again while the model stays what it was.
    stage.deliver("d1", m.Train, at=101)
    stage.returned("d1", at=102)
    stage.deliver("g0", m.JobDropped, at=103)
    (to_d0,), (to_d1,) = stage.waiting("d0", m.Train), stage.waiting("d1", m.Train)
    assert to_d0.weights is to_d1.weights
    assert stage.gateways[0].state.versions == 1


def test_an_upload_is_the_change_since_the_decoded_global_model() -> None:
    stage = Stage(weights=START, codec=codec())
    stage.begin(0, 0, 1)
    base = host(stage.model("g0"))
    expected_error: Weights | None = None
    for number in (1, 2, 3):
        stage.returns("d0", (2.0 + number, 0.55), at=100 * number)
        stage.returns("d0", (0.5, 0.123), at=100 * number + 10)
        (upload,) = stage.waiting("cloud", m.Upload)
        model = host(stage.model("g0"))
        key = codec().key("upload", *UploadId(0, 1, number))
        change, expected_error = encode_change(model, base, expected_error, "int8", 2, key)  # type: ignore[arg-type]
        assert light(upload.weights) == change.tobytes()
        np.testing.assert_array_equal(host(stage.gateways[0].state.rounding_error), host(expected_error))

        before = host(stage.cloud.state.weights)
        stage.deliver("cloud", m.Upload, at=100 * number + 20)
        received = decode_change(change, base, "int8", 2)
        weight = stage.uploads()[-1].weight
        np.testing.assert_allclose(
            host(stage.cloud.state.weights), (1 - weight) * before + weight * received, rtol=1e-6
        )
        answer = stage.deliver("g0", m.Answer, at=100 * number + 30)
        base = host(stage.model("g0"))
        # The gateway works from the answer as it can be decoded, not from the cloud's own model.
        np.testing.assert_array_equal(base, decode(answer.weights, "int8", 2, 2))  # type: ignore[arg-type]
    assert np.any(host(expected_error))


def test_an_upload_is_sent_again_with_the_same_bytes() -> None:
    stage = Stage(weights=START, codec=codec())
    stage.begin(0, 0, 1)
    for at in (100, 200):
        stage.returns("d0", (2.0, 0.55), at=at)
    error = host(stage.gateways[0].state.rounding_error)
    stage.lose("cloud", m.Upload)
    stage.fire("g0", "reply")
    stage.fire("g0", "reply")
    first, second, third = [message for message in stage.sent if isinstance(message, m.Upload)]
    assert light(first.weights) == light(second.weights) == light(third.weights)
    np.testing.assert_array_equal(host(stage.gateways[0].state.rounding_error), error)
    # Both copies arrive: one is mixed, the other answered.
    stage.deliver("cloud", m.Upload, at=9000)
    stage.deliver("cloud", m.Upload, at=9001)
    assert [(record.reason, record.staleness) for record in stage.uploads()] == [("mixed", 1)]
    one, other = stage.waiting("g0", m.Answer)
    assert light(one.weights) == light(other.weights)


class Restarting(Stage):
    """A stage whose gateways are stopped after every event, and continue from their snapshots."""

    def happens(self, name: str, event: Any) -> Any:
        effects = super().happens(name, event)
        if name.startswith("g"):
            restarted = self.make()[name]
            assert isinstance(restarted, GatewayNode)
            restarted.restore(self.nodes[name].snapshot())
            self.nodes[name] = restarted
        return effects


@pytest.mark.parametrize("kind", ["float16", "int8", "int4"])
def test_a_gateway_that_restarts_after_every_event_sends_the_same_bytes(kind: EncodingKind) -> None:
    def models(stage: Stage) -> list[bytes]:
        stage.begin(0, 0, 1)
        for number in range(1, 4):
            stage.returns("d0", (2.0 + number, 0.55), at=10_000 * number)
            stage.returns("d1", (0.7, 0.123 * number), at=10_000 * number + 10)
            if number == 1:
                stage.lose("cloud", m.Upload)
                stage.fire("g0", "reply")
            stage.exchanges("g0", at=stage.at + 1)
        return [light(message.weights) for message in stage.sent if hasattr(message, "weights")]

    options: dict[str, Any] = {"weights": START, "codec": codec(kind)}
    assert models(Restarting(**options)) == models(Stage(**options))
