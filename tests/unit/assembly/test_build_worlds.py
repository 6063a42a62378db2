"""Simulations built from settings, for every packaged method and preset."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.loading import available, compose
from async_hfl.core.errors import DataError
from async_hfl.network.bandwidth import demand


@pytest.mark.parametrize("method", available("method"))
@pytest.mark.parametrize("preset", available("preset"))
def test_every_method_builds(method: str, preset: str) -> None:
    settings = compose(task="null", network="uniform", method=method, preset=preset, overrides=["task.devices=12"])
    built = build(settings.settings, 1)
    assert len(built.world.devices) == 12
    assert len(built.world.gateways) == 6
    assert built.bandwidth.rate > 0


def test_bandwidth_as_a_share_and_in_bytes() -> None:
    def bandwidth(text: str) -> tuple[float, float]:
        composed = compose(
            task="null",
            method="async-random",
            network="uniform",
            overrides=["task.devices=12", f"gateway.bandwidth={text}"],
        )
        built = build(composed.settings, 1)
        return built.bandwidth.rate, demand(built.network.links, built.world.model_bytes)

    found, whole = bandwidth("50%")
    assert found == pytest.approx(whole / 2)
    assert bandwidth("1234.5")[0] == 1234.5


@pytest.mark.parametrize(
    ("overrides", "at_gateways", "at_the_cloud"),
    [
        (["selection.policy=random", "association.policy=random"], "none", "none"),
        (["selection.policy=utility-knapsack", "association.policy=random"], "last", "none"),
        (["selection.policy=random", "association.policy=balanced-utility"], "last", "last"),
        (["selection.policy=utility-knapsack", "utility.gradient=update"], "update", "update"),
    ],
)
def test_gradients_are_kept_and_sent_only_if_a_policy_needs_them(
    overrides: list[str], at_gateways: str, at_the_cloud: str
) -> None:
    settings = compose(task="null", network="uniform", method="async-hfl", overrides=overrides).settings
    world = build(settings, 1).world
    assert world.gateways[0].config.gradient == at_gateways
    assert world.cloud.config.gradient == at_the_cloud
    assert world.gateways[0].config.share_gradients == (at_the_cloud != "none")


def test_a_fixed_association_for_another_network_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text('{"3": 0, "12": 1}')
    overrides = ["task.devices=12", "association.policy=fixed", f"association.file={file}"]
    settings = compose(task="null", network="uniform", overrides=overrides).settings
    with pytest.raises(DataError, match=r"table\.json: device 12 is not one of 0\.\.11"):
        build(settings, 1)


def test_the_seed_determines_network_and_initial_model() -> None:
    settings = compose(task="null", network="uniform", overrides=["task.devices=12"]).settings
    one, same, two = build(settings, 1), build(settings, 1), build(settings, 2)
    latency = [built.network.links.expected_latency.tolist() for built in (one, same, two)]
    assert latency[0] == latency[1] != latency[2]
    start = [built.world.cloud.state.weights.tolist() for built in (one, same, two)]
    assert start[0] == start[1] != start[2]
