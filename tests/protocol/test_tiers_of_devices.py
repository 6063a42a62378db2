"""The tiers of devices that the cloud draws and tells every gateway (TiFL)."""

from __future__ import annotations

from protocol_stage import Stage

from async_hfl.core.protocol import messages as m
from async_hfl.decisions.selection.tifl import Tifl
from async_hfl.nodes.gateway.aggregation.rounds import Rounds

# Links d0-g0, d0-g1, d1-g0, d1-g1, d2-g1. In use are d0-g0, d1-g0 and d2-g1.
LATENCY = (40.0, 1.0, 80.0, 2.0, 40.0)


def tiered(deadline: float = 500.0) -> Stage:
    stage = Stage(
        aggregation=Rounds,
        selection=Tifl,
        gateway={"round_deadline": 500.0, "epochs": 2},
        cloud={"tier_rounds": 2, "tier_deadline": deadline},
        latency=LATENCY,
        averages=True,
    )
    stage.begin(0, 0, 1)
    return stage


def tier_in_flight(stage: Stage, gateway: str) -> set[float]:
    return {LATENCY[(0, 2, 4)[device]] for device in stage.in_flight(gateway).values()}


def test_all_gateways_are_told_the_same_draws_and_follow_them() -> None:
    stage = tiered()
    (tiers,) = {model.tiers for model in stage.sent if isinstance(model, m.GlobalModel)}
    assert tiers is not None
    assert tiers.limits == (40.0, 40.0, 40.0, 80.0, 80.0)
    assert [gateway.state.tiers for gateway in stage.gateways] == [tiers, tiers]
    assert tier_in_flight(stage, "g0") == {tiers.limits[tiers.drawn[0]]}
    assert tier_in_flight(stage, "g1") == {40.0}, "its only device, whatever is drawn"
    # The second round takes the second draw.
    (device,) = stage.in_flight("g0").values()
    stage.returns(f"d{device}", (1, 1), at=stage.at + LATENCY[2 * device])
    assert tier_in_flight(stage, "g0") == {tiers.limits[tiers.drawn[1]]}


def test_every_global_model_brings_new_draws() -> None:
    stage = tiered()
    for turn in range(2):
        for device in (*stage.in_flight("g0").values(), *stage.in_flight("g1").values()):
            stage.returns(f"d{device}", (1, 1), at=50.0 + turn)
    for at in (60, 61):
        stage.deliver("cloud", m.Upload, at=at)
    answers = [stage.deliver(gateway, m.Answer, at=70) for gateway in ("g0", "g1")]
    assert answers[0].tiers == answers[1].tiers == stage.cloud.state.tiers.told
    assert stage.cloud.state.tiers.epoch == 1
    assert [gateway.state.tiers for gateway in stage.gateways] == [answers[0].tiers] * 2


def test_slow_devices_are_excluded() -> None:
    """With T_max 60 s d1, which needs 80 s, is in no tier, whatever is drawn."""
    stage = tiered(60.0)
    assert stage.gateways[0].state.tiers is not None
    assert stage.gateways[0].state.tiers.limits == (40.0,) * 5
    assert stage.in_flight("g0") == {1: 0}


def test_without_such_a_policy_no_tiers_are_told() -> None:
    stage = Stage(aggregation=Rounds)
    stage.begin(0, 0, 1)
    assert {model.tiers for model in stage.sent if isinstance(model, m.GlobalModel)} == {None}
