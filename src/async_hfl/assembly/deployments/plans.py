"""The composition root of a deployment: the plans of its processes, made from settings and options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from async_hfl.adapters.learner import ClientLearner
from async_hfl.assembly.build.nodes import check_privacy, check_sketch, method_of
from async_hfl.assembly.build.task import build_learner
from async_hfl.assembly.deployments.deployed_nodes import (
    TaskFacts,
    deployed_cloud,
    deployed_device,
    deployed_gateway,
    settings_changed,
    settings_of,
    settings_text,
    wire_of,
)
from async_hfl.assembly.deployments.local_learning import Local, client_learner, local_learner, task_digest
from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.deployment.processes.cloud import CloudPlan
from async_hfl.deployment.processes.device import DevicePlan
from async_hfl.deployment.processes.gateway import GatewayPlan
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.store.node_store import Budget
from async_hfl.deployment.training.child_process import LocalLearner, Ready
from async_hfl.deployment.transport.limits import PACKAGE
from async_hfl.journal.model_file import save_model


def cloud_plan(name: str, choice: RunChoice, settings: Settings) -> CloudPlan:
    """Load the task, compile its evaluation, and return the plan of a cloud."""
    method = method_of(settings, choice.seed)
    learner = build_learner(settings, choice.seed, method.gradient)
    check_sketch(method, learner.gradient_size)
    check_privacy(settings, learner.layout.size, learner.gradient_size)
    learner.compile()
    text = settings_text(settings)
    weights = learner.initial_weights(choice.seed)
    target = learner.target
    facts = TaskFacts(
        model_size=learner.layout.size,
        gradient_size=learner.gradient_size,
        learning_rate=learner.learning_rate,
        seed=choice.seed,
        metric=target.metric,
        threshold=target.threshold,
        direction=target.direction,
        task=choice.task,
        task_digest=task_digest(choice.task, learner.layout),
        method=choice.method,
        up=settings.transfer.up_kind,
        down=settings.transfer.down_kind,
        encodes_gradients=settings.utility.compression == "none",
        # The basis has fewer components than asked for if fewer devices answer in the warm-up.
        projected_sizes=tuple(range(1, method.components + 1)) if method.sketch is None else (method.sketch.size,),
        version=PACKAGE,
        clients=learner.told if isinstance(learner, ClientLearner) else {},
    )
    if settings.evaluation.where == "cloud":
        learner.evaluate(weights)  # compiles it
    return CloudPlan(
        name=name,
        settings=text,
        settings_digest=hashlib.sha256(text.encode()).hexdigest(),
        settings_changed=partial(settings_changed, now=settings),
        facts=asdict(facts),
        make=lambda identity: deployed_cloud(identity, weights),
        association=method.association,
        evaluate=learner.evaluate,
        save_model=lambda path, final: save_model(path, learner.layout, final),
        model_bytes=wire_of(settings, facts).model_bytes,
        linger_s=settings.cloud.linger,
        budget=_budget_of(settings),
    )


def gateway_plan(name: str) -> GatewayPlan:
    return GatewayPlan(name, deployed_gateway, _budget, lambda identity: settings_of(identity).gateway.linger)


def device_plan(names: Sequence[str], local: Local, slowdowns: Sequence[float] = ()) -> DevicePlan:
    return DevicePlan(list(names), deployed_device, partial(_child, local), _budget, slowdowns)


def _child(local: Local, identity: NodeIdentity) -> Callable[[], tuple[LocalLearner, Ready]]:
    facts = TaskFacts.of(identity)
    if local.client:
        return partial(client_learner, identity.settings, facts.seed, facts.clients, facts.target, local)
    return partial(local_learner, identity.settings, facts.seed, facts.task_digest, local)


def _budget(identity: NodeIdentity) -> Budget:
    return _budget_of(settings_of(identity))


def _budget_of(settings: Settings) -> Budget:
    return Budget(payloads=settings.journal.payload_budget, log=settings.journal.log_budget)
