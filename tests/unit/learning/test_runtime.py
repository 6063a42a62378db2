from __future__ import annotations

from pathlib import Path

import pytest
from learning_cases import fingerprints_elsewhere, run_python

from async_hfl.core.errors import InternalError, SettingsError
from async_hfl.learning.engine import runtime

NAMES = ("tasks.catalogue", "tasks.stub_learner", "engine.runtime", "engine.trainer", "partition.registry")


def test_importing_does_not_import_jax() -> None:
    modules = ", ".join(f"async_hfl.learning.{name}" for name in NAMES)
    code = f"import sys, {modules}; print('jax' in sys.modules)"
    assert run_python(["-c", code], {}).strip() == "False"


DEVICES = "from async_hfl.learning.engine.backend import jax; print(jax.local_device_count(), jax.default_backend())"


def test_flags_of_the_user_take_precedence() -> None:
    flags = "--xla_force_host_platform_device_count=3 --xla_cpu_multi_thread_eigen=true"
    code = f"{DEVICES}; from async_hfl.learning.engine import runtime; print(runtime.compiler_options())"
    printed = run_python(["-c", code], {"XLA_FLAGS": flags, "ASYNC_HFL_HOST_DEVICES": "2"})
    assert printed.split() == ["3", "cpu", "{}"]


def test_an_argument_overrides_the_variable_and_children_do_not_inherit_it() -> None:
    code = (
        "import os; from async_hfl.learning.engine import runtime; runtime.prepare(host_devices=4);"
        f"{DEVICES}; print('XLA_FLAGS' in os.environ)"
    )
    assert run_python(["-c", code], {"ASYNC_HFL_HOST_DEVICES": "2"}).split() == ["4", "cpu", "False"]


def test_jax_already_started_by_the_user() -> None:
    code = f"import jax; jax.devices(); {DEVICES}"
    assert run_python(["-c", code], {"ASYNC_HFL_HOST_DEVICES": "2"}).split() == ["1", "cpu"]


def test_another_number_of_devices_later_is_an_error() -> None:
    runtime.prepare()
    with pytest.raises(InternalError, match="too late to ask for 77"):
        runtime.prepare(host_devices=77)


@pytest.mark.parametrize("text", ["two", "0", "-1"])
def test_a_wrong_number_of_devices(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(runtime.HOST_DEVICES_VARIABLE, text)
    with pytest.raises(SettingsError, match=runtime.HOST_DEVICES_VARIABLE):
        runtime._host_devices(None)


def test_location_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(runtime.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found = runtime.cache_directory()
    assert found is not None
    assert found.is_relative_to(tmp_path / "xdg" / "async-hfl")
    monkeypatch.setenv(runtime.CACHE_VARIABLE, str(tmp_path / "own"))
    found = runtime.cache_directory()
    assert found is not None
    assert found.is_relative_to(tmp_path / "own")
    assert found.is_dir()
    monkeypatch.setenv(runtime.CACHE_VARIABLE, "")
    assert runtime.cache_directory() is None


def test_no_writable_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv(runtime.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert runtime.cache_directory() is None


def test_a_damaged_cache_only_costs_time(tmp_path: Path) -> None:
    """A process that was killed while writing leaves half an entry."""
    environment = {"ASYNC_HFL_CACHE": str(tmp_path), "ASYNC_HFL_HOST_DEVICES": "1"}
    before = fingerprints_elsewhere(environment)
    entries = [path for path in tmp_path.rglob("*-cache") if "train_group" in path.name]
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:1000])
    assert fingerprints_elsewhere(environment) == before
