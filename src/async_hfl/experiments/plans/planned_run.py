"""One run of a plan, with an id that identifies its result.

The id contains a digest of everything that the result depends on: the composed settings, the seed, the versions of the
libraries, and the content of the user's files. A run that exists under its id never has to be made again. Kept results
are found by another digest, which leaves out the versions and the settings that have the schema's defaults: it stays
the same when a later version adds a setting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from async_hfl.assembly.runs.provenance import check_seed, code_names, user_files, versions
from async_hfl.assembly.settings.loading import as_table, compose
from async_hfl.assembly.settings.named_files import short_name
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.objects import is_object, shown
from async_hfl.core.errors import UserError
from async_hfl.experiments.tuning.tunables import tunables_of
from async_hfl.experiments.tuning.tuned import Tuned
from async_hfl.experiments.tuning.tuning_file import Place, Tunings
from async_hfl.reports.tables.formatting import flat_settings

_DIGEST_BYTES = 6
Role = Literal["compared", "equipped", "ablation", "tuning"]
"""The part of a run in docs/results/comparison.md. compared: a method as published, or Async-HFL+. equipped: a rival
that was given light updates and momentum as well. ablation: shown beside its base only. tuning: not shown."""


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
    digest: str
    settings: dict[str, Any]
    """The composed settings that differ from the defaults of the schema."""
    levels: tuple[float, ...]
    """The levels of the metric that are looked up: target and ladder of the task, and those that the plan names."""
    role: Role = "compared"
    base: str = ""
    """ablation: the group that the run is compared with."""
    tuned: Tuned | None = None
    """The tuning that the overrides contain."""
    parts: bool = False
    """The mean times of download, training and upload of each device are part of the result."""
    objects: dict[str, str] = field(default_factory=dict)
    """Settings that are objects made in Python, which only this process can run -> their names."""

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
    tuning: Tunings | None = None,
    tuned_as: str | None = None,
    keep: Collection[str] | None = None,
    levels: Sequence[float] = (),
    role: Role = "compared",
    base: str = "",
    parts: bool = False,
) -> PlannedRun:
    """Compose the settings of a run now, so that mistakes are reported before anything runs.

    `label` replaces the name of the method and `variant` distinguishes runs of that name; with `best` the best variant
    represents the method. If the tuning file has settings for `tuned_as` (by default this name), they replace those in
    `overrides`. With `keep` these do not, nor those that the method does not have.
    """
    compose_with = partial(compose, task=task, method=method, network=network, preset=preset, seed=seed)
    composed = compose_with(overrides=overrides)
    choice = composed.choice
    check_seed(choice.seed)
    family = label or choice.method
    tuned = None
    if tuning is not None:
        place = Place.of(choice.task, choice.network, choice.preset)
        tuned = tuning.tuned(place, tuned_as or family, _different(composed.settings))
        if tuned is not None and keep is not None:
            tuned = tuned.only({one.setting for one in tunables_of(composed.settings, keep)})
    if tuned is not None:
        _check_reported_seed(choice.seed, family, tuned)
        overrides = [*overrides, *tuned.overrides()]
        composed = compose_with(overrides=overrides)
    settings = composed.settings
    named = {key: getattr(choice, key) for key in ("task", "method", "network", "preset", "seed")}
    known = {**named, "settings": as_table(settings), "versions": versions(), "user_files": user_files(settings)}
    different = _different(settings)
    short, method, network = map(short_name, (choice.task, choice.method, choice.network))
    group = f"{family}, {variant}" if variant else family
    return PlannedRun(
        id=f"{short}-{method}-{network}-{choice.preset}-s{choice.seed}-{_digest(known)}",
        **named,
        overrides=tuple(overrides),
        group=group,
        family=family if best else group,
        panel=panel or f"{shown(choice.task)} · {shown(choice.network)} · {choice.preset}",
        epochs=settings.last_epoch,
        target=settings.task.target,
        digest=_digest({**named, "settings": different, "user_files": sorted(known["user_files"].values())}),
        settings=different,
        levels=tuple(sorted({settings.task.target, *settings.task.ladder, *levels})),
        role=role,
        base=base,
        tuned=tuned,
        parts=parts,
        objects={setting: name for setting, name in code_names(settings).items() if is_object(name)},
    )


def _different(settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from the defaults of the schema."""
    usual = flat_settings(as_table(Settings()))
    return {key: value for key, value in flat_settings(as_table(settings)).items() if usual.get(key) != value}


def _check_reported_seed(seed: int, name: str, tuned: Tuned) -> None:
    if seed in tuned.seeds:
        raise UserError(
            f"seed {seed}: the settings of {name} were chosen on it; report other seeds than those of the tuning "
            f"({', '.join(map(str, tuned.seeds))})"
        )


def check_not_tuned(runs: Iterable[PlannedRun], settings: Collection[str], where: str) -> None:
    """Raise UserError if the user gave a value for one of the settings that tuning chose."""
    for run in runs:
        for key in settings:
            if run.tuned is not None and key in run.tuned.settings:
                raise UserError(
                    f"{where} {key}: the tuning file has a value of it for {run.family}; leave out one of the two"
                )


def _digest(known: dict[str, Any]) -> str:
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
