"""Checks that involve several settings: invalid combinations, and settings that a run would never read.

A setting that has no effect with the chosen task, network or method is an error, since it is most likely a mistake. The
packaged files are exempt: they may contain values that only some combinations read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from async_hfl.assembly.build.aggregation_rules import CLOUD_RULES, GATEWAY_RULES, Registered, check_known
from async_hfl.assembly.settings.checks.contributions import check_contributions
from async_hfl.assembly.settings.environment import OutagesSection, RadioSection
from async_hfl.assembly.settings.network_kinds import BY_RADIO, DEPLOYED, READ_BY, network_kind
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.core.errors import SettingsError
from async_hfl.learning.partition.registry import PARTITIONERS
from async_hfl.learning.tasks.catalogue import TASKS

PACKAGED = ("task ", "network ", "preset ", "method ")
"""Prefixes of the sources that are packaged files."""
_MAY_BE_INFINITE = {
    "association.max_latency_ratio",
    "cloud.time_limit",
    "gateway.round_patience",
    "gateway.round_deadline",
    "privacy.clip",
} | {f"outages.{part}_up" for part in ("device", "link", "gateway")}
_READ_WITH = {
    "selection.inside_tier": ("selection.policy", {"tifl"}),
    "selection.participants": ("gateway.aggregation", {"rounds"}),
    "gateway.gain": ("gateway.weighting", {"share"}),
    "gateway.trim": ("gateway.robust", {"trimmed-mean"}),
    "gateway.robust_window": ("gateway.robust", {"clip", "trimmed-mean", "median"}),
    "association.file": ("association.policy", {"fixed"}),
    "association.redraw": ("association.policy", {"random"}),
    "utility.sketch_size": ("utility.compression", {"sketch"}),
    "utility.components": ("utility.compression", {"pca"}),
    "device.momentum": ("device.optimiser", {"sgd"}),
    **{f"device.adam_{key}": ("device.optimiser", {"adam", "adamw"}) for key in ("beta1", "beta2", "epsilon")},
    "cloud.momentum": ("cloud.optimiser", {"momentum"}),
    **{f"cloud.adam_{key}": ("cloud.optimiser", {"adam"}) for key in ("rate", "beta1", "beta2", "epsilon")},
}
"""Setting -> another setting, and the values of that one with which the first is read."""
_DEPLOYED_ONLY = (
    "evaluation.where",
    "evaluation.period",
    "evaluation.devices",
    "evaluation.patience",
    "journal.",
    "cloud.start",
    "cloud.gateway_patience",
    "cloud.linger",
    "cloud.lost_patience",
    "gateway.cloud_patience",
    "gateway.linger",
)
_SIMULATED_ONLY = ("outages.", "simulation.", "radio.")


def check(settings: Settings, origin: Mapping[str, str]) -> None:
    """Raise SettingsError if settings do not fit together. `origin` maps each setting that was given to its source."""
    _check_finite(settings, origin)
    _check_combinations(settings)
    given = {path: source for path, source in origin.items() if not source.startswith(PACKAGED)}
    _check_policies(settings, given)
    _check_rules(settings, given)
    _check_shell(settings, given)
    _check_task_and_network(settings, given)
    _check_outages(settings.outages, origin)
    check_contributions(settings, given)


def _check_finite(settings: Settings, origin: Mapping[str, str]) -> None:
    for section, values in msgspec.to_builtins(settings).items():
        for key, value in values.items():
            path = f"{section}.{key}"
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, float) and not math.isfinite(one) and path not in _MAY_BE_INFINITE:
                    raise SettingsError(f"{path} = {one} ({origin.get(path)}): must be a finite number")


def _check_combinations(settings: Settings) -> None:
    if settings.gateway.aggregation == "relay" and settings.cloud.aggregation == "average":
        raise SettingsError(
            "cloud.aggregation = 'average' needs a model from every gateway, but relays send single device updates: "
            "use gateway.aggregation = 'rounds' or 'periods', or cloud.aggregation = 'mix'"
        )
    if settings.gateway.during_upload == "continue" and settings.gateway.in_flight == "discard":
        raise SettingsError(
            "gateway.in_flight = 'discard' ends the jobs in flight at an upload, but with gateway.during_upload = "
            "'continue' devices go on meanwhile: choose one of the two"
        )
    if settings.utility.compression == "pca" and not settings.warmup.enabled:
        raise SettingsError(
            "utility.compression = 'pca' is fitted to the gradients of the warm-up, but warmup.enabled is false: "
            "use 'sketch', which needs no warm-up, or enable the warm-up"
        )
    if settings.selection.participants != "auto" and settings.selection.policy == "utility-knapsack":
        raise SettingsError(
            "selection.participants: the knapsack of utility-knapsack is limited by the bandwidth alone, not by a "
            "number of devices: leave it out, or choose another selection.policy"
        )
    network = settings.network
    for low, high in (("min_rate", "max_rate"), ("min_compute", "max_compute")):
        if getattr(network, low) > getattr(network, high):
            raise SettingsError(f"network.{low} = {getattr(network, low)} is above network.{high}: swap them")
    if settings.device.learning_rate > 1e3:
        raise SettingsError(f"device.learning_rate = {settings.device.learning_rate}: must be at most 1000")


def _check_policies(settings: Settings, given: Mapping[str, str]) -> None:
    for path, (decider, values) in _READ_WITH.items():
        section, key = decider.split(".")
        chosen = getattr(getattr(settings, section), key)
        if path in given and chosen not in values:
            raise SettingsError(f"{path} ({given[path]}): has no effect with {decider} = {chosen!r}; leave it out")


def _check_rules(settings: Settings, given: Mapping[str, str]) -> None:
    """Check the names of the aggregation rules, and that the chosen rules read the settings given for rules."""
    rules: tuple[tuple[str, str, Mapping[str, Registered[Any, Any]]], ...] = (
        ("gateway", settings.gateway.aggregation, GATEWAY_RULES),
        ("cloud", settings.cloud.aggregation, CLOUD_RULES),
    )
    for section, chosen, registry in rules:
        check_known(f"{section}.aggregation", chosen, registry)
        for path in given:
            key = path.removeprefix(f"{section}.")
            special = any(key in rule.reads for rule in registry.values())
            if key != path and special and chosen in registry and key not in registry[chosen].reads:
                raise SettingsError(
                    f"{path} ({given[path]}): has no effect with {section}.aggregation = {chosen!r}; leave it out"
                )


def _check_shell(settings: Settings, given: Mapping[str, str]) -> None:
    deployed = settings.network.name == DEPLOYED
    others = _SIMULATED_ONLY if deployed else _DEPLOYED_ONLY
    kind = "deployed" if deployed else "simulated"
    for path, source in given.items():
        if path.startswith(others):
            raise SettingsError(f"{path} ({source}): has no effect in a {kind} run; leave it out")


def _check_task_and_network(settings: Settings, given: Mapping[str, str]) -> None:
    task, network = settings.task, settings.network
    if task.name == "null":
        read = {"model_size"}
    elif is_user_code(task.name):
        read = {"refresh"}
    else:
        known, partitioner = TASKS.get(task.name), PARTITIONERS.get(task.partition)
        read = {"partition", "refresh", *(known.reads if known else ())}
        read |= set(partitioner.arguments) if partitioner else set()
    partitioned = "" if is_user_code(task.name) else f" with the partition {task.partition}"
    kind = network_kind(network)
    by_radio = set(RadioSection.__struct_fields__) if kind in BY_RADIO else set()
    for section, keys, what in (
        ("task", read | {"name", "devices", "target", "ladder"}, f"the task {task.name}{partitioned}"),
        ("network", READ_BY[kind] | {"name"}, f"the network {kind}"),
        ("radio", by_radio, f"the network {kind}"),
    ):
        for path, source in given.items():
            if path.startswith(f"{section}.") and path.removeprefix(f"{section}.") not in keys:
                raise SettingsError(f"{path} ({source}): {what} does not read it; leave it out")


def _check_outages(outages: OutagesSection, origin: Mapping[str, str]) -> None:
    needed = {f"{part}_down": f"{part}_up" for part in ("device", "link", "gateway")}
    idle = {down: up for down, up in needed.items() if math.isinf(getattr(outages, up))}
    if outages.distribution != "log-normal":
        idle["spread"] = "distribution = 'log-normal'"
    if outages.stragglers == 0.0:
        idle["straggler_from"] = "stragglers"
        if not outages.schedule and not outages.file:
            idle["straggler_factor"] = "stragglers"
    for key, other in idle.items():
        if source := origin.get(f"outages.{key}"):
            raise SettingsError(f"outages.{key} ({source}): has no effect without outages.{other}; set that too")
