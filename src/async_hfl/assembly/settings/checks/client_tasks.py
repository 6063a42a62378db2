"""The check that nobody sets how devices train if clients of the user's own do that."""

from __future__ import annotations

from collections.abc import Mapping

from async_hfl.assembly.settings.checks.consistency import PACKAGED
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_task import own_kind
from async_hfl.core.errors import SettingsError

_UNREAD = ("device.", "central.", "engine.", "task.refresh")


def check_client_settings(settings: Settings, seed: int, origin: Mapping[str, str]) -> None:
    task = settings.task
    unread = {path: source for path, source in origin.items() if path.startswith(_UNREAD)}
    given = {path: source for path, source in unread.items() if not source.startswith(PACKAGED)}
    if given and is_user_code(task.name) and own_kind(task.name, task.devices, seed) == "clients":
        path, source = next(iter(given.items()))
        raise SettingsError(
            f"{path} ({source}): has no effect, since the clients of {task.name} train by code of their own; leave it "
            "out, and give their configuration as config= or run_config= to the adapter"
        )
