"""Updates of devices as changes in int8, computed by hand: what is sent, and what rounding leaves for the next one.

A vector of two numbers has one block. With the largest magnitude in [1, 127/64] its scale is 1/64: x is sent as a code
k, either floor(64 x) or one more, and x - k / 64 is left.
"""

from __future__ import annotations

import numpy as np
import pytest
from protocol_stage import Stage, vector

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import JobId, gateway_address
from async_hfl.core.learner import TrainingResult
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, StartTraining
from async_hfl.core.protocol.events import Received, Trained
from async_hfl.core.weights import Weights
from async_hfl.nodes.device import DeviceNode

INT8 = ModelCodec("int8", "int8", size=2, trained=2, seed=3)
HEADER = bytes((2, 0, 0, 0, 2, 0, 0, 0))
"""Two values; int8."""


def read(encoded: object) -> Weights:
    """Return the values of an encoded vector of two numbers, without the codec."""
    assert isinstance(encoded, np.ndarray)
    assert encoded.dtype == np.uint8
    assert encoded[:8].tobytes() == HEADER
    assert len(encoded) == 11
    exponent, codes = int(encoded[8:9].view(np.int8)[0]), encoded[9:].view(np.int8)
    return (codes * 2.0**exponent).astype(np.float32)


def begin(device: DeviceNode, job: JobId, weights: Weights, *, warmup: bool = False, version: int = 1) -> Weights:
    """Give the device a job; return the model that it trains from."""
    train = m.Train(job, INT8.encode_model(weights, key=job.number), 0, 0, version, warmup=warmup)
    effects = device.handle(Received(0.0, gateway_address(job.gateway), train))
    (start,) = (effect for effect in effects if isinstance(effect, StartTraining))
    return np.asarray(start.weights)


def finish(device: DeviceNode, job: JobId, *result: float) -> m.Update:
    (send,) = device.handle(Trained(1.0, job, TrainingResult(vector(*result), 10, 5, 0.5, 0.25)))
    assert isinstance(send, Send)
    assert isinstance(send.message, m.Update)
    return send.message


def left(device: DeviceNode) -> list[float]:
    error = device.state.rounding_error
    assert error is not None
    return np.asarray(error).tolist()


def with_an_error() -> DeviceNode:
    """Return a device with one update behind it, whose rounding error is not zero."""
    device = DeviceNode(codec=INT8)
    begin(device, JobId(0, 1, 1), vector(0, 0))
    finish(device, JobId(0, 1, 1), 1.0, 0.01)
    assert left(device)[0] == 0.0
    assert left(device)[1] != 0.0
    return device


def test_a_device_sends_its_change_since_the_decoded_model_and_keeps_what_was_left() -> None:
    device = DeviceNode(codec=INT8)
    start = begin(device, JobId(0, 1, 1), vector(1.0, 0.3))
    # 64 (1, 0.3) = (64, 19.2).
    assert start.tolist() in ([1.0, 19 / 64], [1.0, 20 / 64])
    assert device.state.base is not None
    np.testing.assert_array_equal(device.state.base, start)

    # The change (1.5, 0.51) - start is (0.5, 0.51 - start[1]): the largest magnitude is 0.5, the scale 1/128.
    change = read(finish(device, JobId(0, 1, 1), 1.5, 0.51).weights)
    meant = np.float32(0.51) - start[1]
    assert change[0] == 0.5
    assert change[1] in (np.floor(128 * meant) / 128, np.floor(128 * meant) / 128 + 1 / 128)
    assert left(device) == [0.0, float(meant - change[1])]
    assert device.state.base is None
    first = left(device)[1]

    # The next one includes it: (2, 0.25) - (1, 0.25) + (0, first) has the scale 1/64.
    start = begin(device, JobId(0, 1, 2), vector(1.0, 0.25))
    assert start.tolist() == [1.0, 0.25]
    change = read(finish(device, JobId(0, 1, 2), 2.0, 0.25).weights)
    assert change[0] == 1.0
    assert change[1] in (np.floor(64 * first) / 64, np.floor(64 * first) / 64 + 1 / 64)
    assert left(device) == [0.0, float(np.float32(first) - change[1])]


def test_all_changes_together_are_what_was_meant_but_for_the_last_error() -> None:
    device = DeviceNode(codec=INT8)
    meant, received = np.zeros(2), np.zeros(2)
    for number in range(1, 200):
        start = begin(device, JobId(0, 1, number), vector(number, -1.0))
        result = vector(number + 1.0, -1.0 + 0.001)
        received += read(finish(device, JobId(0, 1, number), *result.tolist()).weights)
        meant += result.astype(np.float64) - start
    assert meant[1] > 0.19
    np.testing.assert_allclose(received + left(device), meant, rtol=0, atol=1e-5)
    assert abs(left(device)[1]) < 1 / 64


def test_a_warm_up_job_leaves_the_error_for_the_next_update() -> None:
    device = with_an_error()
    before = left(device)
    start = begin(device, JobId(0, 1, 2), vector(0, 0), warmup=True)
    update = finish(device, JobId(0, 1, 2), 1.0, 0.5)
    assert update.warmup
    # 64 (1, 0.5) is a whole number of units; with the error of the first update it would not be.
    assert read(update.weights).tolist() == [1.0, 0.5]
    assert start.tolist() == [0.0, 0.0]
    assert left(device) == before
    assert device.state.base is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_change_that_is_not_finite_is_marked_and_leaves_the_error(value: float) -> None:
    device = with_an_error()
    before = left(device)
    begin(device, JobId(0, 1, 2), vector(0, 0))
    marked = finish(device, JobId(0, 1, 2), 1.0, value).weights
    assert isinstance(marked, np.ndarray)
    assert marked[8:].tolist() == [127, 0, 0]
    assert left(device) == before
    begin(device, JobId(0, 1, 3), vector(0, 0))
    change = read(finish(device, JobId(0, 1, 3), 1.0, 0.0).weights)
    assert left(device) == [0.0, float(np.float32(before[1]) - change[1])]


def test_the_job_of_a_change_that_is_not_finite_ends_as_refused() -> None:
    stage = Stage(codec=INT8)
    stage.begin(0, 0, 1)
    model = np.array(stage.model("g0"))
    stage.returns("d0", (1.0, float("nan")), at=100)
    assert [(str(job.job), job.reason) for job in stage.jobs()] == [("g0.1.1", "refused")]
    np.testing.assert_array_equal(np.asarray(stage.model("g0")), model)
    # The device is triggered again, and its next update is used.
    stage.returns("d0", (1.0, 0.5), at=200)
    assert [job.reason for job in stage.jobs()] == ["refused", "aggregated"]


def test_a_superseded_job_changes_nothing() -> None:
    device = with_an_error()
    before = left(device)
    begin(device, JobId(0, 1, 2), vector(5.0, 5.0))
    start = begin(device, JobId(0, 1, 3), vector(1.0, 0.25))
    late = TrainingResult(vector(9.0, 9.0), 10, 5, 0.5, 0.25)
    assert device.handle(Trained(1.0, JobId(0, 1, 2), late)) == []
    assert left(device) == before
    # The change of the newer job is counted from its own model.
    change = read(finish(device, JobId(0, 1, 3), 2.0, 0.25).weights)
    assert start.tolist() == [1.0, 0.25]
    assert change[0] == 1.0
    assert left(device) == [0.0, float(np.float32(before[1]) - change[1])]


def test_a_device_that_moves_keeps_its_error() -> None:
    device = with_an_error()
    before = left(device)
    begin(device, JobId(1, 1, 1), vector(0, 0), version=2)
    update = finish(device, JobId(1, 1, 1), 1.0, 0.0)
    assert update.job.gateway == 1
    assert left(device) == [0.0, float(np.float32(before[1]) - read(update.weights)[1])]


def test_the_error_survives_a_restart_of_the_device() -> None:
    device, restarted = with_an_error(), DeviceNode(codec=INT8)
    begin(device, JobId(0, 1, 2), vector(1.0, 0.3))
    restarted.restore(device.snapshot())
    found = [finish(node, JobId(0, 1, 2), 1.2, 0.34).weights for node in (device, restarted)]
    np.testing.assert_array_equal(found[0], found[1])
    assert left(device) == left(restarted)
