"""A contender of a comparison: a method with settings of its own, under a name of its own.

A rival can be equipped: it is given light updates and momentum at the cloud, so that a comparison shows what the rest
of a method is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from async_hfl.assembly.build.aggregation_rules import CLOUD_RULES
from async_hfl.assembly.settings.loading import compose
from async_hfl.experiments.plans.planned_run import Role

ENCODING = "int8"
MOMENTUM = 0.5


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    """A tuning file has its settings under this name."""
    method: str
    overrides: tuple[str, ...] = ()
    role: Role = "compared"

    @property
    def label(self) -> str | None:
        """The name, if it is not that of the method."""
        return None if self.name == self.method else self.name


def equipped(method: str, task: str | None, preset: str | None, overrides: Sequence[str]) -> Contender | None:
    """Return the method with light updates and, where its cloud averages, momentum; None if it has both already."""
    settings = compose(task=task, method=method, preset=preset, overrides=overrides).settings
    name, added = method, []
    if "float32" in (settings.transfer.up_kind, settings.transfer.down_kind):
        name, added = f"{name} + {ENCODING}", [f"transfer.encoding={ENCODING}"]
    rule = CLOUD_RULES.get(settings.cloud.aggregation)
    plain = settings.cloud.optimiser == "momentum" and not settings.cloud.momentum
    if rule is not None and "momentum" in rule.reads and plain:
        name, added = f"{name} + momentum", [*added, f"cloud.momentum={MOMENTUM}"]
    return Contender(name, method, tuple(added), "equipped") if added else None


def contenders(
    methods: Sequence[str],
    task: str | None,
    preset: str | None,
    overrides: Sequence[str],
    *,
    with_equipped: bool = False,
    untuned: Sequence[str] = (),
) -> list[Contender]:
    """Return the methods; on demand those that can be equipped once more, and those in `untuned` as packaged."""
    found = [Contender(method, method) for method in methods]
    if with_equipped:
        others = (equipped(method, task, preset, overrides) for method in methods)
        found += [one for one in others if one is not None]
    return found + [Contender(f"{method}, untuned", method) for method in untuned]
