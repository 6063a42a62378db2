"""The quantile of all round latencies that the cloud tells every gateway, and the period derived from it, by hand."""

from __future__ import annotations

from protocol_stage import Stage, assert_close

from async_hfl.core.protocol import messages as m
from async_hfl.nodes.gateway.aggregation.periods import Periods

# Links d0-g0, d0-g1, d1-g0, d1-g1, d2-g1. In use are d0-g0, d1-g0 and d2-g1.
LATENCY = (40.0, 1.0, 80.0, 2.0, 400.0)


def timed(quantile: float = 0.5) -> Stage:
    stage = Stage(
        aggregation=Periods,
        gateway={"period_share": 0.5, "epochs": 1},
        cloud={"reference_quantile": quantile},
        latency=LATENCY,
        averages=True,
    )
    stage.begin(0, 0, 1)
    return stage


def test_every_gateway_is_told_the_quantile_of_the_links_in_use() -> None:
    for quantile, reference in ((0.25, 40.0), (0.5, 80.0), (0.9, 400.0)):
        stage = timed(quantile)
        assert [gateway.state.reference_latency for gateway in stage.gateways] == [reference, reference]
        assert {model.reference_latency for model in stage.sent if isinstance(model, m.GlobalModel)} == {reference}


def test_a_period_is_a_share_of_it_at_every_gateway() -> None:
    stage = timed()
    assert (stage.timers["g0", "aggregation"], stage.timers["g1", "aggregation"]) == (40.0, 40.0)


def test_measured_latencies_change_it_and_the_answer_tells() -> None:
    stage = timed()
    stage.returns("d0", (1, 1), at=20)
    stage.returns("d1", (1, 1), at=30)  # measured: 30 s
    for gateway in ("g0", "g1"):
        stage.fire(gateway, "aggregation")
    for at in (50, 60):
        stage.deliver("cloud", m.Upload, at=at)
    # The rounds are 20, 30 and 400 s now. Each gateway's next period begins when it has the answer.
    for gateway, at in (("g0", 70), ("g1", 80)):
        assert stage.deliver(gateway, m.Answer, at=at).reference_latency == 30.0
        assert stage.timers[gateway, "aggregation"] == at + 15.0
    assert_close(stage.model("g0"), (1, 1))


def test_without_a_quantile_nothing_is_told() -> None:
    stage = timed(0.0)
    assert {model.reference_latency for model in stage.sent if isinstance(model, m.GlobalModel)} == {0.0}
