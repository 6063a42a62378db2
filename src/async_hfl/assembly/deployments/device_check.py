"""`async-hfl device --check`: what a device would do when it joins, without joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from async_hfl.assembly.deployments.deployed_nodes import settings_text
from async_hfl.assembly.deployments.local_learning import Local, Part, local_learner
from async_hfl.assembly.settings.loading import compose
from async_hfl.deployment.training.child_process import LocalLearner, Ready, TrainingChild


class _Nobody:
    def trained(self, *told: Any) -> None:
        return

    broke = evaluated = trained

    def gone(self) -> None:
        return


def check_device(task: str | None, local: Local, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Loads and trains in a process of its own, as it will be; raises what is wrong. The settings are the task's."""
    parts = [source for source in local.sources if isinstance(source, Part)]
    devices = [f"task.devices={parts[0].of}"] if parts else []
    composed = compose(task=task, network="deployed", overrides=[*overrides, *devices])
    text = settings_text(composed.settings)

    child = TrainingChild(_Make(text, composed.choice.seed, local), _Nobody())
    try:
        ready = child.start()
    finally:
        child.close()
    return {
        "task": composed.choice.task,
        "samples": list(ready.samples),
        "compute_s": [spent.seconds for spent in ready.spent],
        "busy_s": [spent.busy_s for spent in ready.spent],
        "model_bytes": ready.model_bytes,
    }


class _Make:
    """Travels to the other process."""

    def __init__(self, text: str, seed: int, local: Local) -> None:
        self._arguments = (text, seed, "", local)

    def __call__(self) -> tuple[LocalLearner, Ready]:
        return local_learner(*self._arguments)
