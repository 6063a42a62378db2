"""Small random worlds for whole runs, and a journal in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.maths.projection import CountSketch
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy
from async_hfl.core.protocol.records import EpochRecord, Record, SentRecord
from async_hfl.core.randomness import stream_seed
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.network.bandwidth import demand
from async_hfl.network.description import DelayModel, NetworkDescription
from async_hfl.network.topologies.uniform import uniform
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.simulation.accounting.byte_counts import Spent
from async_hfl.simulation.simulator import Simulator
from async_hfl.simulation.world import World

SIZE = 64
ENCODINGS: list[EncodingKind] = ["float32", "float16", "int8", "int4"]
FAMILIES = {"mix": MixOnArrival, "periods": Periods, "rounds": Rounds}


@dataclass(frozen=True)
class Plan:
    """All parameters of a run."""

    seed: int
    devices: int
    gateways: int
    bandwidth_share: float
    epochs: int
    cycle: int
    relay: bool
    utility: bool
    solve_assignment: bool
    gradient: str
    warmup: bool
    delivery: str
    drag: float
    in_flight: str
    impatient: bool
    """Every device times out before it can answer. Only with one gateway, since another one could then select it."""
    max_staleness: int | None
    batching: bool = True
    family: str = "mix"
    """Aggregation rule of the gateways, unless they relay updates."""
    averages: bool = False
    """The cloud averages the uploads when all gateways have reported."""
    compression: str = "none"
    min_participation: float = 0.0
    up: EncodingKind = "float32"
    down: EncodingKind = "float32"

    @property
    def codec(self) -> ModelCodec:
        whole = self.compression == "none"
        return ModelCodec(self.up, self.down, size=SIZE, trained=SIZE, seed=self.seed, encodes_gradients=whole)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    relay = draw(st.booleans()) and draw(st.booleans())
    utility = draw(st.booleans()) and not relay
    gateways = draw(st.integers(1, 3))
    family = "mix" if relay else draw(st.sampled_from(["mix", "mix", "periods", "rounds"]))
    warmup = draw(st.booleans())
    return Plan(
        seed=draw(st.integers(0, 10**6)),
        devices=draw(st.integers(1, 9)),
        gateways=gateways,
        bandwidth_share=draw(st.sampled_from([0.05, 0.3, 1.0, 5.0])),
        epochs=draw(st.integers(2, 12)),
        cycle=draw(st.integers(1, 5)),
        relay=relay,
        utility=utility,
        solve_assignment=utility and draw(st.booleans()),
        gradient=draw(st.sampled_from(["last", "update"])) if utility else "none",
        warmup=warmup,
        delivery=draw(st.sampled_from(["reply", "reply", "broadcast"])),
        drag=draw(st.sampled_from([0.0, 0.5, 1.0])),
        in_flight=draw(st.sampled_from(["carry", "carry", "discard"])),
        # In rounds, an update of a device that timed out is too late: nothing would ever be aggregated.
        impatient=gateways == 1 and family != "rounds" and draw(st.booleans()),
        max_staleness=draw(st.sampled_from([None, None, 2])),
        family=family,
        averages=family != "mix" and draw(st.booleans()),
        compression=draw(st.sampled_from(["none", "sketch", *(["pca"] if warmup else [])])) if utility else "none",
        min_participation=draw(st.sampled_from([0.0, 0.0, 0.3])),
        up=draw(st.sampled_from(ENCODINGS)),
        down=draw(st.sampled_from(ENCODINGS)),
    )


@dataclass
class Memory:
    """A `Journal` that keeps all records in memory."""

    records: list[Record] = field(default_factory=list)
    totals: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, bytes sent so far)."""

    def write(self, record: Record) -> None:
        self.records.append(record)

    def write_sent(self, at: float, sender: object, receiver: object, message: str, about: object, *more: Any) -> None:
        """Keep addresses and ids by their names, "g0" or "d3", which are easier to read in a failing test."""
        record = SentRecord(at, str(sender), str(receiver), message, str(about), *more)  # type: ignore[arg-type]
        self.records.append(record)

    def note_epoch(self, record: EpochRecord, spent: Spent) -> None:
        self.totals.append((record.epoch, spent.total))

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if type(record) is kind]


def network_of(plan: Plan) -> NetworkDescription:
    return uniform(plan.devices, plan.gateways, 4 * SIZE, plan.seed)


def world_of(plan: Plan) -> World:
    network = network_of(plan)
    learner = StubLearner(plan.devices, SIZE, gradient=plan.gradient == "last")
    selection: SelectionPolicy = UtilityKnapsack() if plan.utility else RandomSelection()
    # Redrawing the association moves devices all the time, which exercises leases and their release.
    association: AssociationPolicy = BalancedUtility() if plan.solve_assignment else RandomAssociation(True)
    bandwidth = plan.bandwidth_share * demand(network.links, learner.model_bytes)
    gateway, cloud = _rules(plan, bandwidth, learner)
    return World(
        CloudNode(
            cloud,
            network.links,
            learner.samples,
            learner.initial_weights(plan.seed),
            AverageUploads() if plan.averages else MixUploads(),
            revisits=association.revisits,
        ),
        [
            GatewayNode(
                replace(gateway, number=j, seed=stream_seed(plan.seed, "selection", j)),
                selection,
                Relay() if plan.relay else FAMILIES[plan.family](),
            )
            for j in range(plan.gateways)
        ],
        [DeviceNode(gateway.sketch, plan.codec) for _ in range(plan.devices)],
        learner,
        network.delays,
        association,
        learner.model_bytes,
        plan.seed,
        plan.batching,
        codec=plan.codec,
    )


class Slower:
    """A delay model whose devices compute `times` longer than they announced on joining."""

    def __init__(self, delays: DelayModel, times: float) -> None:
        self.delays = delays
        self.times = times

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        return self.delays.to_device(gateway, device, size_bytes)

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        return self.delays.to_gateway(device, gateway, size_bytes)

    def compute(self, device: int) -> float:
        return self.times * self.delays.compute(device)

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.delays.gateway_to_cloud(gateway, size_bytes)

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.delays.cloud_to_gateway(gateway, size_bytes)

    def snapshot(self) -> Any:
        return self.delays.snapshot()

    def restore(self, data: Any) -> None:
        self.delays.restore(data)


def simulator_of(plan: Plan) -> tuple[Simulator, Memory]:
    journal = Memory()
    return Simulator(world_of(plan), journal), journal


def _rules(plan: Plan, bandwidth: float, learner: StubLearner) -> tuple[GatewayConfig, CloudConfig]:
    sketch = CountSketch(plan.seed, 8) if plan.compression == "sketch" else None
    gateway = GatewayConfig(
        number=0,
        bandwidth=bandwidth,
        epochs=plan.cycle,
        mixing_weight=0.9,
        drag=plan.drag,
        staleness=StalenessDiscount(),
        max_staleness=plan.max_staleness,
        in_flight=plan.in_flight,  # type: ignore[arg-type]
        staleness_clock="both",
        patience_floor=1.0 if plan.impatient else 60.0,
        patience_factor=0.5 if plan.impatient else 5.0,
        cycle_patience=600.0,
        reply_patience=120.0,
        model_bytes=learner.model_bytes,
        latency_exponent=1.0,
        utility_scale="rank",
        utility_floor=0.1,
        gradient=plan.gradient,  # type: ignore[arg-type]
        gradient_size=SIZE,
        learning_rate=0.1,
        seed=0,
        period=40.0,
        min_participation=plan.min_participation,
        sketch=sketch,
        codec=plan.codec,
    )
    cloud = CloudConfig(
        gateways=plan.gateways,
        epochs=plan.epochs * (3 if plan.relay else 1),
        epochs_after_target=0,
        mixing_weight=0.9,
        staleness=StalenessDiscount(),
        max_staleness=1000,
        delivery=plan.delivery,  # type: ignore[arg-type]
        evaluate_every=3 if plan.relay else 1,
        warmup=plan.warmup,
        warmup_quorum=0.5,
        warmup_patience=0.0,
        warmup_limit=3600.0,
        association_period=2,
        load_penalty=0.1,
        every_device=True,
        switching_cost=0.0,
        utility_scale="mean",
        max_latency_ratio=float("inf"),
        bandwidth=(bandwidth,) * plan.gateways,
        model_bytes=learner.model_bytes,
        gradient=plan.gradient,  # type: ignore[arg-type]
        gradient_size=SIZE,
        target=learner.target,
        seed=stream_seed(plan.seed, "association"),
        sketch=sketch,
        codec=plan.codec,
        components=3 if plan.compression == "pca" else 0,
    )
    return gateway, cloud


def feasible_pairs(plan: Plan) -> set[tuple[int, int]]:
    links = network_of(plan).links
    return set(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True))


def final_weights(simulator: Simulator) -> bytes:
    return bytes(np.ascontiguousarray(simulator.world.cloud.state.weights).tobytes())
