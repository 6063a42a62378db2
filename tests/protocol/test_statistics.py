"""Running statistics under every built-in rule, computed by hand: models of one trained number and one variance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protocol_stage import Stage, assert_close, vector

from async_hfl.assembly.build.aggregation_rules import cloud_rule
from async_hfl.core.protocol import messages as m
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation


def stage_of(
    aggregation: Callable[[], GatewayAggregation] | None = None, averages: bool = False, **gateway: Any
) -> Stage:
    chosen = {} if aggregation is None else {"aggregation": aggregation}
    rules = {"gradient_size": 1, **gateway}
    stage = Stage(**chosen, averages=averages, gateway=rules, cloud={"gradient_size": 1}, weights=vector(0, 1))
    stage.begin(0, 0, 1)
    return stage


@pytest.mark.parametrize(("drag", "trained"), [(0.0, 28 / 15), (0.5, 26.4 / 15), (1.0, 24.8 / 15)])
def test_mix_has_drag_one_for_a_variance(drag: float, trained: float) -> None:
    stage = stage_of(drag=drag)
    stage.returns("d0", (2, 0.5), at=100)
    # Both start from (0, 1). Weight 0.8 / 2: 0.4 (2) and 1 + 0.4 (0.5 - 1).
    assert_close(stage.model("g0"), (0.8, 0.8))
    stage.returns("d1", (4, 0), at=120)
    # Weight 0.8 / 3: 0.8 + 0.8 / 3 (4 - 0) + drag 0.8 / 3 (0 - 0.8), and 0.8 + 0.8 / 3 (0 - 0.8).
    assert_close(stage.model("g0"), (trained, 8.8 / 15))
    # Weight 0.6 / 2 at the cloud: 0.3 of it, and 0.7 + 0.3 8.8 / 15.
    stage.deliver("cloud", m.Upload, at=130)
    assert_close(stage.cloud.state.weights, (0.3 * trained, 0.876))


def test_periods_average_a_variance() -> None:
    stage = stage_of(Periods, period=100.0)
    stage.returns("d0", (3, 0.5), at=50)
    stage.fire("g0", "aggregation")
    assert_close(stage.model("g0"), (3, 0.5))
    stage.returns("d0", (3, 0.25), at=120, samples=10)  # from (3, 0.5), age 0
    stage.returns("d1", (8, 0), at=130, samples=30)  # from (0, 1), age 1
    stage.fire("g0", "aggregation")
    # Weights 1/4 and 3/4 x 1/2: 3 + 3/8 (8 - 0), and 0.5 + 1/4 (0.25 - 0.5) + 3/8 (0 - 0.5).
    assert_close(stage.model("g0"), (6, 0.25))


def test_rounds_and_the_clouds_average_are_averages_of_everything() -> None:
    stage = stage_of(Rounds, averages=True, epochs=1)
    stage.returns("d0", (1, 0.5), at=100, samples=30)
    stage.returns("d1", (5, 0.1), at=100, samples=10)
    # (30 (1, 0.5) + 10 (5, 0.1)) / 40.
    assert_close(stage.model("g0"), (2, 0.4))
    stage.deliver("cloud", m.Upload, at=100)
    stage.returns("d2", (7, 0.9), at=100, samples=10)
    stage.deliver("cloud", m.Upload, at=110)
    # (40 (2, 0.4) + 10 (7, 0.9)) / 50.
    assert_close(stage.cloud.state.weights, (3, 0.5))


def test_relayed_variances_are_mixed_by_the_cloud() -> None:
    stage = stage_of(Relay)
    stage.returns("d0", (2, 0.5), at=100)
    stage.returns("d1", (4, 0), at=100)
    stage.deliver("cloud", m.Upload, at=110)
    # Weight 0.6 / 2: 0.3 (2), and 0.7 + 0.3 0.5.
    assert_close(stage.cloud.state.weights, (0.6, 0.85))
    stage.deliver("cloud", m.Upload, at=120)
    # Weight 0.6 / 3: 0.8 0.6 + 0.2 4, and 0.8 0.85.
    assert_close(stage.cloud.state.weights, (1.28, 0.68))


def test_the_momentum_of_the_example_leaves_variances_alone() -> None:
    stage = stage_of(Relay)
    example = Path(__file__).parents[2] / "examples/own_cloud_rule.py"
    stage.cloud.aggregation = cloud_rule(f"{example}:Momentum").make()
    stage.returns("d0", (2, 0.5), at=100)
    stage.returns("d1", (4, 0), at=100)
    stage.deliver("cloud", m.Upload, at=110)
    stage.deliver("cloud", m.Upload, at=120)
    # As above, and 0.3 times the first step, 0.6, for the trained number.
    assert_close(stage.cloud.state.weights, (1.46, 0.68))
