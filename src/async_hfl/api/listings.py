"""The names of tasks, methods, networks and presets, and the reference of settings."""

from __future__ import annotations

from pathlib import Path

from async_hfl.api.arguments import composed_of
from async_hfl.assembly.settings.documentation.entries import SectionReference, find, reference
from async_hfl.assembly.settings.documentation.run_file import run_file
from async_hfl.assembly.settings.loading import available, merged_overrides
from async_hfl.assembly.settings.overrides import Overrides, override_texts
from async_hfl.core.errors import UserError
from async_hfl.reports.output import writing


def tasks() -> dict[str, str]:
    """Return the built-in tasks: a line of description by name.

    >>> async_hfl.tasks()["null"]
    'no learning: updates are seeded noise (to measure the simulator itself)'
    """
    return available("task")


def methods() -> dict[str, str]:
    """Return the methods: a line of description by name.

    >>> "async-hfl-plus" in async_hfl.methods()
    True
    """
    return available("method")


def networks() -> dict[str, str]:
    """Return the built-in networks: a line of description by name.

    >>> "nycmesh" in async_hfl.networks()
    True
    """
    return available("network")


def presets() -> dict[str, str]:
    """Return the presets of the bandwidth of gateways: a line of description by name.

    >>> sorted(async_hfl.presets())
    ['authors', 'paper', 'tight']
    """
    return available("preset")


def settings(name: str | None = None) -> list[SectionReference]:
    """Return the reference of all settings, or of a SECTION, a SECTION.KEY or a KEY of any section.

    >>> [setting.default for section in async_hfl.settings("cloud.epochs") for setting in section.settings]
    ['1000']
    """
    return list(reference() if name is None else find(name))


def init(
    out: str | Path = "run.toml",
    *,
    task: str | None = None,
    method: str | None = None,
    network: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
    everything: bool = False,
) -> Path:
    """Write a commented run file, with `everything` a line for every setting (`async-hfl init`, `--all`).

    >>> async_hfl.init("my_run.toml", task="digits", overrides={"cloud.epochs": 50}).name
    'my_run.toml'
    """
    file, texts = Path(out), override_texts(overrides)
    composed = composed_of(None, task, network, overrides=texts, method=method, preset=preset, seed=seed)
    if file.exists():
        raise UserError(f"{file}: exists already; give another FILE")
    with writing(file, create_directory=False):
        file.write_text(run_file(composed, merged_overrides(texts), everything=everything), encoding="utf-8")
    return file
