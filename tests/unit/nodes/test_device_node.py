"""A device node alone: one job at a time, and an answer to every job."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, gateway_address
from async_hfl.core.learner import TrainingResult
from async_hfl.core.protocol.effects import Effect, Send, StartTraining, StopTraining
from async_hfl.core.protocol.events import Received, Returned, Started, Trained
from async_hfl.core.protocol.messages import Alive, Finish, JobDropped, Probe, Train, Update
from async_hfl.core.weights import frozen
from async_hfl.nodes.device import DeviceNode

WEIGHTS = frozen(np.array([1, 2], np.float32))
RESULT = TrainingResult(frozen(np.array([3, 4], np.float32)), 60, 15, 0.5, 0.3, np.array([5.0], np.float32))


def train(device: DeviceNode, job: JobId, at: float = 0.0, version: int = 1, transfer_s: float = 0.0) -> list[Effect]:
    message = Train(job, WEIGHTS, 4, 2, version)
    return device.handle(Received(at, gateway_address(job.gateway), message, transfer_s))


def dropped(job: JobId, version: int = 1) -> Send:
    return Send(gateway_address(job.gateway), JobDropped(job, "superseded", version))


def test_a_job_is_trained_and_its_times_are_reported() -> None:
    device = DeviceNode()
    assert device.handle(Started(0.0)) == []
    job = JobId(3, 1, 7)
    assert train(device, job, at=10.0, transfer_s=2.5) == [StartTraining(job, WEIGHTS)]
    (send,) = device.handle(Trained(40.0, job, RESULT, training_s=30.0))
    assert isinstance(send, Send)
    update = send.message
    assert isinstance(update, Update)
    assert send.to == gateway_address(3)
    assert (update.job, update.download_s, update.training_s) == (job, 2.5, 30.0)
    assert (update.samples, update.steps, update.loss, update.squared_loss) == (60, 15, 0.5, 0.3)
    assert update.weights is RESULT.weights
    assert update.gradient is RESULT.gradient


def test_a_newer_job_supersedes_the_current_one() -> None:
    device = DeviceNode()
    old, new = JobId(0, 1, 1), JobId(0, 1, 2)
    train(device, old)
    assert train(device, new) == [StopTraining(old), dropped(old), StartTraining(new, WEIGHTS, 1)]
    # The old job finishes after all: its result is ignored.
    assert device.handle(Trained(5.0, old, RESULT)) == []
    assert len(device.handle(Trained(6.0, new, RESULT))) == 1


def test_between_gateways_the_later_arrival_is_the_newer() -> None:
    device = DeviceNode()
    first, second = JobId(0, 1, 9), JobId(1, 1, 1)
    train(device, first)
    assert train(device, second) == [StopTraining(first), dropped(first), StartTraining(second, WEIGHTS, 1)]


def test_a_repeat_is_handled_once() -> None:
    device = DeviceNode()
    job = JobId(0, 1, 1)
    train(device, job)
    assert train(device, job) == []
    device.handle(Trained(5.0, job, RESULT))
    assert train(device, job) == []


def test_an_older_job_is_declined_so_that_its_gateway_can_end_it() -> None:
    device = DeviceNode()
    train(device, JobId(0, 1, 2))
    assert train(device, JobId(0, 1, 1)) == [dropped(JobId(0, 1, 1))]
    device.handle(Trained(5.0, JobId(0, 1, 2), RESULT))
    assert train(device, JobId(0, 1, 1)) == [dropped(JobId(0, 1, 1))]


def test_a_job_of_an_older_association_is_declined() -> None:
    device = DeviceNode()
    train(device, JobId(0, 1, 1), version=5)
    late = JobId(1, 1, 1)
    assert train(device, late, version=4) == [dropped(late, version=5)]
    assert device.state.job == JobId(0, 1, 1)


def test_job_numbers_start_again_with_an_incarnation() -> None:
    device = DeviceNode()
    train(device, JobId(0, 1, 50))
    assert train(device, JobId(0, 2, 1)) == [
        StopTraining(JobId(0, 1, 50)),
        dropped(JobId(0, 1, 50)),
        StartTraining(JobId(0, 2, 1), WEIGHTS, 1),
    ]


def test_an_outage_kills_the_job() -> None:
    device = DeviceNode()
    job = JobId(2, 1, 1)
    train(device, job, version=3)
    assert device.handle(Returned(9.0)) == [
        StopTraining(job),
        Send(gateway_address(2), JobDropped(job, "device_lost", 3)),
    ]
    assert device.handle(Trained(9.0, job, RESULT)) == []
    # An idle device only reports that it is alive, to the gateway of its last message.
    assert device.handle(Returned(20.0)) == [Send(gateway_address(2), Alive())]
    assert device.handle(Received(30.0, gateway_address(1), Probe())) == [Send(gateway_address(1), Alive())]
    assert device.handle(Returned(40.0)) == [Send(gateway_address(1), Alive())]


def test_a_device_without_a_gateway_sends_nothing_after_an_outage() -> None:
    assert DeviceNode().handle(Returned(1.0)) == []


def test_a_device_goes_on_from_a_snapshot() -> None:
    device, other = DeviceNode(), DeviceNode()
    train(device, JobId(0, 1, 1), at=1.0, version=4, transfer_s=0.5)
    other.restore(device.snapshot())
    assert other.state == device.state
    assert train(other, JobId(0, 1, 1)) == []
    assert train(device, JobId(0, 1, 2), version=4) != []
    assert other.state.job == JobId(0, 1, 1)


def test_an_unknown_message_is_an_error() -> None:
    with pytest.raises(InvariantViolation, match="Finish"):
        DeviceNode().handle(Received(0.0, gateway_address(0), Finish(1)))
