"""Changes that a relay forwards: unchanged in both directions, and decoded by the cloud against the right model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, vector

from async_hfl.core.compression.codec import decode, decode_change
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import UploadId, gateway_address
from async_hfl.core.learner import TrainingResult
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Received, Trained
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.weights import frozen
from async_hfl.nodes.gateway.aggregation.relay import Relay

START = vector(1.0, 0.3)


def relaying(kind: EncodingKind = "int8", **cloud: Any) -> Stage:
    codec = ModelCodec(kind, kind, size=2, trained=2, seed=3)
    stage = Stage(aggregation=Relay, weights=START, codec=codec, cloud={"epochs": 10**6, **cloud})
    stage.begin(0, 0, 1)
    return stage


def test_a_relay_forwards_the_bytes_of_both_directions() -> None:
    stage = relaying()
    (model,) = {message.weights.tobytes() for message in stage.sent if isinstance(message, m.GlobalModel)}
    for at in range(100, 600, 100):
        stage.returns("d0", (at / 300, 0.51), at=at)
        update = [message for message in stage.sent if isinstance(message, m.Update)][-1]
        (upload,) = stage.waiting("cloud", m.Upload)
        assert upload.weights is update.weights
        train = next(message for message in stage.sent if isinstance(message, m.Train) and message.job == update.job)
        assert (train.weights.tobytes(), train.base_epoch) == (model, upload.base_epoch)  # type: ignore[union-attr]
        stage.deliver("cloud", m.Upload, at=at + 10)
        answer = stage.deliver("g0", m.Answer, at=at + 20)
        assert answer.weights.tobytes() != model  # type: ignore[union-attr]
        model = answer.weights.tobytes()  # type: ignore[union-attr]
    # A relay has no model of its own to encode.
    assert stage.gateways[0].state.versions == 0
    assert stage.gateways[0].state.rounding_error is None


def test_answers_and_uploads_that_overtake_each_other_are_decoded_by_hand() -> None:
    stage = relaying(max_staleness=9)
    stage.returns("d0", (2.0, 0.51), at=100)
    stage.returns("d1", (0.2, 0.77), at=110)
    # Both are changes of epoch 0. The second is decided first; its answer, epoch 1, is the base of the next.
    stage.deliver("cloud", m.Upload, at=120, newest=True)
    stage.deliver("g0", m.Answer, at=130)
    stage.deliver("d0", m.Train, at=131)
    stage.returns("d0", (0.6, 0.1), at=200)
    late, new = stage.waiting("cloud", m.Upload)
    assert (late.base_epoch, late.bases, new.base_epoch, new.bases) == (0, (0,), 1, (0, 1))
    for expected in (new, late):  # the newer one overtakes the one that was sent at first
        before, base = np.asarray(stage.cloud.state.weights), np.asarray(stage.cloud.state.bases[expected.base_epoch])
        stage.deliver("cloud", m.Upload, at=stage.at + 10, newest=expected is new)
        meant = decode_change(expected.weights, frozen(base), "int8", 2)  # type: ignore[arg-type]
        weight = stage.uploads()[-1].weight
        expected_weights = (1 - weight) * before + weight * meant
        np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), expected_weights, rtol=1e-6)
    assert [(str(record.upload), record.reason, record.base_epoch) for record in stage.uploads()] == [
        ("u0.1.2", "mixed", 0),
        ("u0.1.3", "mixed", 1),
        ("u0.1.1", "mixed", 0),
    ]


class Reference:
    """Follows what the cloud should hold, from the messages alone."""

    def __init__(self, stage: Stage, kind: EncodingKind) -> None:
        self.stage, self.kind = stage, kind
        self.models: dict[int, Any] = {}

    def learn(self) -> None:
        for message in self.stage.sent:
            if isinstance(message, (m.GlobalModel, m.Answer)) and message.epoch not in self.models:
                self.models[message.epoch] = decode(message.weights, self.kind, 2, 2)  # type: ignore[arg-type]

    def mixed(self, upload: m.Upload, before: Any) -> Any:
        base = self.models[upload.base_epoch]
        meant = decode_change(upload.weights, base, self.kind, 2)  # type: ignore[arg-type]
        weight = self.stage.uploads()[-1].weight
        return (1 - weight) * before + weight * meant


@pytest.mark.parametrize("delivery", ["reply", "broadcast"])
@pytest.mark.parametrize(("kind", "seed"), [("int8", 1), ("int8", 2), ("int4", 3), ("float16", 4)])
def test_whatever_overtakes_what_the_cloud_decodes_against_the_right_model(
    kind: EncodingKind, seed: int, delivery: str
) -> None:
    """Messages arrive in random order, some of them twice: every upload is mixed from its own base, and the cloud
    remembers only models that an upload may still be a change of."""
    random = np.random.default_rng(seed)
    stage = relaying(kind, delivery=delivery, max_staleness=10**6)
    reference = Reference(stage, kind)
    most = 0
    for step in range(1500):
        at = 1.0 + step
        trained = sorted(stage.training)
        if trained and (not stage.post or random.random() < 0.3):
            device = trained[random.integers(len(trained))]
            job = stage.training.pop(device).job
            result = TrainingResult(vector(*random.normal(size=2)), 10, 5, 0.5, 0.25)
            stage.happens(device, Trained(at, job, result))
            continue
        letter = stage.post[random.integers(min(len(stage.post), 8))]
        if random.random() < 0.9:
            stage.post.remove(letter)
        before, decided = np.asarray(stage.cloud.state.weights), len(stage.uploads())
        reference.learn()
        stage.happens(str(letter.to), Received(at, letter.sender, letter.message))
        most = max(most, len(stage.cloud.state.bases))
        if isinstance(letter.message, m.Upload) and len(stage.uploads()) > decided:
            expected = reference.mixed(letter.message, before)
            np.testing.assert_allclose(np.asarray(stage.cloud.state.weights), expected, rtol=1e-5, atol=1e-5)
    assert stage.cloud.state.epoch > 100
    assert {record.reason for record in stage.uploads()} == {"mixed"}
    assert not stage.of(LifecycleRecord)
    # Three devices have one job each; the rest are models on their way.
    assert 2 <= most <= 16
    assert stage.cloud.state.bases.keys() == set().union(*(member.bases for member in stage.cloud.state.members))


def test_a_model_is_forgotten_when_no_upload_can_be_a_change_of_it() -> None:
    stage = relaying()
    stage.deliver("d1", m.Train, at=1)
    for at in range(100, 600, 100):  # d1 trains from epoch 0 all the time
        stage.returns("d0", (at / 300, 0.51), at=at)
        stage.exchanges("g0", at=at + 10)
    assert set(stage.cloud.state.bases) == {0, 4, 5}
    stage.returns("d1", (0.2, 0.4), at=600)
    stage.exchanges("g0", at=610)
    assert set(stage.cloud.state.bases) == {0, 5, 6}  # g1's device has the model of epoch 0, d0 that of epoch 5
    stage.returns("d2", (0.2, 0.4), at=700)
    stage.exchanges("g1", at=710)
    stage.returns("d0", (0.2, 0.4), at=800)
    stage.exchanges("g0", at=810)
    stage.returns("d2", (0.2, 0.4), at=900)
    stage.exchanges("g1", at=910)
    assert 0 not in stage.cloud.state.bases
    assert {record.reason for record in stage.uploads()} == {"mixed"}


def test_a_change_of_a_model_that_is_gone_is_dropped_on_record_and_answered() -> None:
    stage = relaying()
    stage.returns("d2", (1.5, 0.5), at=90)
    stage.exchanges("g1", at=95)
    for at in (100, 200, 300):
        for device in ("d0", "d1"):
            stage.returns(device, (at / 300, 0.51), at=at)
            stage.exchanges("g0", at=at)
    stage.returns("d2", (1.5, 0.5), at=390)
    stage.exchanges("g1", at=395)
    assert 0 not in stage.cloud.state.bases
    before, epoch = np.array(stage.cloud.state.weights), stage.cloud.state.epoch
    change = next(message for message in stage.sent if isinstance(message, m.Update)).weights
    broken = m.Upload(UploadId(0, 1, 99), change, 0, 1, 10, False, 1, (), bases=(0, 7))
    stage.happens("cloud", Received(400.0, gateway_address(0), broken))
    np.testing.assert_array_equal(np.asarray(stage.cloud.state.weights), before)
    assert stage.cloud.state.epoch == epoch
    assert (str(stage.uploads()[-1].upload), stage.uploads()[-1].reason) == ("u0.1.99", "dropped")
    assert [(record.what, record.node, record.detail) for record in stage.of(LifecycleRecord)] == [
        ("refused", "g0", "upload 99 is a change of the model of cloud epoch 0, which the cloud no longer has")
    ]
    answer = stage.waiting("g0", m.Answer)[-1]
    assert (answer.upload.number, answer.epoch, answer.outcome.accepted) == (99, epoch, False)
    # Sent again, it is answered in the same way, and recorded once.
    stage.happens("cloud", Received(410.0, gateway_address(0), broken))
    assert len(stage.of(LifecycleRecord)) == 1
    assert stage.waiting("g0", m.Answer)[-1].outcome == answer.outcome
