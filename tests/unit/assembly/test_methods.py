"""The packaged methods: the four choices of each, and the settings that follow from them."""

from __future__ import annotations

import math

import pytest

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.loading import available, compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import SettingsError

CHOICES = {
    # method: cloud, gateway, selection, association, warm-up
    "async-hfl": ("mix", "mix", "utility-knapsack", "balanced-utility", True),
    "async-hfl-plus": ("average", "periods", "random", "even", False),
    "async-hfl-selection": ("mix", "mix", "utility-knapsack", "random", True),
    "async-hfl-association": ("mix", "mix", "random", "balanced-utility", True),
    "async-hl": ("mix", "mix", "high-loss", "random", True),
    "async-random": ("mix", "mix", "random", "random", False),
    "async-st": ("mix", "mix", "short-latency", "random", True),
    "async-age": ("mix", "mix", "longest-idle", "random", False),
    "two-tier": ("mix", "relay", "random", "random", False),
    "semi-async": ("average", "periods", "random", "random", False),
    "fedbuff": ("average", "buffer", "random", "random", False),
    "rfl-ha": ("mix", "rounds", "random", "re-clustering", True),
    "sync-random": ("average", "rounds", "random", "random", False),
    "sync-tifl": ("average", "rounds", "tifl", "random", True),
    "sync-oort": ("average", "rounds", "oort", "random", False),
    "sync-divfl": ("average", "rounds", "divfl", "random", True),
}


def small(method: str, overrides: list[str]) -> Settings:
    """A small run that learns nothing."""
    return compose(
        method=method, task="null", network="uniform", overrides=["task.devices=12", "network.gateways=2", *overrides]
    ).settings


def test_the_methods_are_complete() -> None:
    assert available("method").keys() == CHOICES.keys()


@pytest.mark.parametrize("method", CHOICES)
def test_the_four_choices(method: str) -> None:
    found = compose(method=method).settings
    choices = (
        found.cloud.aggregation,
        found.gateway.aggregation,
        found.selection.policy,
        found.association.policy,
        found.warmup.enabled,
    )
    assert choices == CHOICES[method]
    if found.gateway.aggregation == "buffer":
        assert (found.gateway.epochs, found.gateway.buffer_size, found.device.proximal_weight) == (1, 10, 0.0)
    elif found.gateway.aggregation in ("rounds", "periods"):
        # Five rounds or periods per upload (ours: one), and no proximal term, even if the task has one.
        assert (found.gateway.epochs, found.device.proximal_weight) == (1 if method == "async-hfl-plus" else 5, 0.0)
    else:
        assert (found.gateway.epochs, found.device.proximal_weight) == (10, 0.1)


def test_other_settings_of_methods() -> None:
    plus = compose(method="async-hfl-plus").settings
    assert (plus.gateway.weighting, plus.gateway.period, plus.gateway.refill) == ("share", "auto", "immediate")
    assert (plus.staleness.kind, plus.association.max_latency_ratio) == ("constant", 2.0)
    assert compose(method="two-tier").settings.aggregations_per_epoch == 10
    assert compose(method="rfl-ha").settings.association.period == 10
    assert compose(method="semi-async").settings.gateway.period == 100.0


@pytest.mark.parametrize(
    ("preset", "limits"),
    [("tight", (3.0, "75%", 1.3)), ("paper", (math.inf, math.inf, 1)), ("authors", (math.inf, math.inf, 1))],
)
def test_rounds_end_early_except_in_the_paper_presets(preset: str, limits: tuple[object, ...]) -> None:
    gateway = compose(method="sync-random", preset=preset).settings.gateway
    assert (gateway.round_patience, gateway.round_deadline, gateway.over_selection) == limits


@pytest.mark.parametrize(
    ("deadline", "seconds", "quantile"),
    [("75%", 0.0, 0.75), ("100%", 0.0, 1.0), ("200", 200.0, 0.0), ("inf", math.inf, 0.0)],
)
def test_a_deadline_in_seconds_or_as_a_quantile(deadline: str, seconds: float, quantile: float) -> None:
    world = build(small("sync-random", [f"gateway.round_deadline={deadline}"]), seed=1).world
    assert {gateway.config.round_deadline for gateway in world.gateways} == {seconds}
    assert world.cloud.config.reference_quantile == quantile


@pytest.mark.parametrize(("participants", "share"), [("auto", 0.0), ("3", 3 / 12), ("25%", 0.25)])
def test_participants_as_a_number_or_a_share(participants: str, share: float) -> None:
    settings = small("sync-random", [f"selection.participants={participants}"])
    assert settings.task.devices == 12
    assert build(settings, seed=1).world.gateways[0].config.participation == share


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["gateway.round_deadline=fast"], "'fast' is neither a number of seconds"),
        (["gateway.round_deadline=120%"], "nor a quantile"),
        (["selection.participants=some"], "neither a number of devices"),
        (["selection.participants=1000"], "of 12"),
        (["selection.participants=3", "selection.policy=utility-knapsack"], "limited by the bandwidth alone"),
    ],
)
def test_deadlines_and_participants_that_mean_nothing(overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        small("sync-random", overrides)


@pytest.mark.parametrize(
    ("overrides", "quorum"),
    [
        ([], 0.5),
        (["utility.compression=sketch"], 0.5),
        (["utility.compression=pca"], 1.0),
        (["utility.compression=pca", "warmup.quorum=0.8"], 0.8),
    ],
)
def test_pca_waits_for_all_devices_by_default(overrides: list[str], quorum: float) -> None:
    settings = small("async-hfl", ["task.model_size=300", *overrides])
    assert build(settings, seed=1).world.cloud.config.warmup_quorum == quorum


@pytest.mark.parametrize(
    ("method", "compression", "components", "sketched"),
    [
        ("async-hfl", "none", 0, False),
        ("async-hfl", "pca", 30, False),
        ("async-hfl", "sketch", 0, True),
        ("async-random", "sketch", 0, False),  # no policy uses gradients
        ("sync-tifl", "pca", 0, False),
    ],
)
def test_gradients_are_compressed_only_if_a_policy_uses_them(
    method: str, compression: str, components: int, sketched: bool
) -> None:
    overrides = ["task.model_size=300", f"utility.compression={compression}"]
    world = build(small(method, overrides), seed=1).world
    assert world.cloud.config.components == components
    assert {gateway.config.sketch is not None for gateway in world.gateways} == {sketched}
    assert (world.cloud.config.sketch is not None) == sketched


@pytest.mark.parametrize(
    ("method", "overrides", "words"),
    [
        ("two-tier", ["cloud.aggregation=average"], "relays send single device updates"),
        ("async-hfl", ["utility.compression=pca", "warmup.enabled=false"], "fitted to the gradients of the warm-up"),
        ("async-hfl", ["utility.compression=sketch", "utility.sketch_size=300"], "only 16 numbers"),
    ],
)
def test_contradicting_settings(method: str, overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build(small(method, overrides), seed=1)
