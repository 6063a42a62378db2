"""An old name of a setting gives an error with the new one, wherever it is written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from async_hfl import api
from async_hfl.assembly.settings.loading import as_table, compose, settings_from
from async_hfl.assembly.settings.renamed import REMOVED, SECTIONS, SETTINGS, VALUES
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import SettingsError
from async_hfl.experiments.plans.plan import make_plan

EVERY = [
    ("life.device_up=50", "life is called outages since 0.2.0: write outages.device_up"),
    (
        "association.link_stretch=2.0",
        "association.link_stretch is called association.max_latency_ratio since 0.2.0: "
        "write association.max_latency_ratio",
    ),
    ("engine.ahead='on'", "engine.ahead is called engine.prefetch since 0.2.0: write engine.prefetch"),
    (
        "gateway.carry_staleness='both'",
        "gateway.carry_staleness is called gateway.staleness_clock since 0.2.0: write gateway.staleness_clock",
    ),
    (
        "simulation.charge_solver=1.0",
        "simulation.charge_solver is called simulation.solver_seconds since 0.2.0: write simulation.solver_seconds",
    ),
    (
        "transfer.half=true",
        'transfer.half is called transfer.encoding since 0.2.0: write transfer.encoding = "float16"',
    ),
    (
        "transfer.half=false",
        'transfer.half is called transfer.encoding since 0.2.0: write transfer.encoding = "float32"',
    ),
    (
        "cloud.evaluate_every=20",
        "cloud.evaluate_every is gone since 0.3.0: the model is evaluated at times that are the same for all methods "
        '(evaluation.grid, in seconds); evaluation.grid = "aggregations" evaluates it after every aggregation',
    ),
    (
        "transfer.zstd=true",
        'transfer.zstd is gone since 0.3.0: it saved 8 % of the bytes; transfer.encoding = "int8" saves 75 %',
    ),
    (
        "engine.vectors='card'",
        'engine.vectors = "card" is called "device" since 0.2.0: write engine.vectors = "device"',
    ),
]


def test_every_entry_is_tested() -> None:
    old_values = {f"{setting}={value}" for setting, values in VALUES.items() for value in values}
    tested = [override.replace("'", "").replace("true", "True").replace("false", "False") for override, _ in EVERY]
    assert old_values <= set(tested)
    names = {override.partition("=")[0] for override in tested}
    assert {*SECTIONS, *SETTINGS, *VALUES, *REMOVED} == names - {"life.device_up"} | {"life"}


def test_new_names_exist_and_old_ones_do_not() -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    assert not set(SECTIONS) & set(sections)
    assert set(SECTIONS.values()) <= set(sections)
    for old, new in SETTINGS.items():
        for path, exists in ((old, False), (new, True)):
            section, key = path.split(".")
            assert (key in sections[section].__struct_fields__) is exists
    for old in REMOVED:
        section, key = old.split(".")
        assert key not in sections[section].__struct_fields__


@pytest.mark.parametrize(("override", "message"), EVERY)
def test_with_set(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        compose(overrides=[override])
    assert str(error.value) == f"--set {override}: {message}"


@pytest.mark.parametrize(("override", "message"), EVERY)
def test_in_a_run_file(override: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    section, _, setting = override.partition(".")
    file.write_text(f"[{section}]\n{setting}\n")
    with pytest.raises(SettingsError) as error:
        compose(file)
    assert str(error.value) == f"{file}: {message}"


@pytest.mark.parametrize(("override", "message"), EVERY)
def test_in_a_plan_and_from_python(override: str, message: str, tmp_path: Path) -> None:
    key, _, text = override.partition("=")
    value = {"true": True, "false": False}.get(text, text.strip("'"))
    for varied in ({"set": {key: value}}, {"vary": {key: [value]}}):
        with pytest.raises(SettingsError, match="since") as error:
            make_plan({"tasks": "null", **varied}, "plan", "plan")
        assert str(error.value).endswith(message)
    with pytest.raises(SettingsError) as error:
        api.run(task="null", network="uniform", overrides=[override], out=tmp_path / "run")
    assert str(error.value).endswith(message)


def test_in_a_manifest() -> None:
    table = as_table(compose().settings)
    table["life"] = table.pop("outages")
    with pytest.raises(SettingsError, match="the manifest: life is called outages since"):
        settings_from(table)


def test_a_section_without_settings() -> None:
    with pytest.raises(SettingsError, match=r"life is called outages since 0\.2\.0: write outages$"):
        settings_from({"life": {}})
    with pytest.raises(SettingsError, match=r"life is called outages since 0\.2\.0: write outages$"):
        settings_from({"life": 3})


def test_a_manifest_may_contain_a_removed_setting_that_had_no_effect() -> None:
    assert settings_from({"transfer": {"zstd": False, "encoding": "float16"}}).transfer.encoding == "float16"
    with pytest.raises(SettingsError, match=r"transfer\.zstd is gone since 0\.3\.0"):
        settings_from({"transfer": {"zstd": True}})
