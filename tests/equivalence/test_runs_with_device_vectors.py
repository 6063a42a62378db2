"""Runs whose vectors stay on the device equal runs with numpy except for rounding; a resumed run equals an
uninterrupted one exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import async_hfl
from async_hfl.assembly.build.task import vectors_of
from async_hfl.assembly.runs.replay import replay
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingResult
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
def test_methods_that_ignore_gradients_make_the_same_decisions(method: str, tmp_path: Path) -> None:
    on_host, on_device = run(tmp_path, "host", method), run(tmp_path, "device", method)
    assert on_host.summary["order_digest"] == on_device.summary["order_digest"]
    for one, other in zip(on_host.epochs, on_device.epochs, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("method", "compression"),
    [("async-hfl", "none"), ("async-hfl", "pca"), ("async-hfl-plus", "sketch"), ("sync-divfl", "none")],
)
def test_methods_that_use_gradients_learn_alike(method: str, compression: str, tmp_path: Path) -> None:
    """Utilities that differ by rounding may break a tie differently, so the journals need not be the same."""
    more = [f"utility.compression={compression}"]
    on_host, on_device = run(tmp_path, "host", method, *more), run(tmp_path, "device", method, *more)
    assert on_device.epochs[0]["loss"] == pytest.approx(on_host.epochs[0]["loss"], rel=0.05)
    assert on_device.epochs[-1]["loss"] < 0.9 * on_device.epochs[0]["loss"]


def test_vectors_stay_on_the_host_if_all_would_be_fetched() -> None:
    def chosen(*overrides: str) -> str:
        composed = compose(
            task="digits", method="async-hfl", network=None, preset=None, seed=1, overrides=list(overrides)
        )
        return vectors_of(composed.settings)

    assert chosen() == "auto"
    assert chosen("transfer.encoding=float16") == chosen("utility.compression=pca") == "host"
    assert chosen("transfer.encoding=float16", "engine.vectors=device") == "device"


def test_half_precision_on_the_link_rounds_device_vectors_too(tmp_path: Path) -> None:
    whole, half = (
        run(tmp_path, "device", "async-random"),
        run(tmp_path / "half", "device", "async-random", "transfer.encoding=float16"),
    )
    on_host = run(tmp_path / "half", "host", "async-random", "transfer.encoding=float16")
    assert half.epochs[-1]["loss"] != whole.epochs[-1]["loss"]
    assert half.epochs[-1]["loss"] == pytest.approx(on_host.epochs[-1]["loss"], rel=1e-2)


@pytest.mark.parametrize(("method", "ahead"), [("async-hfl", "on"), ("async-hfl-plus", "off"), ("semi-async", "on")])
def test_a_resumed_run_ends_exactly_alike(method: str, ahead: str, tmp_path: Path) -> None:
    more = ["simulation.checkpoint_epochs=2", f"engine.prefetch={ahead}"]
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


def test_a_run_that_was_killed_is_replayed_up_to_its_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, asked = TrainingPool.result, 0

    def killed(pool: TrainingPool, job: JobId) -> TrainingResult:
        nonlocal asked
        asked += 1
        if asked == 31:
            raise KeyboardInterrupt
        return result(pool, job)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingPool, "result", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "device", "async-hfl")
    found = replay(tmp_path / "device-async-hfl")
    assert found.events > 0
    assert not found.differences


def test_a_run_is_replayed_with_its_checkpoints(tmp_path: Path) -> None:
    """A checkpoint changes how jobs are batched, and so the rounding."""
    made = run(tmp_path, "device", "async-hfl", "simulation.checkpoint_epochs=2", "engine.prefetch=on")
    found = replay(made.path)
    assert found.events > 0
    assert not found.differences
