"""One run of a plan, with an id that identifies its result.

The id contains a digest of everything that the result depends on: the composed settings, the seed, the versions of the
libraries, and the content of the user's files. A run that exists under its id never has to be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.assembly.runs.provenance import check_seed, user_files, versions
from async_hfl.assembly.settings.loading import as_table, compose
from async_hfl.assembly.user_code.loading import file_of, is_user_code

_DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True)
class PlannedRun:
    id: str
    task: str
    method: str
    network: str
    preset: str
    seed: int
    overrides: tuple[str, ...]
    """Texts `section.key=value`, as for `--set`."""
    group: str
    """Runs of one group differ only in their seeds: one row of a table, one line of a figure."""
    family: str
    """Groups of one family are variants of a method; the best one represents it."""
    panel: str
    """Only runs in the same panel are compared."""
    epochs: int
    """The maximum number of cloud epochs."""
    target: float

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `api.run`."""
        named = {key: getattr(self, key) for key in ("task", "method", "network", "preset", "seed")}
        return {**named, "overrides": list(self.overrides)}

    @property
    def name(self) -> str:
        """The name shown to people."""
        return f"{self.group} · {self.panel} · seed {self.seed}"


def planned(
    *,
    task: str | None,
    method: str | None,
    network: str | None,
    preset: str | None,
    seed: int,
    overrides: Sequence[str] = (),
    label: str | None = None,
    variant: str = "",
    best: bool = False,
    panel: str | None = None,
) -> PlannedRun:
    """Compose the settings of a run now, so that mistakes are reported before anything runs.

    `label` replaces the name of the method and `variant` distinguishes runs of that name; with `best` the best variant
    represents the method.
    """
    composed = compose(task=task, method=method, network=network, preset=preset, seed=seed, overrides=overrides)
    choice, settings = composed.choice, composed.settings
    check_seed(choice.seed)
    named = {key: getattr(choice, key) for key in ("task", "method", "network", "preset", "seed")}
    known = {**named, "settings": as_table(settings), "versions": versions(), "user_files": user_files(settings)}
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    short, network = (Path(file_of(n)).stem if is_user_code(n) else n for n in (choice.task, choice.network))
    family = label or choice.method
    group = f"{family}, {variant}" if variant else family
    return PlannedRun(
        id=f"{short}-{choice.method}-{network}-{choice.preset}-s{choice.seed}-{digest}",
        **named,
        overrides=tuple(overrides),
        group=group,
        family=family if best else group,
        panel=panel or f"{choice.task} · {choice.network} · {choice.preset}",
        epochs=settings.last_epoch,
        target=settings.task.target,
    )
