"""The settings that tuning chose for a method, as a plan applies them and a kept result names them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settings: dict[str, Any]
    """Setting -> value."""
    seeds: list[int]
    """The seeds of the runs from which they were chosen; no result may be reported on these."""
    digest: str
    """The digest of the tuning file."""
    made: str
    """The time at which they were chosen, in UTC."""
    under: list[str] = msgspec.field(default_factory=list)
    """Settings of the runs of the tuning in which they differ from this run, for a footnote."""

    def only(self, settings: Collection[str]) -> Tuned:
        """Return the tuning without the other settings, for a run that differs on purpose from those of the tuning."""
        kept = {key: value for key, value in self.settings.items() if key in settings}
        return msgspec.structs.replace(self, settings=kept, under=[])

    def overrides(self) -> list[str]:
        """Return the settings as texts for `--set`."""
        return setting_texts(self.settings)


def setting_texts(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
