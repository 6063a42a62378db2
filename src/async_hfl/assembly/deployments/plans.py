"""The composition root of a deployment: makes the plans of the processes from settings and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from async_hfl.assembly.build.nodes import check_sketch
from async_hfl.assembly.build.task import build_learner
from async_hfl.assembly.build.wire import WireFacts, wire_facts
from async_hfl.assembly.deployments.deployed_nodes import (
    TaskFacts,
    deployed_cloud,
    deployed_device,
    deployed_gateway,
    method_for,
    settings_digest,
    settings_of,
    settings_text,
)
from async_hfl.assembly.deployments.local_learning import Local, local_learner, task_digest
from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.core.learner import Learner
from async_hfl.core.weights import Weights
from async_hfl.deployment.processes.cloud import CloudPlan
from async_hfl.deployment.processes.device import DevicePlan
from async_hfl.deployment.processes.gateway import GatewayPlan
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.training.child_process import LocalLearner, Ready
from async_hfl.journal.model_file import save_model


def cloud_plan(name: str, choice: RunChoice, settings: Settings) -> CloudPlan:
    """Load the task, compile its evaluation, and return the plan of a cloud."""
    method = method_for(settings, choice.seed)
    learner = build_learner(settings, choice.seed, method.gradient)
    check_sketch(method, learner)
    learner.compile()
    text = settings_text(settings)
    weights = learner.initial_weights(choice.seed)
    wire = wire_facts(settings, learner, weights)
    facts = _facts(learner, choice, wire)
    learner.evaluate(weights)

    def save(path: Path, final: Weights) -> None:
        save_model(path, learner.layout, final)

    return CloudPlan(
        name,
        text,
        settings_digest(text),
        asdict(facts),
        lambda identity: deployed_cloud(identity, weights),
        method.association,
        learner.evaluate,
        save,
        wire.model_bytes,
        settings.cloud.linger,
        settings.journal.payload_budget,
    )


def _facts(learner: Learner, choice: RunChoice, wire: WireFacts) -> TaskFacts:
    target = learner.target
    return TaskFacts(
        wire.model_bytes,
        learner.layout.size,
        learner.gradient_size,
        learner.learning_rate,
        choice.seed,
        target.metric,
        target.threshold,
        target.direction,
        choice.task,
        task_digest(choice.task, learner.layout),
        choice.method,
        wire.encoding.half,
        wire.encoding.zstd,
        wire.share,
    )


def gateway_plan(name: str) -> GatewayPlan:
    return GatewayPlan(name, deployed_gateway, _budget, lambda identity: settings_of(identity).gateway.linger)


def device_plan(names: Sequence[str], local: Local, slowdowns: Sequence[float] = ()) -> DevicePlan:
    return DevicePlan(list(names), deployed_device, partial(_child, local), _budget, slowdowns)


def _child(local: Local, identity: NodeIdentity) -> Callable[[], tuple[LocalLearner, Ready]]:
    facts = TaskFacts.of(identity)
    return partial(local_learner, identity.settings, facts.seed, facts.task_digest, local)


def _budget(identity: NodeIdentity) -> int:
    return settings_of(identity).journal.payload_budget
