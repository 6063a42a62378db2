"""A whole deployment on this machine, and the journals of one as a run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from async_hfl.api.arguments import Task, named
from async_hfl.api.stored_run import Run
from async_hfl.assembly.runs.provenance import check_seed, code_names, place_of, user_files, versions
from async_hfl.assembly.runs.simulated_run import choice_of
from async_hfl.assembly.settings.overrides import Overrides
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.objects import check_no_objects
from async_hfl.core.errors import UserError
from async_hfl.core.extras import check_installed
from async_hfl.journal.run_directory import RunDirectory


def cluster(
    file: str | Path | None = None,
    *,
    gateways: int = 2,
    devices: int | None = None,
    devices_per_process: int = 4,
    task: Task | None = None,
    method: str | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    insecure: bool = False,
    proxies: bool = False,
    classes: Sequence[str] = (),
    on_start: Callable[[Run, Settings, Sequence[str]], None] | None = None,
    on_progress: Callable[[Any], None] | None = None,
) -> Run:
    """Run a real deployment on this machine, with processes, sockets and certificates, into a new run directory.

    `classes` are kinds of devices, "COUNT:SLOWDOWN[:BYTES/S[:DELAY_S]]". `on_start` also gets the settings that were
    adapted to the size of the cluster. Tasks, policies and rules must be in files, since every process loads its own.
    """
    check_installed("deployment", "a cluster")
    from async_hfl.assembly.deployments import cluster as local
    from async_hfl.assembly.deployments.device_classes import device_classes

    kinds = device_classes(classes, devices)
    options = local.ClusterOptions(gateways, len(kinds), devices_per_process, insecure, proxies, kinds)
    asked = None if file is None else Path(file)
    given = named(task, overrides=overrides)
    composed, sets, usual = local.composed_for(options, asked, given.task, method, seed, given.overrides)
    choice = composed.choice
    check_no_objects(code_names(composed.settings), "a cluster consists of other processes")
    check_seed(choice.seed)
    where = place_of(out, choice, "cluster")
    files = user_files(composed.settings, method=choice.method)
    manifest = {**local.manifest_of(composed, options), "user_files": files, "versions": versions()}
    made = Run(RunDirectory.create(where, manifest))
    if on_start is not None:
        on_start(made, composed.settings, usual)
    arguments = [*([] if asked is None else [str(asked.resolve())]), *local.arguments(composed, sets)]
    with made.directory.locked():
        result = local.run_cluster(options, made.directory, composed, arguments, on_progress)
        made.directory.amend_manifest(**local.facts_for_manifest(made.path))
        made.directory.write_summary({"run": str(made.path), **choice_of(made.directory), **result})
    return made


def collect(out: str | Path, sources: Sequence[str | Path]) -> Run:
    """Merge the journals of a deployment's nodes (state directories, or folders of them) into one run directory."""
    check_installed("deployment", "collecting journals")
    from async_hfl.assembly.deployments.collected_run import collected_run, states_under

    states = []
    for source in map(Path, sources):
        found = states_under(source)
        if not found:
            raise UserError(f"{source}: neither the state directory of a node nor a folder of them")
        states += found
    return Run(collected_run(Path(out), states, versions()))
