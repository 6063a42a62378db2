"""Building of a deployed node from its identity, as its process and a replay do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from async_hfl.assembly.build.evaluation_clock import deployed_clock
from async_hfl.assembly.build.nodes import cloud_node, device_node, gateway_node, method_of
from async_hfl.assembly.build.wire import WireFacts, wire_facts
from async_hfl.assembly.settings.loading import as_table, bandwidth_share, bytes_per_second, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.errors import SettingsError
from async_hfl.core.maths.targets import Target
from async_hfl.core.topology import no_links
from async_hfl.core.weights import Weights
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.transport.limits import PACKAGE
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import GatewayDeployment, MembershipRules
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode

_MOST_NAMED = 3
"""Settings that are named if many have changed."""
_FAILURES = 3
"""Failures in a row after which a gateway sets a device aside."""
_OVERDUE_FACTOR = 3.0
"""A job frees its bandwidth after this many times the round latency of its device."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Facts about a task for nodes that have not loaded it; part of every node's identity."""

    model_size: int
    """Numbers in a model."""
    gradient_size: int
    learning_rate: float
    seed: int
    metric: str
    threshold: float
    direction: str
    task: str
    task_digest: str
    method: str
    up: EncodingKind
    """Encoding of changes on the way to the cloud."""
    down: EncodingKind
    """Encoding of models on the way to the devices."""
    encodes_gradients: bool
    """True if gradients travel in these encodings as well."""
    projected_sizes: tuple[int, ...]
    """Possible lengths of a projected gradient; empty if gradients are not projected."""

    version: str = ""
    """Version of async-hfl of the cloud that began the run."""
    clients: Mapping[str, Any] = field(default_factory=dict)
    """For a task with clients, what a device needs that has the client code alone; otherwise empty."""

    @staticmethod
    def of(identity: NodeIdentity) -> TaskFacts:
        """Return the facts; those that a later release has added are left out."""
        known = {one.name for one in fields(TaskFacts)}
        return TaskFacts(**{name: value for name, value in identity.facts.items() if name in known})

    @property
    def target(self) -> Target:
        return Target(self.metric, self.threshold, self.direction)  # type: ignore[arg-type]


def settings_text(settings: Settings) -> str:
    """Return as JSON the settings that differ from the defaults.

    A release may add a setting whose default keeps the former behaviour, and no default changes: so a node of another
    release fills in the rest as this one does."""
    return json.dumps(_different(as_table(settings), as_table(Settings())), sort_keys=True)


def settings_of(identity: NodeIdentity) -> Settings:
    try:
        return settings_from(json.loads(identity.settings))
    except SettingsError as error:
        theirs = identity.facts.get("version") or "another version"
        raise SettingsError(
            f"the run's settings, of async-hfl {theirs}, do not suit this version, async-hfl {PACKAGE}: {error}. "
            f"Install {theirs} here, or begin a run without that setting"
        ) from error


def settings_changed(then: str, now: Settings) -> str:
    """Return the differences between the settings that a run began with and others, the first few of them by name."""
    before, after = as_table(settings_from(json.loads(then))), as_table(now)
    changed = [
        f"{section}.{key} was {value!r}, now {after[section][key]!r}"
        for section in sorted(before)
        for key, value in sorted(before[section].items())
        if value != after[section][key]
    ]
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    return "; ".join(changed[:_MOST_NAMED]) + more


def _different(table: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of nested tables that differ from the usual ones."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, dict) and isinstance(usual.get(key), dict)
        kept = _different(value, usual[key]) if nested else value
        if kept != ({} if nested else usual.get(key)):
            found[key] = kept
    return found


def wire_of(settings: Settings, facts: TaskFacts) -> WireFacts:
    return wire_facts(
        settings,
        model_size=facts.model_size,
        gradient_size=facts.gradient_size,
        learning_rate=facts.learning_rate,
        seed=facts.seed,
    )


def deployed_cloud(identity: NodeIdentity, weights: Weights) -> CloudNode:
    settings, facts = settings_of(identity), TaskFacts.of(identity)
    start, share = settings.cloud.start, bandwidth_share(settings.gateway.bandwidth)
    membership = MembershipRules(
        start_devices=settings.task.devices if start.devices == "auto" else start.devices,
        start_gateways=settings.network.gateways if start.gateways == "auto" else start.gateways,
        start_patience=start.patience,
        gateway_patience=settings.cloud.gateway_patience,
        lost_patience=settings.cloud.lost_patience,
        bandwidth_share=0.0 if share is None else share,
    )
    return cloud_node(
        settings,
        method_of(settings, facts.seed),
        wire_of(settings, facts),
        target=facts.target,
        links=no_links(),
        samples=np.zeros(0, np.int64),
        weights=weights,
        bandwidth=(_bandwidth(settings),),
        clock=deployed_clock(settings),
        seed=facts.seed,
        membership=membership,
        evaluating_devices=settings.evaluation.devices if settings.evaluation.where == "devices" else 0,
    )


def deployed_gateway(identity: NodeIdentity) -> GatewayNode:
    settings, facts = settings_of(identity), TaskFacts.of(identity)
    return gateway_node(
        settings,
        method_of(settings, facts.seed),
        wire_of(settings, facts),
        number=identity.number,
        bandwidth=_bandwidth(settings),
        seed=facts.seed,
        incarnation=identity.incarnation,
        deployment=GatewayDeployment(
            cloud_patience=settings.gateway.cloud_patience,
            track_losses=True,
            failures=_FAILURES,
            overdue_factor=_OVERDUE_FACTOR,
        ),
    )


def deployed_device(identity: NodeIdentity) -> DeviceNode:
    settings, facts = settings_of(identity), TaskFacts.of(identity)
    return device_node(method_of(settings, facts.seed), wire_of(settings, facts))


def _bandwidth(settings: Settings) -> float:
    """Return B_j; unlimited at first if it is a share of the demand, which the warm-up measures."""
    value = settings.gateway.bandwidth
    return bytes_per_second("unlimited" if bandwidth_share(value) is not None else value)
