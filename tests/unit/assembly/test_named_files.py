"""Methods and networks by the name of the user's file: settings, mistakes, plans, and runs that are resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import async_hfl
from async_hfl.assembly.runs.shown_network import network_by_name
from async_hfl.assembly.settings.loading import Composed, compose
from async_hfl.core.errors import DataError, SettingsError, UserError
from async_hfl.experiments.plans.plan import make_plan
from async_hfl.experiments.tuning.tuning_file import Place
from async_hfl.reports.tables.run_names import network_name

EXAMPLES = Path(__file__).parents[3] / "examples" / "networks"
METHOD = """
description = "periods, and Adam at the cloud"

[gateway]
aggregation = "periods"
epochs = 2

[cloud]
aggregation = "average"
optimiser = "adam"

[warmup]
enabled = false

[tasks.digits.device]
optimiser = "adamw"
learning_rate = 0.002
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "my.toml").write_text(METHOD)
    for file in EXAMPLES.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path


def written(text: str) -> str:
    Path("wrong.toml").write_text(text)
    return "wrong.toml"


def test_a_method_file_is_a_layer_like_a_packaged_one(place: Path) -> None:
    settings = compose(method="parts/my.toml", task="digits").settings
    assert (settings.gateway.aggregation, settings.gateway.epochs) == ("periods", 2)
    assert (settings.cloud.optimiser, settings.device.optimiser, settings.device.learning_rate) == (
        "adam",
        "adamw",
        0.002,
    )
    other = compose(method="parts/my.toml", task="null", overrides=["gateway.epochs=7"]).settings
    assert (other.device.optimiser, other.gateway.epochs) == ("sgd", 7)


@pytest.mark.parametrize(("name", "devices"), [("campus.csv", 12), ("campus.geojson", 12), ("delays.csv", 6)])
def test_a_network_file_is_the_network(name: str, devices: int, place: Path) -> None:
    by_name = compose(task="null", network=name)
    by_path = compose(task="null", network="file", overrides=[f"network.path={name}"])
    assert by_name.settings == by_path.settings
    assert by_name.choice.network == name
    assert by_name.settings.task.devices == devices


def test_a_run_file_may_name_both(place: Path) -> None:
    file = place / "run.toml"
    file.write_text('[run]\nmethod = "parts/my.toml"\nnetwork = "campus.csv"\ntask = "null"\n[gateway]\nepochs = 3\n')
    found: Composed = compose(file)
    assert (found.choice.method, found.settings.network.path) == ("parts/my.toml", "campus.csv")
    assert (found.settings.gateway.aggregation, found.settings.gateway.epochs) == ("periods", 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gatway]\n", "unknown section 'gatway' in wrong.toml; did you mean gateway?"),
        ("[gateway]\nepoch = 3\n", "unknown setting gateway.epoch in wrong.toml; did you mean gateway.epochs?"),
        ("[gateway]\nepochs = 'x'\n", "gateway.epochs = 'x' (wrong.toml)"),
        ("[gateway]\nepochs = \n", "wrong.toml: not valid TOML: Invalid value (at line 2"),
        ("tasks = 3\n", "wrong.toml: tasks: write the settings for one task as tables"),
        ("[run]\nseed = 3\n", "wrong.toml: [run] is for run files; leave it out, or give the file as a run file"),
        ("[device]\noptimiser = 'adam'\nmomentum = 0.5\n", "device.momentum (wrong.toml): has no effect"),
    ],
)
def test_mistakes_in_a_method_file(text: str, told: str, place: Path) -> None:
    with pytest.raises(SettingsError) as error:
        compose(method=written(text))
    assert told in str(error.value)


def test_files_that_are_not_there(place: Path) -> None:
    with pytest.raises(SettingsError, match=r"no\.toml: no such file; give the path of a method's file, or a name"):
        compose(method="no.toml")
    with pytest.raises(DataError, match=r"no\.csv: no such file; give the path of the network's file, as --network"):
        compose(network="no.csv")
    with pytest.raises(SettingsError, match=r"'my\.txt'; the name of a method's file ends in \.toml"):
        compose(method="my.txt")
    with pytest.raises(SettingsError, match=r"'sites\.txt'; the name of a network's file ends in \.csv, \.geojson or"):
        compose(network="sites.txt")
    with pytest.raises(SettingsError, match=r"network.path = 'campus.csv' \(--set .*\): the network is delays.csv"):
        compose(network="delays.csv", overrides=["network.path=campus.csv"])


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["device.adam_beta1=0.5"], "device.adam_beta1 .* has no effect with device.optimiser = 'sgd'"),
        (["device.optimiser=adamw", "device.momentum=0.5"], "device.momentum .* device.optimiser = 'adamw'"),
        (["cloud.adam_rate=1"], "cloud.adam_rate .* has no effect with cloud.optimiser = 'momentum'"),
        (["cloud.optimiser=adam", "cloud.momentum=0.5"], "cloud.momentum .* cloud.optimiser = 'adam'"),
    ],
)
def test_settings_that_the_optimiser_does_not_read(overrides: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        compose(method="semi-async", overrides=overrides)


def test_a_cloud_that_mixes_has_no_optimiser() -> None:
    with pytest.raises(SettingsError, match=r"cloud.optimiser .* has no effect with cloud.aggregation = 'mix'"):
        compose(method="async-hfl", overrides=["cloud.optimiser=adam"])


def test_plans_and_tunings_name_files(place: Path) -> None:
    table = {"tasks": "null", "methods": ["parts/my.toml", "semi-async"], "networks": ["campus.csv"], "seeds": 1}
    mine, _ = make_plan(table, "plan", "plan").runs
    assert mine.id.startswith("null-my-campus-tight-s1-")
    assert (mine.arguments()["method"], mine.arguments()["network"]) == ("parts/my.toml", "campus.csv")
    assert Place.of("null", "parts/campus.csv", "tight") == Place("null", "campus.csv", "tight")


def test_a_network_file_is_shown(place: Path) -> None:
    shown = network_by_name("campus.csv")
    assert (shown.network.links.devices, shown.short_name) == (12, "campus")


def stopped(place: Path, out: str) -> async_hfl.Run:
    overrides = ["cloud.epochs=6", "evaluation.grid=aggregations"]
    made = async_hfl.run(
        task="null", method="parts/my.toml", network="campus.csv", overrides=overrides, out=out, pause=lambda: True
    )
    assert not made.complete
    return made


def test_a_run_records_the_files_and_notices_that_they_have_changed(place: Path) -> None:
    made = stopped(place, "run")
    assert set(made.manifest["user_files"]) == {"parts/my.toml", "campus.csv"}
    assert network_name(made.manifest) == "campus.csv"
    for name in ("parts/my.toml", "campus.csv"):
        before = Path(name).read_text()
        Path(name).write_text(before + "\n# changed\n")
        with pytest.raises(UserError, match=f"{name}: has changed since the run began; restore it"):
            async_hfl.resume(made.path)
        Path(name).write_text(before)
    Path("parts/my.toml").rename("parts/other.toml")
    with pytest.raises(DataError, match=r"parts/my\.toml: cannot be read .* the run needs it; restore it"):
        async_hfl.resume(made.path)
    Path("parts/other.toml").rename("parts/my.toml")
    assert async_hfl.resume(made.path).complete


def test_the_moments_of_the_cloud_survive_a_pause(place: Path) -> None:
    """A run with Adam at the cloud and on the devices ends alike, whether it was interrupted or not."""
    overrides = ["cloud.epochs=4", "task.devices=6", "device.epochs=1", "evaluation.grid=aggregations"]
    chosen = {"task": "digits", "method": "parts/my.toml", "network": "campus.csv", "overrides": overrides}
    whole = async_hfl.run(**chosen, out="whole")
    asked = iter([False, True])
    part = async_hfl.run(**chosen, out="part", pause=lambda: next(asked, True))
    assert len(part.epochs) < len(whole.epochs)
    assert async_hfl.resume(part.path).summary["digest"] == whole.summary["digest"]


def test_a_directory_is_named_after_the_files(place: Path) -> None:
    made = async_hfl.run(task="null", method="parts/my.toml", network="campus.csv", overrides=["cloud.epochs=1"])
    assert made.path.parent == Path("runs")
    assert made.path.name.startswith("null-my-campus-s1-")
