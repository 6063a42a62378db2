"""Asynchronous hierarchical federated learning in real, unreliable IoT networks.

import async_hfl
run = async_hfl.run(task="digits", method="async-hfl", network="nycmesh-paper", seed=1)
run.summary["time_to_target_s"], run.epochs[-1], run.model
async_hfl.compare(task=my_task, network=my_network, methods=["async-hfl", "two-tier"], seeds=3).frame()
async_hfl.decide_selection("problem.json")["selected"]

Each command of the command line is a function with the same name and arguments; docs/python.md has them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; at run time the names are imported on first use (see __getattr__)
    from async_hfl.api.centralised import Central, central
    from async_hfl.api.data import ShownData, fetch_data, list_data, show_data, verify_data
    from async_hfl.api.deployed import cluster, collect
    from async_hfl.api.listings import init, methods, networks, presets, settings, tasks
    from async_hfl.api.networks import ShownNetwork, show_network
    from async_hfl.api.operated import drain, status
    from async_hfl.api.reporting import export, report
    from async_hfl.api.simulated import resume, run, run_together
    from async_hfl.api.stored_run import Run, load_run
    from async_hfl.assembly.runs.decide import decide_association, decide_selection
    from async_hfl.assembly.runs.network_recording import record_network
    from async_hfl.assembly.runs.replay import replay
    from async_hfl.experiments.commands.compare import compare
    from async_hfl.experiments.commands.experiment import Experiment
    from async_hfl.experiments.commands.paper import paper
    from async_hfl.experiments.commands.sweep import sweep
    from async_hfl.experiments.commands.tune import tune
    from async_hfl.learning.own.modules import from_equinox, from_flax, from_nnx
    from async_hfl.learning.own.task import OwnTask, TorchTask

_HOME = {
    "api.centralised": ("Central", "central"),
    "api.data": ("ShownData", "fetch_data", "list_data", "show_data", "verify_data"),
    "api.deployed": ("cluster", "collect"),
    "api.listings": ("init", "methods", "networks", "presets", "settings", "tasks"),
    "api.networks": ("ShownNetwork", "show_network"),
    "api.operated": ("drain", "status"),
    "api.reporting": ("export", "report"),
    "api.simulated": ("resume", "run", "run_together"),
    "api.stored_run": ("Run", "load_run"),
    "assembly.runs.decide": ("decide_association", "decide_selection"),
    "assembly.runs.network_recording": ("record_network",),
    "assembly.runs.replay": ("replay",),
    "experiments.commands.compare": ("compare",),
    "experiments.commands.experiment": ("Experiment",),
    "experiments.commands.paper": ("paper",),
    "experiments.commands.sweep": ("sweep",),
    "experiments.commands.tune": ("tune",),
    "learning.own.modules": ("from_equinox", "from_flax", "from_nnx"),
    "learning.own.task": ("OwnTask", "TorchTask"),
}
"""The public names by the module that defines them."""

__all__ = [
    "Central",
    "Experiment",
    "OwnTask",
    "Run",
    "ShownData",
    "ShownNetwork",
    "TorchTask",
    "central",
    "cluster",
    "collect",
    "compare",
    "decide_association",
    "decide_selection",
    "drain",
    "export",
    "fetch_data",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "init",
    "list_data",
    "load_run",
    "methods",
    "networks",
    "paper",
    "presets",
    "record_network",
    "replay",
    "report",
    "resume",
    "run",
    "run_together",
    "settings",
    "show_data",
    "show_network",
    "status",
    "sweep",
    "tasks",
    "tune",
    "verify_data",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `async-hfl --help` does not load the learning libraries.
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"async_hfl.{module}"), name)
    raise AttributeError(f"module 'async_hfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
