"""From what a process knows (settings, facts of the task, who it is) to its node. Replay makes the same nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.assembly.build.nodes import MembershipRules, Method, cloud_node, device_node, gateway_node, method_of
from async_hfl.assembly.build.policies import association_policy, selection_policy
from async_hfl.assembly.settings.loading import as_table, bandwidth_share, bytes_per_second, settings_from
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.maths.targets import Target
from async_hfl.core.topology import no_links
from async_hfl.core.weights import Weights
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.node import GatewayNode


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What is told of a task to those who do not have it. Kept with every node's state."""

    model_bytes: int
    """On the wire."""
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
    half: bool
    """Models travel with 16 bits a number, ..."""
    zstd: bool
    """... and compressed, ..."""
    share: float
    """... which makes them this share of what they were."""

    @staticmethod
    def of(card: NodeIdentity) -> TaskFacts:
        return TaskFacts(**card.facts)

    @property
    def target(self) -> Target:
        return Target(self.metric, self.threshold, self.direction)  # type: ignore[arg-type]


def settings_text(settings: Settings) -> str:
    return json.dumps(as_table(settings), sort_keys=True)


def settings_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def settings_of(card: NodeIdentity) -> Settings:
    table: Mapping[str, Any] = json.loads(card.settings)
    return settings_from(dict(table))


def method_for(settings: Settings, seed: int) -> Method:
    return method_of(settings, seed, selection_policy(settings), association_policy(settings))


def deployed_cloud(card: NodeIdentity, weights: Weights) -> CloudNode:
    settings, facts = settings_of(card), TaskFacts.of(card)
    start, share = settings.cloud.start, bandwidth_share(settings.gateway.bandwidth)
    living = MembershipRules(
        settings.task.devices if start.devices == "auto" else start.devices,
        settings.network.gateways if start.gateways == "auto" else start.gateways,
        start.patience,
        settings.cloud.gateway_patience,
        0.0 if share is None else share,
        settings.cloud.lost_patience,
        settings.evaluation.devices if settings.evaluation.where == "devices" else 0,
    )
    return cloud_node(
        settings,
        method_for(settings, facts.seed),
        facts,
        target=facts.target,
        links=no_links(),
        samples=np.zeros(0, np.int64),
        weights=weights,
        bandwidth=(_bandwidth(settings),),
        seed=facts.seed,
        membership=living,
    )


def deployed_gateway(card: NodeIdentity) -> GatewayNode:
    settings, facts = settings_of(card), TaskFacts.of(card)
    return gateway_node(
        settings,
        method_for(settings, facts.seed),
        facts,
        number=card.number,
        bandwidth=_bandwidth(settings),
        seed=facts.seed,
        incarnation=card.incarnation,
        cloud_patience=settings.gateway.cloud_patience,
        accounts=True,
    )


def deployed_device(card: NodeIdentity) -> DeviceNode:
    settings, facts = settings_of(card), TaskFacts.of(card)
    return device_node(method_for(settings, facts.seed))


def _bandwidth(settings: Settings) -> float:
    """Until warm-up has shown the demand there is no limit."""
    value = settings.gateway.bandwidth
    return bytes_per_second("unlimited" if bandwidth_share(value) is not None else value)
