"""`async-hfl device --check`: loads the task and trains once, as a device does before it joins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from async_hfl.assembly.deployments.deployed_nodes import settings_text
from async_hfl.assembly.deployments.local_learning import Local, Part, local_learner
from async_hfl.assembly.settings.loading import compose
from async_hfl.deployment.training.child_process import TrainingChild


class _IgnoreResults:
    def trained(self, *result: Any) -> None:
        return

    broke = evaluated = gone = trained


def check_device(task: str | None, local: Local, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Load and train in a child process, with the settings of the task. Raises UserError if that is impossible."""
    parts = [source for source in local.sources if isinstance(source, Part)]
    devices = [f"task.devices={parts[0].of}"] if parts else []
    composed = compose(task=task, network="deployed", overrides=[*overrides, *devices])
    text = settings_text(composed.settings)

    make = partial(local_learner, text, composed.choice.seed, "", local)
    child = TrainingChild(make, _IgnoreResults())
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
