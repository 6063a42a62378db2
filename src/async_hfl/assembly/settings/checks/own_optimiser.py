"""Checks that settings of the optimiser are read if the user's task has an optimiser of its own."""

from __future__ import annotations

from collections.abc import Mapping

from async_hfl.assembly.settings.checks.consistency import PACKAGED
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_optimiser_kind
from async_hfl.core.errors import SettingsError

_OF_RULE = ("momentum", "optimiser", "adam_beta1", "adam_beta2", "adam_epsilon")


def check_own_optimiser(settings: Settings, seed: int, origin: Mapping[str, str]) -> None:
    """Raise SettingsError if a setting of the optimiser was given that the task's own replaces."""
    name = settings.task.name
    if not is_user_code(name):
        return
    kind = own_optimiser_kind(name, settings.task.devices, seed)
    if kind == "none":
        return
    without_rate = kind == "transformation"
    for key in (*_OF_RULE, *(("learning_rate",) if without_rate else ())):
        source = origin.get(f"device.{key}", PACKAGED[0])
        if not source.startswith(PACKAGED):
            advice = "; make it a function of the learning rate, or leave this out" if key == "learning_rate" else ""
            raise SettingsError(
                f"device.{key} ({source}): has no effect, since {name} has an optimiser of its own"
                f"{advice or '; leave it out'}"
            )
