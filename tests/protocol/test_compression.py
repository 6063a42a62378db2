"""Compressed gradients in messages: distribution of the basis, projection, and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, vector

from async_hfl.core.identifiers import JobId, gateway_address
from async_hfl.core.learner import TrainingResult
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send
from async_hfl.core.protocol.events import Received, Started, Trained
from async_hfl.core.protocol.traffic import traffic
from async_hfl.nodes.device import DeviceNode

NEAREST = (100.0, 300.0, 90.0, 300.0, 80.0)
"""d0 and d1 are nearest to g0, d2 to g1."""


def warmed_up(kind: str, **cloud: Any) -> Stage:
    """Run a warm-up with gradients along (1, 1), (2, 2) and (-1, -1), which have one principal component."""
    config = {"gradient": kind}
    stage = Stage(
        gateway=config,
        cloud={"warmup": True, "warmup_quorum": 1.0, "components": 1, **config, **cloud},
        latency=NEAREST,
    )
    stage.happens("cloud", Started(0.0))
    for name in ("g0", "g1"):
        stage.deliver(name, m.WarmUp, at=1)
    for device, length in (("d0", 1), ("d1", 2), ("d2", -1)):
        # update: (w_received - w_final) / (0.1 x 5 steps); last: as sent by the device.
        weights = (-0.5 * length, -0.5 * length) if kind == "update" else (0, 0)
        gradient = vector(length, length) if kind == "last" else None
        stage.returns(device, weights, at=50, gradient=gradient)
        stage.deliver("cloud", m.LeaseReleased if stage.waiting("cloud", m.LeaseReleased) else m.Report, at=50)
    stage.solved(0, 0, 1, at=60)
    return stage


@pytest.mark.parametrize("kind", ["last", "update"])
def test_the_basis_is_fitted_to_the_warm_up_and_goes_to_every_gateway_once(kind: str) -> None:
    stage = warmed_up(kind)
    directory = stage.cloud.state.association
    assert isinstance(directory.projection, PcaProjection)
    np.testing.assert_allclose(directory.projection.components, [[0.5**0.5, 0.5**0.5]], rtol=1e-6)
    # Along (1, 1) / sqrt 2 the gradients are sqrt 2, 2 sqrt 2, - sqrt 2.
    assert directory.gradients is not None
    np.testing.assert_allclose(
        directory.gradients.gradients(np.arange(3))[:, 0], np.array([1, 2, -1]) * 2**0.5, rtol=1e-6
    )
    for name in ("g0", "g1"):
        model = stage.deliver(name, m.GlobalModel, at=71)
        assert traffic(model) == (8, 0, 8, 96)
        assignment = stage.deliver(name, m.Assignment, at=71)
        assert all(known.compressed and known.gradient.shape == (1,) for known in assignment.knowledge)
    stage.returns("d0", (0, 0), at=100, gradient=vector(3, 3) if kind == "last" else None)
    stage.returns("d1", (0, 0), at=110, gradient=vector(3, 3) if kind == "last" else None)
    stage.deliver("cloud", m.Upload, at=120)
    answer = stage.deliver("g0", m.Answer, at=130)
    assert traffic(answer).basis == 0


def test_a_device_that_sends_gradients_is_given_the_basis_with_its_next_job_and_only_then() -> None:
    stage = warmed_up("last")
    stage.deliver("g0", m.Assignment, at=70)
    stage.deliver("g0", m.GlobalModel, at=71)
    (first,) = stage.waiting("d0", m.Train)
    assert traffic(first) == (8, 0, 8, 96)
    # In the warm-up devices sent whole gradients, now projected ones: 3 (1, 1) has length 3 sqrt 2.
    stage.trains("d0", (0, 0), at=100, gradient=vector(3, 3))
    (update,) = stage.waiting("g0", m.Update)
    assert (update.compressed, traffic(update).gradient) == (True, 4)
    np.testing.assert_allclose(update.gradient, [3 * 2**0.5], rtol=1e-6)
    stage.deliver("g0", m.Update, at=101)
    (second,) = stage.waiting("d0", m.Train)
    assert second.basis is None
    device_table = stage.gateways[0].state.device_table
    assert device_table.gradients is not None
    np.testing.assert_allclose(device_table.gradients.gradient(device_table.slot_of[0]), [3 * 2**0.5], rtol=1e-6)
    # The cloud is told, so that another gateway need not send the basis again.
    stage.returns("d1", (0, 0), at=110, gradient=vector(1, 0))
    stage.deliver("cloud", m.Upload, at=120)
    assert stage.cloud.state.association.has_basis.tolist() == [True, True, False]


def test_gradients_that_the_gateway_computes_need_no_basis_on_the_device() -> None:
    stage = warmed_up("update")
    stage.deliver("g0", m.Assignment, at=70)
    stage.deliver("g0", m.GlobalModel, at=71)
    assert stage.waiting("d0", m.Train)[0].basis is None
    stage.returns("d0", (0.5, 0.0), at=100)
    # -(0.5, 0) / 0.5 = (-1, 0), of which -1 / sqrt 2 lies along the basis.
    device_table = stage.gateways[0].state.device_table
    assert device_table.gradients is not None
    np.testing.assert_allclose(device_table.gradients.gradient(device_table.slot_of[0]), [-(0.5**0.5)], rtol=1e-6)


def test_knowledge_that_overtakes_the_basis_is_not_lost() -> None:
    stage = warmed_up("last")
    stage.deliver("g0", m.Assignment, at=70)
    device_table = stage.gateways[0].state.device_table
    assert device_table.gradients is not None
    assert (device_table.gradients.size, device_table.gradients.known.tolist()) == (1, [True, True])
    # A whole gradient that arrives before the basis cannot be compared with projected ones; the old one stays.
    stage.deliver("g0", m.GlobalModel, at=71)
    assert device_table.gradients.known.tolist() == [True, True]
    assert isinstance(device_table.projection, PcaProjection)


def test_a_late_warm_up_gradient_is_projected_by_the_gateway() -> None:
    stage = warmed_up("last")
    late = m.DeviceKnowledge(2, 80.0, True, 10, 0.5, 0.3, vector(0.0, 2.0))
    stage.happens("cloud", Received(65.0, gateway_address(1), m.Report(1, 99, (late,))))
    gradients = stage.cloud.state.association.gradients
    assert gradients is not None
    np.testing.assert_allclose(gradients.gradient(2), [2**0.5], rtol=1e-6)


def test_a_sketch_needs_no_warm_up_and_no_basis() -> None:
    sketch = CountSketch(5, 1)
    stage = Stage(gateway={"gradient": "update", "sketch": sketch}, cloud={"gradient": "update", "sketch": sketch})
    stage.begin(0, 0, 1)
    assert all(message.basis is None for message in stage.sent if isinstance(message, m.GlobalModel | m.Train))
    stage.returns("d0", (0.5, 1.0), at=100)
    device_table = stage.gateways[0].state.device_table
    assert device_table.gradients is not None
    np.testing.assert_allclose(
        device_table.gradients.gradient(device_table.slot_of[0]), sketch.project(vector(-1.0, -2.0)), rtol=1e-6
    )
    stage.returns("d1", (0, 0), at=110)
    upload = stage.deliver("cloud", m.Upload, at=120)
    assert traffic(upload).gradient == 2 * 4
    assert stage.cloud.state.association.gradients is not None
    assert stage.cloud.state.association.gradients.known.tolist() == [True, True, False]


def test_a_device_with_a_sketch_sends_its_gradient_compressed_from_the_first_job_on() -> None:
    sketch = CountSketch(5, 3)
    device = DeviceNode(sketch)
    job = JobId(0, 1, 1)
    device.handle(Received(0.0, gateway_address(0), m.Train(job, vector(0, 0), 0, 0, 1)))
    gradient = np.arange(8, dtype=np.float32)
    (send,) = device.handle(Trained(9.0, job, TrainingResult(vector(1, 1), 10, 5, 0.5, 0.3, gradient)))
    assert isinstance(send, Send)
    assert isinstance(send.message, m.Update)
    assert send.message.compressed
    np.testing.assert_array_equal(send.message.gradient, sketch.project(gradient))
    # The projection is part of its state: it survives a restart.
    other = DeviceNode()
    other.restore(device.snapshot())
    assert other.state.projection == sketch


def test_without_gradients_nothing_is_compressed() -> None:
    stage = Stage(gateway={"sketch": CountSketch(5, 1)})
    stage.begin(0, 0, 1)
    stage.trains("d0", (1, 1), at=100)
    (update,) = stage.waiting("g0", m.Update)
    assert (update.gradient, update.compressed) == (None, False)
    assert stage.gateways[0].state.device_table.gradients is None
