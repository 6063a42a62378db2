"""The Python API: run, load_run, resume, and the contents of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import async_hfl
from async_hfl.assembly.settings.loading import settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import RunDirectoryError, SettingsError, UserError
from async_hfl.journal.run_directory import EPOCH_COLUMNS
from async_hfl.simulation.recorded_run import Progress

SMALL = ["task.devices=20", "cloud.epochs=4"]


def small(out: Path, **more: object) -> async_hfl.Run:
    return async_hfl.run(task="null", network="uniform", out=out, overrides=SMALL, **more)  # type: ignore[arg-type]


def test_the_contents_of_a_run(tmp_path: Path) -> None:
    made = small(tmp_path / "run", method="async-random", seed=3)
    assert made.complete
    assert made.path == tmp_path / "run"
    assert made.summary["seed"] == 3
    assert made.summary["cloud_epochs"] == 4
    assert made.manifest["method"] == "async-random"
    assert made.manifest["devices"] == 20
    assert made.manifest["bandwidth"] > 0
    assert made.manifest["versions"]["numpy"] == np.__version__
    epochs = made.epochs
    assert [row["epoch"] for row in epochs] == [1, 2, 3, 4]
    assert all(tuple(row) == EPOCH_COLUMNS for row in epochs)
    assert epochs[-1]["metric"] == made.summary["final_metric"]
    assert epochs[-1]["at"] == made.summary["virtual_s"]
    kinds = {kind for kind, _ in made.events()}
    assert {"sent", "job", "selection", "upload", "epoch"} <= kinds
    assert [fields["metric"] for _, fields in made.events("epoch")] == [row["metric"] for row in epochs]
    reasons = made.summary["job_ends"]
    assert sum(reasons.values()) == sum(1 for _ in made.events("job"))
    sizes = ("model", "gradient", "basis", "control")
    sent = sum(fields[size] for _, fields in made.events("sent") for size in sizes)
    assert sent == made.summary["bytes_total"]
    assert load_file(made.model)["noise"].shape == (16,)


def test_a_run_read_back(tmp_path: Path) -> None:
    made = small(tmp_path / "run")
    found = async_hfl.load_run(str(tmp_path / "run"))
    assert found.summary == made.summary
    assert found.epochs == made.epochs
    assert list(found.events("upload", "epoch")) == list(made.events("upload", "epoch"))
    assert found.manifest == made.manifest


def test_the_manifest_holds_the_settings_as_resolved(tmp_path: Path) -> None:
    seen: list[Settings] = []
    made = small(tmp_path / "run", on_start=lambda _, settings: seen.append(settings))
    stored = json.loads((tmp_path / "run" / "manifest.json").read_text())["settings"]
    assert settings_from(stored) == seen[0]
    assert settings_from(made.manifest["settings"]).task.devices == 20


def test_progress_is_reported_for_every_epoch(tmp_path: Path) -> None:
    seen: list[Progress] = []
    made = small(tmp_path / "run", on_epoch=seen.append)
    assert [(p.at, p.epoch, p.metric) for p in seen] == [(r["at"], r["epoch"], r["metric"]) for r in made.epochs]
    assert seen[-1].bytes_total == made.epochs[-1]["bytes_total"]


def test_resume_continues_a_run(tmp_path: Path) -> None:
    made = small(tmp_path / "run")
    wanted = made.summary
    made.directory.summary.unlink()
    assert not made.complete
    with pytest.raises(RunDirectoryError, match="not complete; `async-hfl resume"):
        _ = made.summary
    started: list[async_hfl.Run] = []
    again = async_hfl.resume(made.path, on_start=lambda run, _: started.append(run))
    assert again.summary["digest"] == wanted["digest"]
    assert started == [again]
    assert async_hfl.resume(str(made.path)).summary == again.summary


def test_start_from_begins_at_the_accuracy_of_the_model(tmp_path: Path) -> None:
    digits = {"task": "digits", "method": "async-random", "network": "nycmesh-paper"}
    first = async_hfl.run(**digits, seed=1, overrides=["cloud.epochs=25"], out=tmp_path / "first")
    # A device that hardly learns leaves the model as it is, so what is evaluated first is what was given.
    still = ["cloud.epochs=1", "device.learning_rate=1e-12"]
    on = async_hfl.run(**digits, seed=2, overrides=still, start_from=first.model, out=tmp_path / "on")
    off = async_hfl.run(**digits, seed=2, overrides=still, out=tmp_path / "off")
    assert on.epochs[0]["metric"] == pytest.approx(first.summary["final_metric"], abs=1e-9)
    assert on.epochs[0]["loss"] == pytest.approx(first.epochs[-1]["loss"], abs=1e-6)
    assert off.epochs[0]["metric"] < first.summary["final_metric"] - 0.2
    assert on.manifest["start_from"] == str(first.model)


def test_a_free_warm_up_is_not_charged(tmp_path: Path) -> None:
    """With `warmup.charge = false`, as in the authors' code, time and bytes count from the end of the warm-up."""

    def run(charge: str) -> dict[str, float]:
        overrides = ["task.target=0.3", "cloud.epochs=30", f"warmup.charge={charge}"]
        return async_hfl.run(method="async-hfl", seed=1, overrides=overrides, out=tmp_path / charge).summary

    charged, free = run("true"), run("false")
    assert charged["digest"] == free["digest"]
    assert charged["warmup_s"] > 0
    assert free["time_to_target_s"] == charged["time_to_target_s"] - charged["warmup_s"]
    assert free["bytes_to_target"] == charged["bytes_to_target"] - charged["warmup_bytes"]


def test_errors_belong_to_one_class_hierarchy(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean gateway"):
        async_hfl.run(overrides=["gatway.epochs=3"], out=tmp_path / "run")
    with pytest.raises(UserError, match="seed -1"):
        async_hfl.run(seed=-1, out=tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        async_hfl.load_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_public_names() -> None:
    assert async_hfl.__all__ == sorted(async_hfl.__all__)
    assert set(async_hfl.__all__) == {name for names in async_hfl._HOME.values() for name in names}
    for name in async_hfl.__all__:
        public = getattr(async_hfl, name)
        assert public.__module__ in {f"async_hfl.{home}" for home, names in async_hfl._HOME.items() if name in names}
        assert public.__doc__, name
        assert name in dir(async_hfl)
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        _ = async_hfl.train
