"""Asynchronous hierarchical federated learning in real, unreliable IoT networks.

import async_hfl
run = async_hfl.run(task="digits", method="async-hfl", network="nycmesh-paper", seed=1)
run.summary["time_to_target_s"], run.epochs[-1], run.model
async_hfl.load_run(run.path)
async_hfl.decide_selection("problem.json")["selected"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; at run time the names are imported on first use (see __getattr__)
    from async_hfl.api import Central, Run, central, load_run, resume, run, run_together
    from async_hfl.assembly.runs.decide import decide_association, decide_selection
    from async_hfl.assembly.runs.network_recording import record_network
    from async_hfl.learning.own.modules import from_equinox, from_flax, from_nnx
    from async_hfl.learning.own.task import OwnTask, TorchTask

__all__ = [
    "Central",
    "OwnTask",
    "Run",
    "TorchTask",
    "central",
    "decide_association",
    "decide_selection",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "load_run",
    "record_network",
    "resume",
    "run",
    "run_together",
]

_HOME = {
    "OwnTask": "async_hfl.learning.own.task",
    "TorchTask": "async_hfl.learning.own.task",
    "decide_association": "async_hfl.assembly.runs.decide",
    "decide_selection": "async_hfl.assembly.runs.decide",
    "from_equinox": "async_hfl.learning.own.modules",
    "from_flax": "async_hfl.learning.own.modules",
    "from_nnx": "async_hfl.learning.own.modules",
    "record_network": "async_hfl.assembly.runs.network_recording",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `async-hfl --help` does not load the learning libraries.
    if name in __all__:
        return getattr(import_module(_HOME.get(name, "async_hfl.api")), name)
    raise AttributeError(f"module 'async_hfl' has no attribute {name!r}")
