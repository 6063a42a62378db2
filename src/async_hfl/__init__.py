"""Asynchronous hierarchical federated learning in real, unreliable IoT networks.

import async_hfl
run = async_hfl.run(task="digits", method="async-hfl", network="nycmesh-paper", seed=1)
run.summary["time_to_target_s"], run.epochs[-1], run.model
async_hfl.load_run(run.path)
async_hfl.decide_selection("problem.json")["selected"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from async_hfl.api import Run, decide_association, decide_selection, load_run, resume, run

__all__ = ["Run", "decide_association", "decide_selection", "load_run", "resume", "run"]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `async-hfl --help` need not wait for the learning libraries.
    if name in __all__:
        from async_hfl import api

        return getattr(api, name)
    raise AttributeError(f"module 'async_hfl' has no attribute {name!r}")
