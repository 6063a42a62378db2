"""Settings of a deployment: only those that were set are stored and sent, and changes are named."""

from __future__ import annotations

import json

import pytest

from async_hfl.assembly.deployments.deployed_nodes import settings_changed, settings_of, settings_text
from async_hfl.assembly.settings.loading import as_table, compose, settings_from
from async_hfl.core.errors import SettingsError
from async_hfl.deployment.store.node_identity import NodeIdentity


def settings(*overrides: str) -> object:
    return compose(task="null", method="async-hfl", network="deployed", overrides=overrides).settings


def test_changes_are_named_with_both_values() -> None:
    then = settings_text(settings("transfer.encoding=int8"))
    assert settings_changed(then, settings("transfer.encoding=int8")) == ""
    assert settings_changed(then, settings("task.target=0.8")) == (
        "task.target was 2.0, now 0.8; transfer.encoding was 'int8', now 'float32'"
    )


def test_of_many_changes_the_first_are_named() -> None:
    then = settings_text(settings())
    now = settings("cloud.epochs=5", "cloud.linger=1", "device.epochs=9", "gateway.epochs=9", "gateway.linger=9")
    assert settings_changed(then, now).endswith("; device.epochs was 5, now 9 and 2 more")


def test_a_setting_that_was_not_set_is_not_stored() -> None:
    """So a release that adds one with a default continues the run, and earlier nodes can join."""
    chosen = settings("gateway.patience_floor=7.5", "cloud.start.patience=3.0")
    stored = json.loads(settings_text(chosen))
    assert stored["gateway"]["patience_floor"] == 7.5
    assert stored["cloud"]["start"] == {"patience": 3.0}
    assert "refill" not in stored["gateway"]
    assert "journal" not in stored
    assert settings_from(stored) == chosen


def test_settings_that_another_release_stored_in_full_are_the_same() -> None:
    """Release 0.2.0 stored every setting, and lacks those that were added since."""
    full = as_table(settings("gateway.patience_floor=7.5"))
    del full["gateway"]["refill"], full["journal"]["log_budget"]
    full["transfer"] = {"encoding": "float32", "zstd": False}
    assert settings_changed(json.dumps(full), settings("gateway.patience_floor=7.5")) == ""
    assert "patience_floor" in settings_changed(json.dumps(full), settings())


def test_a_setting_of_a_later_release_is_refused_with_both_versions() -> None:
    stored = json.loads(settings_text(settings()))
    stored.setdefault("gateway", {})["telepathy"] = True
    identity = NodeIdentity("gateway", "g", 1, 0, 1, json.dumps(stored), "", {"version": "9.9.9"})
    with pytest.raises(SettingsError, match=r"async-hfl 9\.9\.9.*async-hfl \d.*gateway\.telepathy.*Install 9\.9\.9"):
        settings_of(identity)
