"""`async-hfl collect`: the journals of any deployment as a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.assembly.deployments.deployed_nodes import TaskFacts, settings_of
from async_hfl.assembly.deployments.merge_journals import collect
from async_hfl.assembly.settings.loading import as_table
from async_hfl.core.errors import UserError
from async_hfl.deployment.operations.node_journal import is_node, read_fact
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity
from async_hfl.journal.run_directory import RunDirectory


def states_under(folder: Path) -> list[Path]:
    """Return the state directories: the folder itself, or those in it or in its `nodes` folder."""
    if is_node(folder):
        return [folder]
    found = sorted(state for place in (folder, folder / "nodes") if place.is_dir() for state in place.iterdir())
    return [state for state in found if is_node(state)]


def collected_run(out: Path, states: Sequence[Path], versions: dict[str, str]) -> RunDirectory:
    """Merge the journals of a run; the result is complete only if the cloud's journal is."""
    identities = {state: NodeIdentity(**read_fact(state, IDENTITY)) for state in states}
    clouds = [state for state, identity in identities.items() if identity.role == "cloud"]
    if len(clouds) != 1:
        raise UserError(
            f"{len(clouds)} of {len(states)} journals are of a cloud; a run has exactly one: name its directory, too"
        )
    (cloud,) = clouds
    strangers = [state for state, identity in identities.items() if identity.run != identities[cloud].run]
    if strangers:
        raise UserError(f"{strangers[0]}: belongs to another run than {cloud}")
    settings, facts = settings_of(identities[cloud]), TaskFacts.of(identities[cloud])
    named = {"method": facts.method, "task": facts.task, "network": settings.network.name, "seed": facts.seed}
    manifest = {
        **named,
        "preset": "tight",
        "metric": {"name": facts.metric, "direction": facts.direction, "window": facts.target.window},
        "settings": as_table(settings),
        "devices": settings.task.devices,
        "gateways": settings.network.gateways,
        "start_from": None,
        "user_files": {},
        "versions": versions,
        "nodes": sorted(identity.name for identity in identities.values()),
    }
    directory = RunDirectory.create(out, manifest)
    result = collect(directory, list(states), cloud, settings)
    if result["virtual_s"] is not None:
        directory.write_summary({"run": str(out), "preset": "tight", **named, **result, "wall_s": result["virtual_s"]})
    return directory
