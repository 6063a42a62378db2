"""A kept result: what a run was, in short, and what was measured of it. One line of JSON in a rows file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from async_hfl.experiments.plans.planned_run import PlannedRun, Role
from async_hfl.experiments.results.measured import Measured, measure
from async_hfl.experiments.tuning.tuned import Tuned
from async_hfl.journal.run_directory import RunDirectory


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal[1] = 1
    digest: str
    """The digest of everything that the result depends on but the versions of libraries; equal for equal settings."""
    task: str
    method: str
    network: str
    preset: str
    seed: int
    group: str
    family: str
    panel: str
    role: Role
    base: str
    """The group that the run is compared with in the table of an ablation."""
    target: float
    device_epochs: int
    settings: dict[str, Any]
    """The settings that differ from the defaults of the schema."""
    tuned: Tuned | None
    result: Measured
    versions: dict[str, str]
    made: str
    """The time at which the run began, in UTC."""


def keep(run: PlannedRun, directory: RunDirectory) -> KeptRun:
    """Return the kept result of a complete run."""
    manifest = directory.read_manifest()
    return KeptRun(
        digest=run.digest,
        task=run.task,
        method=run.method,
        network=run.network,
        preset=run.preset,
        seed=run.seed,
        group=run.group,
        family=run.family,
        panel=run.panel,
        role=run.role,
        base=run.base,
        target=run.target,
        device_epochs=manifest["settings"]["device"]["epochs"],
        settings=run.settings,
        tuned=run.tuned,
        result=measure(directory, run.levels, parts=run.parts),
        versions=manifest["versions"],
        made=manifest["created"],
    )


def relabelled(row: KeptRun, run: PlannedRun) -> KeptRun:
    """Return the result under the labels of another plan, in which the same run has another part."""
    return msgspec.structs.replace(
        row, group=run.group, family=run.family, panel=run.panel, role=run.role, base=run.base, tuned=run.tuned
    )


def labels(run: PlannedRun | KeptRun) -> tuple[str, str, str, Role, str, bool]:
    """Return what identifies a row in a rows file: the run, and its part in the comparison."""
    return run.digest, run.panel, run.group, run.role, run.base, run.tuned is not None
