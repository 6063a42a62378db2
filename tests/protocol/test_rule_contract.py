"""The contract of aggregation rules: every rule passes it, those of the registry and the examples for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_replay import comparable

from async_hfl.assembly.build.aggregation_rules import CLOUD_RULES, GATEWAY_RULES, cloud_rule, gateway_rule
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.fuzzing.scenarios import fuzz
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.user_code.user_rules import CheckedCloudRule, CheckedGatewayRule
from async_hfl.core.protocol.records import EpochRecord, JobRecord, Record, UploadRecord
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.nodes.cloud.aggregation.rule import CloudAggregation
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation
from async_hfl.simulation.simulator import Simulator
from async_hfl.simulation.world import World

EXAMPLES = Path(__file__).parents[2] / "examples"
GATEWAY = {**{name: name for name in GATEWAY_RULES}, "FedBuff": f"{EXAMPLES}/own_gateway_rule.py:FedBuff"}
CLOUD = {**{name: name for name in CLOUD_RULES}, "Momentum": f"{EXAMPLES}/own_cloud_rule.py:Momentum"}
FAULT_SEEDS = [range(500, 504), pytest.param(range(504, 512), marks=pytest.mark.long)]
GATEWAY_RULE_OF = {"average": "rounds"}
"""The gateways' rule in the tests of a rule of the cloud, if it is not the default."""


class Records:
    """A `Journal` that keeps the records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def write_sent(self, *fields: Any) -> None:
        pass

    def note_epoch(self, record: EpochRecord, spent: object) -> None:
        pass


def world_with(gateway: str, cloud: str) -> World:
    """Return a small world whose rules are checked as a user's are, built-in ones too."""
    overrides = [
        *("task.devices=12", "task.model_size=16", "network.gateways=3", "cloud.epochs=20", "gateway.epochs=3"),
        *(f"gateway.aggregation={gateway}", f"cloud.aggregation={cloud}"),
    ]
    composed = compose(task="null", method="async-hfl", network="uniform", seed=3, overrides=overrides)
    world = build(composed.settings, 3).world
    for node in world.gateways:
        node.aggregation = checked_gateway_rule(gateway)
    world.cloud.aggregation = checked_cloud_rule(cloud)
    return world


def checked_gateway_rule(name: str) -> GatewayAggregation:
    rule = gateway_rule(name).make()
    return rule if isinstance(rule, CheckedGatewayRule) else CheckedGatewayRule(rule, name)


def checked_cloud_rule(name: str) -> CloudAggregation:
    rule = cloud_rule(name).make()
    return rule if isinstance(rule, CheckedCloudRule) else CheckedCloudRule(rule, name)


def run(world: World) -> list[Record]:
    journal = Records()
    simulator = Simulator(world, journal)  # type: ignore[arg-type]
    simulator.start()
    simulator.run()
    return journal.records


def check_run(gateway: str, cloud: str) -> None:
    """A simulated run reaches its end. Every job and every upload ends exactly once, and updates are aggregated."""
    world = world_with(gateway, cloud)
    records = run(world)
    assert world.cloud.state.phase == "over"
    jobs = Counter(record.job for record in records if isinstance(record, JobRecord))
    assert set(jobs.values()) == {1}
    for node in world.gateways:
        assert sum(job.gateway == node.config.number for job in jobs) == node.state.next_job - 1
    uploads = Counter(record.upload for record in records if isinstance(record, UploadRecord))
    assert set(uploads.values()) == {1}
    reasons = Counter(record.reason for record in records if isinstance(record, JobRecord))
    assert reasons["aggregated"] > 0
    assert reasons.keys() <= {"aggregated", "stale", "round_closed", "run_ended", "warmup"}
    assert np.isfinite(np.asarray(world.cloud.state.weights)).all()


def check_restored(gateway: str, cloud: str, node_of: Callable[[World], Any]) -> None:
    """A node restored from a snapshot before every event has the same effects as one that was never interrupted."""
    world = world_with(gateway, cloud)
    node, log = node_of(world), []
    handle = node.handle

    def logged(event: Any) -> Any:
        effects = handle(event)
        log.append((to_plain(event), comparable(to_plain(effects))))
        return effects

    node.handle = logged
    run(world)
    assert len(log) > 20
    other = node_of(world_with(gateway, cloud))
    for number, (event, effects) in enumerate(log):
        if number % 3 == 0:
            data, other = other.snapshot(), node_of(world_with(gateway, cloud))
            other.restore(data)
        assert comparable(to_plain(other.handle(from_plain(event)))) == effects
    assert comparable(other.snapshot()) == comparable(node.snapshot())


@pytest.mark.parametrize("name", GATEWAY)
class TestGatewayRule:
    def test_run(self, name: str) -> None:
        check_run(GATEWAY[name], "mix")

    def test_restored(self, name: str) -> None:
        check_restored(GATEWAY[name], "mix", lambda world: world.gateways[0])

    @pytest.mark.parametrize("seeds", FAULT_SEEDS, ids=["few", "more"])
    def test_under_faults(self, name: str, seeds: range) -> None:
        for seed in seeds:
            fuzz(seed, gateway=GATEWAY[name])


@pytest.mark.parametrize("name", CLOUD)
class TestCloudRule:
    def test_run(self, name: str) -> None:
        check_run(GATEWAY_RULE_OF.get(name, "mix"), CLOUD[name])

    def test_restored(self, name: str) -> None:
        check_restored(GATEWAY_RULE_OF.get(name, "mix"), CLOUD[name], lambda world: world.cloud)

    @pytest.mark.parametrize("seeds", FAULT_SEEDS, ids=["few", "more"])
    def test_under_faults(self, name: str, seeds: range) -> None:
        for seed in seeds:
            fuzz(seed, gateway=GATEWAY_RULE_OF.get(name), cloud=CLOUD[name])
