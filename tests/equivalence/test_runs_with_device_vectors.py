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
from async_hfl.simulation.pausing import PauseRequest
from async_hfl.simulation.recorded_run import Progress
from async_hfl.simulation.training_pool import TrainingPool

SHORT = [
    *("task.devices=12", "gateway.epochs=5", "cloud.epochs=6", "cloud.epochs_after_target=6"),
    "evaluation.grid=aggregations",
]


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


def test_adam_makes_the_same_decisions(tmp_path: Path) -> None:
    """On the devices with models on the accelerator, at the cloud with models that it fetches."""
    more = ("cloud.optimiser=adam", "device.optimiser=adam", "device.learning_rate=0.002")
    on_host, on_device = (run(tmp_path, where, "semi-async", *more) for where in ("host", "device"))
    assert on_host.summary["order_digest"] == on_device.summary["order_digest"]
    for one, other in zip(on_host.epochs, on_device.epochs, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert on_device.epochs[-1]["loss"] < on_device.epochs[0]["loss"]


@pytest.mark.parametrize(
    ("method", "compression"),
    [("async-hfl", "none"), ("async-hfl", "pca"), ("async-hfl-plus", "sketch"), ("sync-divfl", "none")],
)
def test_methods_that_use_gradients_learn_alike(method: str, compression: str, tmp_path: Path) -> None:
    """Utilities that differ by rounding may break a tie differently, so the journals need not be the same."""
    more = [f"utility.compression={compression}"]
    if method == "sync-divfl":  # with two devices at each gateway, a deadline leaves most of the data out
        more.append("gateway.round_deadline=inf")
    on_host, on_device = run(tmp_path, "host", method, *more), run(tmp_path, "device", method, *more)
    assert on_device.epochs[0]["loss"] == pytest.approx(on_host.epochs[0]["loss"], rel=0.05)
    assert on_device.epochs[-1]["loss"] < 0.9 * on_device.epochs[0]["loss"]


def test_vectors_stay_on_the_host_if_all_would_be_fetched() -> None:
    def chosen(*overrides: str) -> str:
        composed = compose(
            task="digits", method="async-hfl", network=None, preset=None, seed=1, overrides=list(overrides)
        )
        return vectors_of(composed.settings)

    assert chosen() == chosen("transfer.encoding=int8") == "auto"
    assert chosen("utility.compression=pca") == "host"
    assert chosen("utility.compression=pca", "engine.vectors=device") == "device"


# Encoded models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["float16", "int8"])
def test_encodings_round_alike_on_either_side(encoding: str, tmp_path: Path) -> None:
    more = f"transfer.encoding={encoding}"
    whole = run(tmp_path / "whole", "device", "semi-async", "transfer.encoding=float32")
    on_host, on_device = run(tmp_path, "host", "semi-async", more), run(tmp_path, "device", "semi-async", more)
    assert on_host.summary["order_digest"] == on_device.summary["order_digest"]
    assert on_device.epochs[-1]["loss"] != whole.epochs[-1]["loss"]
    for one, other in zip(on_host.epochs, on_device.epochs, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-2)


@pytest.mark.parametrize("method", ["async-hfl", "async-hfl-plus"])
def test_methods_that_use_encoded_gradients_learn_alike(method: str, tmp_path: Path) -> None:
    on_host, on_device = (run(tmp_path, where, method, "transfer.encoding=int8") for where in ("host", "device"))
    assert on_device.epochs[0]["loss"] == pytest.approx(on_host.epochs[0]["loss"], rel=0.05)
    assert on_device.epochs[-1]["loss"] < 0.9 * on_device.epochs[0]["loss"]


UNRELIABLE = ["outages.device_up=600", "outages.device_down=60", "outages.transfer_loss=0.1"]


@pytest.mark.parametrize(
    ("method", "more"),
    [("async-hfl", []), ("async-hfl-plus", []), ("semi-async", []), ("async-hfl-plus", UNRELIABLE)],
)
def test_encodings_that_are_announced_are_the_same_to_the_bit(
    method: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are encoded when they are trained, or, without announcements, when they are sent."""
    expect = TrainingPool.expect
    announced = []

    def noted(pool: TrainingPool, *arguments: Any) -> None:
        announced.append(arguments[3])
        expect(pool, *arguments)

    def silent(pool: TrainingPool, *arguments: Any) -> None:
        expect(pool, *arguments[:3])

    found = []
    for name, replacement in (("noted", noted), ("silent", silent)):
        monkeypatch.setattr(TrainingPool, "expect", replacement)
        made = run(tmp_path / name, "device", method, "transfer.encoding=int8", "engine.prefetch=on", *more)
        found.append(made.summary["digest"])
    assert len(announced) > 40
    assert None not in announced
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("method", "ahead", "encoding"),
    [
        ("async-hfl", "on", "float32"),
        ("async-hfl-plus", "off", "float32"),
        ("semi-async", "on", "float32"),
        ("async-hfl", "on", "int8"),
        ("async-hfl-plus", "off", "int8"),
        ("semi-async", "on", "int8"),
        ("two-tier", "on", "int8"),
    ],
)
def test_a_resumed_run_ends_exactly_alike(method: str, ahead: str, encoding: str, tmp_path: Path) -> None:
    more = ["simulation.checkpoint_epochs=2", f"engine.prefetch={ahead}", f"transfer.encoding={encoding}"]
    if method == "semi-async":
        more += ["cloud.momentum=0.5", "gateway.during_upload=continue", "gateway.refill=immediate"]
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


def test_a_run_that_a_signal_paused_goes_on(tmp_path: Path) -> None:
    """Jobs that waited for training are stored with vectors of the device. Other jobs may be trained together later, so
    that the last bits may differ."""
    request = PauseRequest()

    def epoch(progress: Progress) -> None:
        if progress.epoch == 3:
            request.make()

    more = ("transfer.encoding=int8", "engine.prefetch=on")
    whole = run(tmp_path / "whole", "device", "async-hfl", *more)
    stopped = run(tmp_path / "stopped", "device", "async-hfl", *more, on_epoch=epoch, pause=request)
    assert [row["epoch"] for row in stopped.epochs] == [1, 2, 3]
    resumed = async_hfl.resume(stopped.path)
    assert resumed.summary["cloud_epochs"] == whole.summary["cloud_epochs"]
    assert abs(resumed.summary["final_metric"] - whole.summary["final_metric"]) < 0.05


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
