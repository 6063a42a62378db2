"""The layers of settings: defaults < task < network < preset < method < FILE < --set; and settings in a manifest."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from async_hfl.assembly.settings.loading import (
    KINDS,
    Layer,
    as_table,
    available,
    bandwidth_share,
    compose,
    layers,
    parse_override,
    resolve,
    settings_from,
)
from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.core.errors import SettingsError

CHOICE = RunChoice(task="digits", network="nycmesh-paper", preset="authors", method="two-tier")
ORDER = [
    "task digits",
    "network nycmesh-paper",
    "preset authors",
    "preset authors, task digits",
    "method two-tier",
    "mine.toml",
    "--set device.epochs=7",
]


def given() -> list[Layer]:
    return layers(CHOICE, {"device": {"epochs": 6}}, "mine.toml", ["device.epochs=7"])


def test_the_order_of_the_layers() -> None:
    assert [source for source, _ in given()] == ORDER


@pytest.mark.parametrize(("lower", "higher"), list(itertools.pairwise(range(len(ORDER)))))
def test_each_layer_overrides_the_one_before(lower: int, higher: int) -> None:
    """The later of two adjacent layers with the same key wins, whatever earlier layers have."""
    stack = [(source, {key: dict(values) for key, values in table.items()}) for source, table in given()][: higher + 1]
    for place in range(lower + 1):
        stack[place][1].setdefault("staleness", {})["exponent"] = 0.25
    stack[higher][1].setdefault("staleness", {})["exponent"] = 0.75
    assert resolve(CHOICE, stack).staleness.exponent == 0.75
    assert resolve(CHOICE, stack[:higher]).staleness.exponent == 0.25


def test_task_above_defaults() -> None:
    assert compose(task="null").settings.device.batch_size == Settings().device.batch_size == 100
    assert compose(task="digits").settings.device.batch_size == 32


def test_network_above_defaults() -> None:
    found = compose(network="uniform").settings
    assert found.network.name == "uniform"
    assert found.network.gateways == 6


def test_preset_above_task_and_its_table_for_the_task_above_that() -> None:
    assert compose().settings.gateway.bandwidth == "50%"
    assert compose(preset="authors").settings.gateway.bandwidth == "35%"
    assert compose(preset="paper").settings.gateway.bandwidth == "323%"
    assert compose(preset="authors").settings.warmup.charge is False


def test_method_above_preset() -> None:
    assert compose(preset="authors", method="async-hfl").settings.warmup.enabled is True
    assert compose(preset="authors", method="async-random").settings.warmup.enabled is False


def test_file_above_method_and_set_above_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[run]\nmethod = 'two-tier'\nseed = 9\n[warmup]\nenabled = true\n[gateway]\nepochs = 3\n")
    found = compose(file)
    assert (found.choice.method, found.choice.seed) == ("two-tier", 9)
    assert found.settings.warmup.enabled is True
    assert found.settings.gateway.epochs == 3
    assert found.settings.gateway.aggregation == "relay"
    over = compose(file, overrides=["gateway.epochs=4", "gateway.epochs=5"])
    assert over.settings.gateway.epochs == 5


def test_options_override_the_run_table_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[run]\ntask = 'null'\nmethod = 'two-tier'\nnetwork = 'uniform'\npreset = 'paper'\nseed = 9\n")
    assert compose(file).choice == RunChoice(task="null", method="two-tier", network="uniform", preset="paper", seed=9)
    over = compose(file, task="digits", method="async-hfl", network="nycmesh-paper", preset="tight", seed=0).choice
    assert over == RunChoice(task="digits", method="async-hfl", network="nycmesh-paper", preset="tight", seed=0)


def test_a_file_is_read_as_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes("# größer\n[gateway]\nepochs = 3\n".encode())
    assert compose(file).settings.gateway.epochs == 3


EVERY = list(itertools.product(*(available(kind) for kind in KINDS)))


@pytest.mark.parametrize(("task", "network", "preset", "method"), EVERY)
def test_every_combination_composes_and_survives_a_manifest(task: str, network: str, preset: str, method: str) -> None:
    composed = compose(task=task, network=network, preset=preset, method=method)
    assert (composed.settings.task.name, composed.settings.network.name) == (task, network)
    stored = json.loads(json.dumps(as_table(composed.settings), allow_nan=False))
    assert settings_from(stored) == composed.settings


def test_every_packaged_file_has_a_description() -> None:
    for kind in KINDS:
        for name, description in available(kind).items():
            assert 10 < len(description) < 120, name
            assert "\n" not in description


def test_infinity_survives_a_manifest() -> None:
    settings = compose(method="async-hfl").settings
    assert settings.association.max_latency_ratio == math.inf
    assert as_table(settings)["association"]["max_latency_ratio"] == "inf"
    assert compose(overrides=["association.max_latency_ratio=inf"]).settings.association.max_latency_ratio == math.inf


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("2.5", 2.5),
        ("true", True),
        ("'50%'", "50%"),
        ("50%", "50%"),
        ("my_policy.py:choose", "my_policy.py:choose"),
        (" a b ", "a b"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_values_of_set(text: str, value: Any) -> None:
    assert parse_override(f"gateway.key={text}") == {"gateway": {"key": value}}


@pytest.mark.parametrize("text", ["", "=", "a.b", "a=1", ".b=1", "a.=1", "a.b.c.d=1"])
def test_malformed_set(text: str) -> None:
    with pytest.raises(SettingsError, match=r"write it as section\.key=value"):
        parse_override(text)


def test_bandwidth_is_bytes_per_second_or_a_share() -> None:
    assert bandwidth_share(20_000.0) is None
    assert bandwidth_share("50%") == 0.5
    assert bandwidth_share("323%") == pytest.approx(3.23)
    for wrong in ("fast", "50", "%", "-5%", "0%", "nan%", "inf%"):
        with pytest.raises(SettingsError, match="neither bytes per second"):
            bandwidth_share(wrong)


def test_the_name_of_the_task_is_not_a_setting() -> None:
    with pytest.raises(SettingsError, match=r"network\.name = 'uniform' .*choose another with --network"):
        compose(overrides=["network.name=uniform"])
    assert compose(overrides=["task.name=digits"]).settings.task.name == "digits"


def test_an_unknown_setting_in_a_manifest() -> None:
    table = as_table(compose().settings)
    table["gateway"]["colour"] = "blue"
    with pytest.raises(SettingsError, match=r"unknown setting gateway\.colour in the manifest"):
        settings_from(table)


@pytest.mark.parametrize(
    ("preset", "overrides", "expected"),
    [
        ("tight", [], 600),
        ("tight", ["task.devices=184"], 600),
        ("tight", ["task.devices=100"], "all"),
        ("tight", ["task.devices=100", "task.samples_per_device=600"], 600),
    ],
)
def test_another_number_of_devices_splits_the_whole_training_set(
    preset: str, overrides: list[str], expected: int | str
) -> None:
    settings = compose(task="mnist", preset=preset, overrides=overrides).settings
    assert settings.task.samples_per_device == expected


def test_a_preset_may_give_devices_and_samples() -> None:
    task = compose(task="cifar10", preset="authors").settings.task
    assert (task.devices, task.samples_per_device) == (100, 600)
