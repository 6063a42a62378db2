"""`async-hfl collect`: a run directory of a deployment that nobody started as a cluster."""

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
    """State directories: this one, or those in it (as a cluster's run directory has them under `nodes`)."""
    if is_node(folder):
        return [folder]
    found = sorted(state for place in (folder, folder / "nodes") if place.is_dir() for state in place.iterdir())
    return [state for state in found if is_node(state)]


def collected_run(out: Path, states: Sequence[Path], versions: dict[str, str]) -> RunDirectory:
    """Complete only if the cloud's journal is."""
    cards = {state: NodeIdentity(**read_fact(state, IDENTITY)) for state in states}
    clouds = [state for state, card in cards.items() if card.role == "cloud"]
    if len(clouds) != 1:
        raise UserError(f"{len(clouds)} of {len(states)} journals are a cloud's; a run has one, name its directory too")
    (cloud,) = clouds
    strangers = [state for state, card in cards.items() if card.run != cards[cloud].run]
    if strangers:
        raise UserError(f"{strangers[0]}: is of another run than {cloud}")
    settings, facts = settings_of(cards[cloud]), TaskFacts.of(cards[cloud])
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
        "nodes": sorted(card.name for card in cards.values()),
    }
    directory = RunDirectory.create(out, manifest)
    result = collect(directory, list(states), cloud, settings)
    if result["virtual_s"] is not None:
        directory.write_summary({"run": str(out), "preset": "tight", **named, **result, "wall_s": result["virtual_s"]})
    return directory
