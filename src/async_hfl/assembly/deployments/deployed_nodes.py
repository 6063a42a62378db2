"""Building of a deployed node from its identity, as its process and a replay do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from async_hfl.assembly.build.nodes import cloud_node, device_node, gateway_node, method_of
from async_hfl.assembly.build.wire import WireFacts, wire_facts
from async_hfl.assembly.settings.loading import as_table, bandwidth_share, bytes_per_second, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.maths.targets import Target
from async_hfl.core.topology import no_links
from async_hfl.core.weights import Weights
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import MembershipRules
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode


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

    @staticmethod
    def of(identity: NodeIdentity) -> TaskFacts:
        return TaskFacts(**identity.facts)

    @property
    def target(self) -> Target:
        return Target(self.metric, self.threshold, self.direction)  # type: ignore[arg-type]


def settings_text(settings: Settings) -> str:
    return json.dumps(as_table(settings), sort_keys=True)


def settings_of(identity: NodeIdentity) -> Settings:
    return settings_from(json.loads(identity.settings))


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
        cloud_patience=settings.gateway.cloud_patience,
        track_losses=True,
    )


def deployed_device(identity: NodeIdentity) -> DeviceNode:
    settings, facts = settings_of(identity), TaskFacts.of(identity)
    return device_node(method_of(settings, facts.seed), wire_of(settings, facts))


def _bandwidth(settings: Settings) -> float:
    """Return B_j; unlimited at first if it is a share of the demand, which the warm-up measures."""
    value = settings.gateway.bandwidth
    return bytes_per_second("unlimited" if bandwidth_share(value) is not None else value)
