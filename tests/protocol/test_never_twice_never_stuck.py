"""Cases in which a run might stall, or count something twice."""

from __future__ import annotations

from protocol_stage import Stage, vector

from async_hfl.core.identifiers import UploadId, gateway_address
from async_hfl.core.learner import Evaluation
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Evaluated, Received
from async_hfl.core.protocol.records import EpochRecord
from async_hfl.nodes.cloud.aggregation.rule import NOTHING, CloudAggregation, Next
from async_hfl.nodes.cloud.context import Cloud


def test_a_late_update_of_a_discarded_job_makes_its_device_available() -> None:
    """d1 times out and its job is discarded with the upload; d0 dies. The run goes on when d1's late update arrives."""
    stage = Stage(gateway={"epochs": 1, "in_flight": "discard"})
    stage.begin(0, 0, 1)
    stage.trains("d1", (1.0, 1.0), at=90)  # finished, but the transfer of its update is slow
    stage.fire("g0", "patience")  # at 500 s: both have timed out
    g0 = stage.gateways[0]
    assert g0.state.active == 0
    stage.returns("d0", (1.0, 1.0), at=510)  # feasible again, mixed, uploaded; d1's open job is discarded
    stage.exchanges("g0", at=520)
    stage.fire("g0", "patience")  # d0 stays silent from now on
    assert (g0.state.phase, g0.state.active) == ("open", 0)
    stage.deliver("g0", m.Update, at=5000)
    assert g0.state.active == 1, "d1 is reachable and idle, so it must be triggered"


class HoldUploads(CloudAggregation):
    """An aggregation rule that holds every upload, as a synchronous round would."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def received(self, cloud: Cloud, upload: m.Upload, staleness: int, at: float) -> Next:
        self.seen.append(str(upload.upload))
        return NOTHING


def test_an_upload_that_is_held_is_not_passed_on_again() -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    rule = HoldUploads()
    stage.cloud.aggregation = rule
    upload = m.Upload(UploadId(0, 1, 1), vector(1.0, 1.0), 0, 2, 2, False, 1, ())
    for at in (100.0, 220.0, 460.0):
        stage.happens("cloud", Received(at, gateway_address(0), upload))
    assert rule.seen == ["u0.1.1"]


def test_evaluations_count_in_the_order_of_their_epochs() -> None:
    stage = Stage(gateway={"epochs": 1})
    stage.begin(0, 0, 1)
    for epoch in (1, 2, 3):
        stage.returns("d2", (1, 1), at=100.0 * epoch)
        stage.exchanges("g1", at=100.0 * epoch + 1)
    for epoch, at in ((3, 400.0), (1, 500.0), (2, 600.0)):
        stage.happens("cloud", Evaluated(at, epoch, Evaluation(epoch / 10, 0.0)))
    assert [(e.epoch, e.at, e.metric) for e in stage.of(EpochRecord)] == [
        (1, 101.0, 0.1),
        (2, 201.0, 0.2),
        (3, 301.0, 0.3),
    ]
