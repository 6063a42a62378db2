"""A buffer at a gateway (FedBuff), computed by hand: d0 and d1 belong to g0, d2 to g1; Z = 2 buffers."""

from __future__ import annotations

from typing import Any

from protocol_stage import Stage, assert_close

from async_hfl.core.protocol import messages as m
from async_hfl.nodes.gateway.aggregation.buffer import Buffer


def buffered(**gateway: Any) -> Stage:
    """K = 3 in the whole network: 2 at g0, 1 at g1."""
    stage = Stage(aggregation=Buffer, gateway={"buffer_share": 1.0, **gateway})
    stage.begin(0, 0, 1)
    return stage


def ends(stage: Stage) -> list[tuple[str, str, float, int, float]]:
    return [(str(j.job), j.reason, j.at, j.staleness, round(j.weight, 6)) for j in stage.jobs()]


def test_a_full_buffer_makes_a_model_and_devices_are_triggered_at_once() -> None:
    stage = buffered()
    stage.returns("d0", (2, 4), at=100, samples=30)
    # One update of two: nothing is aggregated, and the idle device trains again from the same model.
    assert_close(stage.model("g0"), (0, 0))
    assert stage.in_flight("g0") == {2: 1, 3: 0}
    assert_close(stage.waiting("d0", m.Train)[-1].weights, (0, 0))
    stage.returns("d1", (4, -2), at=120, samples=10)
    # Half of each change, whatever the samples.
    assert_close(stage.model("g0"), (3, 1))
    assert ends(stage) == [("g0.1.1", "aggregated", 120, 0, 0.5), ("g0.1.2", "aggregated", 120, 0, 0.5)]
    assert_close(stage.waiting("d1", m.Train)[-1].weights, (3, 1))
    # One of the next two was sent before this model was made: 1 model old, s(1) = 1/2, and its change is (2, 0).
    stage.returns("d0", (2, 0), at=200)
    stage.returns("d1", (5, 3), at=220)
    assert_close(stage.model("g0"), (3 + 0.25 * 2 + 0.5 * 2, 1 + 0.5 * 2))
    assert ends(stage)[2:] == [("g0.1.3", "aggregated", 220, 1, 0.25), ("g0.1.4", "aggregated", 220, 0, 0.5)]
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.updates, upload.base_epoch, upload.early) == (4, 0, False)


def test_each_gateway_waits_for_its_part() -> None:
    stage = buffered()
    stage.returns("d2", (6, 6), at=100)
    assert_close(stage.model("g1"), (6, 6))
    # With few in the whole network, one is enough everywhere.
    stage = buffered(buffer_share=0.1)
    stage.returns("d0", (6, 6), at=100)
    assert_close(stage.model("g0"), (6, 6))


def test_updates_that_wait_in_the_buffer_are_kept_over_an_upload() -> None:
    stage = buffered(epochs=1)
    stage.returns("d0", (2, 2), at=100)
    stage.returns("d1", (2, 2), at=110)
    assert stage.gateways[0].state.phase == "uploading"
    stage.returns("d0", (8, 0), at=130)
    stage.exchanges("g0", at=140)
    # The cloud mixes 0.6 x 1/2 of (2, 2). The update that arrived meanwhile waits for another.
    assert_close(stage.model("g0"), (0.6, 0.6))
    assert [held.update.samples for held in stage.gateways[0].state.buffer] == [10]
    assert len(stage.in_flight("g0")) == 2


def test_an_update_that_is_too_old_is_dropped_on_arrival() -> None:
    stage = buffered(buffer_share=0.1, max_staleness=0, epochs=5)
    stage.returns("d0", (6, 6), at=100)
    stage.returns("d1", (9, 9), at=110)
    assert ends(stage)[-1] == ("g0.1.2", "stale", 110, 1, 0.0)
    assert_close(stage.model("g0"), (6, 6))
