"""Robust and private aggregation by setting: mistakes, resumed and repeated runs, and the epsilon of a summary."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from async_hfl import api
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.runs.privacy_spent import epsilon
from async_hfl.assembly.runs.replay import replay
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import SettingsError, UserError
from async_hfl.reports.tables.privacy import privacy_text

PRIVATE = ["privacy.clip=0.5", "privacy.noise=1"]


@pytest.mark.parametrize(
    ("method", "overrides", "text"),
    [
        ("two-tier", ["gateway.robust=median"], "gateway.aggregation = 'relay' passes single updates"),
        ("two-tier", ["privacy.clip=1"], "privacy.clip needs a gateway that aggregates"),
        ("async-hfl-plus", [*PRIVATE, "gateway.robust=median"], "has no useful bound"),
        ("async-hfl-plus", ["privacy.noise=1"], "set that too"),
        ("async-hfl-plus", ["privacy.delta=0.001"], "no effect without privacy.noise"),
        ("async-hfl-plus", ["gateway.trim=0.2"], "no effect with gateway.robust = 'none'"),
        ("async-hfl-plus", ["gateway.robust_window=5"], "no effect with gateway.robust = 'none'"),
        ("async-hfl", PRIVATE, "selection.policy = 'utility-knapsack' with privacy.noise"),
        ("async-hfl-selection", [*PRIVATE, "selection.policy=random", "association.policy=balanced-utility"], "assoc"),
    ],
)
def test_combinations_that_cannot_work_are_errors(method: str, overrides: list[str], text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        compose(task="null", method=method, network="uniform", overrides=overrides)


def test_users_rules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="works with the built-in rules"):
        compose(task="null", overrides=["gateway.robust=clip", f"gateway.aggregation={tmp_path}/mine.py:Mine"])


def test_a_model_with_running_statistics_cannot_be_private() -> None:
    pytest.importorskip("dp_accounting")
    from async_hfl.assembly.build.nodes import check_privacy

    settings = compose(task="null", overrides=PRIVATE).settings
    check_privacy(settings, 10, 10)
    with pytest.raises(SettingsError, match="the last 4 numbers of this model are running statistics"):
        check_privacy(settings, 14, 10)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("async_hfl.core.extras.find_spec", lambda module: None)
    composed = compose(task="null", network="uniform", overrides=PRIVATE)
    with pytest.raises(UserError, match=re.escape("pip install 'async-hfl[privacy]'")):
        build(composed.settings, 1)


def test_noise_switches_the_bound_on_changes_off() -> None:
    pytest.importorskip("dp_accounting")
    for overrides, most in (([], 10.0), (PRIVATE, math.inf)):
        composed = compose(task="null", network="uniform", overrides=overrides)
        assert build(composed.settings, 1).world.gateways[0].config.max_change == most


def run(out: Path, method: str, *overrides: str, pause_after: int = 0) -> api.Run:
    chosen = ["task.devices=8", "task.model_size=300", "network.gateways=2", "cloud.epochs=8", "task.target=2"]
    epochs = 0

    def pause() -> bool:
        nonlocal epochs
        epochs += 1
        return epochs == pause_after

    return api.run(
        task="null",
        method=method,
        network="uniform",
        seed=3,
        overrides=[*chosen, "simulation.checkpoint_epochs=1", *overrides],
        out=out,
        pause=pause if pause_after else None,
    )


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        ("async-hfl-plus", "median"),
        ("async-random", "trimmed-mean"),
        ("fedbuff", "clip"),
        ("sync-random", "median"),
        ("async-hfl-plus", "noise"),
        ("async-random", "noise"),
        ("fedbuff", "noise"),
        ("sync-random", "noise"),
    ],
)
def test_a_resumed_run_is_the_same_to_the_bit(method: str, rule: str, tmp_path: Path) -> None:
    if rule == "noise":
        pytest.importorskip("dp_accounting")
    defence = PRIVATE if rule == "noise" else [f"gateway.robust={rule}", "gateway.robust_window=3"]
    whole = run(tmp_path / "whole", method, *defence)
    stopped = run(tmp_path / "stopped", method, *defence, pause_after=4)
    assert not stopped.complete
    resumed = api.resume(stopped.path)
    assert resumed.summary["digest"] == whole.summary["digest"]
    plain = run(tmp_path / "plain", method)
    assert plain.summary["order_digest"] == whole.summary["order_digest"]  # only models differ
    model = (tmp_path / "plain" / "model.safetensors").read_bytes()
    assert model != (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert replay(whole.path).differences == 0


def test_a_summary_gives_epsilon_of_the_device_that_took_part_most(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    found = run(tmp_path / "run", "async-hfl-plus", *PRIVATE, "privacy.delta=0.001")
    counts: dict[int, int] = {}
    for kind, record in found.events("job"):
        if kind == "job" and record["reason"] == "aggregated":
            counts[record["device"]] = counts.get(record["device"], 0) + 1
    spent = found.summary["privacy"]
    assert spent["participations"] == counts[spent["device"]] == max(counts.values())
    assert spent["epsilon"] == epsilon(1.0, max(counts.values()), 0.001)
    assert (spent["unit"], spent["amplification"], spent["delta"]) == ("one device", "none", 0.001)
    text = privacy_text(spent)
    assert "no amplification by sampling is claimed" in text
    assert "the changes of one device" in text
    assert "privacy" not in run(tmp_path / "plain", "async-hfl-plus").summary


def exact_epsilon(noise: float, count: int, delta: float) -> float:
    """Return epsilon of so many Gaussian mechanisms, which are one with noise / sqrt(count): by its formula (Balle &
    Wang, ICML 2018), Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = delta."""
    mu = math.sqrt(count) / noise

    def tail(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    low, high = 0.0, 200.0
    for _ in range(100):
        middle = (low + high) / 2
        spent = tail(mu / 2 - middle / mu) - math.exp(middle) * tail(-mu / 2 - middle / mu)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (1.0, 10), (4.0, 50), (10.0, 30), (0.7, 3)])
def test_epsilon_is_a_close_upper_bound_of_the_exact_one(noise: float, count: int) -> None:
    pytest.importorskip("dp_accounting")
    found, exact = epsilon(noise, count, 1e-5), exact_epsilon(noise, count, 1e-5)
    assert found is not None
    assert exact <= found <= 1.15 * exact


def test_a_device_that_never_took_part_has_spent_nothing() -> None:
    assert epsilon(1.0, 0, 1e-5) == 0.0
