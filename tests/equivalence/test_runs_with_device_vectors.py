"""Whole runs with vectors on the device agree with runs on the host except for rounding, and a resumed run is the same
as one that did not stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import async_hfl
from async_hfl.assembly.build.simulation import vectors_of
from async_hfl.assembly.runs.replay import replay
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingResult
from async_hfl.journal.events_file import EventsWriter
from async_hfl.simulation.training_pool import TrainingPool

SHORT = ["task.devices=12", "gateway.epochs=5", "cloud.epochs=6", "cloud.epochs_after_target=6"]


def run(folder: Path, vectors: str, method: str, *more: str, **options: Any) -> async_hfl.Run:
    return async_hfl.run(
        task="digits",
        method=method,
        seed=3,
        overrides=[*SHORT, f"engine.vectors={vectors}", *more],
        out=folder / f"{vectors}-{method}",
        **options,
    )


@pytest.mark.parametrize("method", ["async-random", "semi-async", "rfl-ha", "sync-random", "two-tier"])
def test_methods_that_do_not_read_vectors_take_the_same_decisions(method: str, tmp_path: Path) -> None:
    host, device = run(tmp_path, "host", method), run(tmp_path, "device", method)
    assert host.summary["order_digest"] == device.summary["order_digest"]
    for one, other in zip(host.epochs, device.epochs, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("method", "compression"),
    [("async-hfl", "none"), ("async-hfl", "pca"), ("async-hfl-plus", "sketch"), ("sync-divfl", "none")],
)
def test_methods_that_read_vectors_learn_equally_well(method: str, compression: str, tmp_path: Path) -> None:
    """Utilities that differ by rounding may select another of two equal devices, so the journals may differ."""
    more = [f"utility.compression={compression}"]
    host, device = run(tmp_path, "host", method, *more), run(tmp_path, "device", method, *more)
    assert device.epochs[0]["loss"] == pytest.approx(host.epochs[0]["loss"], rel=0.05)
    assert device.epochs[-1]["loss"] < 0.9 * device.epochs[0]["loss"]


def test_vectors_stay_on_the_host_if_all_would_be_copied_anyway() -> None:
    def chosen(*overrides: str) -> str:
        composed = compose(
            task="digits", method="async-hfl", network=None, preset=None, seed=1, overrides=list(overrides)
        )
        return vectors_of(composed.settings)

    assert chosen() == "auto"
    assert chosen("transfer.half=true") == chosen("utility.compression=pca") == "host"
    assert chosen("transfer.half=true", "engine.vectors=device") == "device"


def test_half_precision_on_the_link_rounds_device_vectors_too(tmp_path: Path) -> None:
    whole, half = (
        run(tmp_path, "device", "async-random"),
        run(tmp_path / "half", "device", "async-random", "transfer.half=true"),
    )
    host = run(tmp_path / "half", "host", "async-random", "transfer.half=true")
    assert half.epochs[-1]["loss"] != whole.epochs[-1]["loss"]
    assert half.epochs[-1]["loss"] == pytest.approx(host.epochs[-1]["loss"], rel=1e-2)


@pytest.mark.parametrize(("method", "ahead"), [("async-hfl", "on"), ("async-hfl-plus", "off"), ("semi-async", "on")])
def test_a_resumed_run_ends_like_one_that_did_not_stop(method: str, ahead: str, tmp_path: Path) -> None:
    more = ["simulation.checkpoint_epochs=2", f"engine.ahead={ahead}"]
    whole = run(tmp_path / "whole", "device", method, *more)
    asked = 0

    def pause() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    stopped = run(tmp_path / "stopped", "device", method, *more, pause=pause)
    assert len(stopped.epochs) < len(whole.epochs)
    resumed = async_hfl.resume(stopped.path)
    assert resumed.summary["digest"] == whole.summary["digest"]


def test_the_cloud_is_told_late_of_what_the_card_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms, leave_room = 0, EventsWriter.leave_room

    def left(writer: EventsWriter) -> None:
        nonlocal rooms
        rooms += 1
        leave_room(writer)

    monkeypatch.setattr(EventsWriter, "leave_room", left)
    made = run(tmp_path, "device", "async-hfl-plus")
    assert rooms == len(made.epochs) - 1, "all but the last"
    rooms = 0
    run(tmp_path, "host", "async-hfl-plus")
    assert rooms == 0


def test_an_interrupted_run_is_replayed_up_to_the_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = TrainingPool.result, 0

    def cut_off(pool: TrainingPool, job: JobId) -> TrainingResult:
        nonlocal asked
        asked += 1
        if asked == 31:
            raise KeyboardInterrupt
        return result(pool, job)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingPool, "result", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "device", "async-hfl")
    found = replay(tmp_path / "device-async-hfl")
    assert found.events > 0
    assert not found.differences


def test_a_run_is_replayed_with_its_checkpoints(tmp_path: Path) -> None:
    """A checkpoint changes the grouping of jobs, and therefore the rounding."""
    made = run(tmp_path, "device", "async-hfl", "simulation.checkpoint_epochs=2", "engine.ahead=on")
    found = replay(made.path)
    assert found.events > 0
    assert not found.differences
