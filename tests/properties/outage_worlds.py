"""Small random simulations with outages, and a watcher that checks every invariant after every event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from run_worlds import SIZE, Memory, Plan, network_of, plans, world_of

from async_hfl.assembly.build.aggregation_rules import CLOUD_RULES, GATEWAY_RULES
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.events import TimerFired
from async_hfl.core.protocol.traffic import HEADER_BYTES
from async_hfl.faults.invariants import Invariants
from async_hfl.network.delays.noisy import NoiseSpread, NoisyDelays
from async_hfl.network.description import DelayModel, SharedAir
from async_hfl.network.outages.on_off import OnOff
from async_hfl.network.outages.plan import Change, OutagePlan, checked_schedule
from async_hfl.nodes.reliability.delivery import TransferOver, Transmit
from async_hfl.simulation.simulator import Simulator

MODEL_BYTES = 4 * SIZE
HEAVY_BYTES = 2_000_000
"""A message with a model takes as long as one of this size, so that it lasts long enough to be cut off."""


@dataclass(frozen=True)
class OutageScenario:
    run: Plan
    outages: OutagePlan | None
    contended: bool
    noisy: bool


@st.composite
def outage_scenarios(draw: st.DrawFn) -> OutageScenario:
    run = replace(draw(plans()), impatient=False)
    links = network_of(run).links
    changes = [
        Change(draw(st.floats(0, 800)), "device", draw(st.integers(0, run.devices - 1)), draw(st.sampled_from(TURNS)))
        for _ in range(draw(st.integers(0, 3)))
    ]
    if run.gateways > 1 and draw(st.booleans()):
        changes.append(Change(draw(st.floats(0, 600)), "gateway", draw(st.integers(0, run.gateways - 1)), "dies"))
    outages = OutagePlan(
        run.seed,
        draw(on_off(400.0, 100.0)),
        draw(on_off(500.0, 60.0)),
        draw(on_off(700.0, 80.0)),
        checked_schedule(changes, links),
        detection_s=draw(st.sampled_from([5.0, 60.0])),
        transfer_loss=draw(st.sampled_from([0.0, 0.0, 0.2])),
        slow_factor=4.0,
    )
    # Not every device may be down for good.
    for_good = {c.number for c in outages.scheduled if c.component == "device" and c.turn in ("dies", "down")}
    if len(for_good) == run.devices:
        outages = replace(outages, scheduled=())
    return OutageScenario(run, outages, draw(st.booleans()), draw(st.booleans()))


TURNS = ("up", "down", "slow")


def on_off(up: float, down: float) -> st.SearchStrategy[OnOff | None]:
    return st.one_of(
        st.none(),
        st.builds(
            OnOff,
            st.sampled_from([up, 4 * up]),
            st.sampled_from([down, down / 5]),
            st.sampled_from(["exponential", "log-normal"]),
        ),
    )


class Heavy:
    """A delay model in which models are heavy; in memory they are tiny."""

    def __init__(self, delays: DelayModel) -> None:
        self.delays = delays

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        return self.delays.to_device(gateway, device, _heavy(size_bytes))

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        return self.delays.to_gateway(device, gateway, _heavy(size_bytes))

    def compute(self, device: int) -> float:
        return self.delays.compute(device)

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.delays.gateway_to_cloud(gateway, _heavy(size_bytes))

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.delays.cloud_to_gateway(gateway, _heavy(size_bytes))

    def snapshot(self) -> Any:
        return self.delays.snapshot()

    def restore(self, data: Any) -> None:
        self.delays.restore(data)


def _heavy(size_bytes: int) -> int:
    return size_bytes if size_bytes < MODEL_BYTES + HEADER_BYTES else size_bytes + HEAVY_BYTES - MODEL_BYTES


def outage_simulator(plan: OutageScenario) -> tuple[Simulator, Memory]:
    world = world_of(plan.run)
    air = SharedAir((1.0, 0.95, 0.9), 0.02) if plan.contended else None
    delays: DelayModel = Heavy(world.delays)
    if plan.noisy:
        links = world.cloud.links
        delays = NoisyDelays.around(delays, links, NoiseSpread(0.3, 0.2, 0.1), plan.run.seed)
    journal = Memory()
    world = replace(world, delays=delays, air=air, outages=plan.outages)
    return Simulator(world, journal), journal


class Watch:
    """Observes the events and effects of all nodes of a simulator and checks the invariants."""

    def __init__(self, simulator: Simulator, plan: Plan) -> None:
        world = simulator.world
        gateways, devices = len(world.gateways), len(world.devices)
        self.simulator = simulator
        self.nodes: Any = simulator._nodes
        self.changed: dict[int, None] = {}
        self.invariants = Invariants(
            0,
            range(1, 1 + gateways),
            range(1 + gateways, 1 + gateways + devices),
            GATEWAY_RULES["relay" if plan.relay else plan.family].checker,
            CLOUD_RULES["average" if plan.averages else "mix"].checker,
            plan.codec,
        )
        for index, node in enumerate(self.nodes):
            node.handle = self._spy(index, node.handle)
        for kind, act in list(simulator._perform.items()):
            simulator._perform[kind] = self._observe(act)

    def _spy(self, index: int, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def spied(event: Any) -> Any:
            assert not self.simulator.outages or not self.simulator.outages.down[index]
            self.changed[index] = None
            return handle(event)

        return spied

    def _observe(self, act: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        def observed(index: int, effect: Any) -> None:
            if isinstance(effect, Transmit):
                self.invariants.sent(effect)
            elif isinstance(effect, Write):
                self.invariants.written(effect.record, self.nodes[index].node)
            act(index, effect)

        return observed

    def look(self) -> bool:
        assert self.simulator.outages is not None
        down = self.simulator.outages.down
        up = [None if down[index] else node for index, node in enumerate(self.nodes)]
        timers = self._timers()
        for index in self.changed:
            self.invariants.check(up, timers, index)
            if up[index] is not None:
                self._check_unacknowledged(index)
        self.changed.clear()
        return False

    def _timers(self) -> list[dict[str, float]]:
        """Return the timers of each node that will fire, by key; those that are due now have the time 0."""
        found: list[dict[str, float]] = [{} for _ in self.nodes]
        for at, sequence, index, what in self.simulator.queue.heap:
            if isinstance(what, TimerFired) and self.simulator._timers.get((index, what.key)) == sequence:
                found[index][what.key] = at if at > self.simulator.at else 0.0
        return found

    def _check_unacknowledged(self, index: int) -> None:
        """Every unacknowledged packet has a timer, or its transfer is in progress or has just ended."""
        assert self.simulator.transfers is not None
        sender = self.simulator.address(index)
        watched = {
            (transfer.to, transfer.wrapping[-1])
            for transfer in self.simulator.transfers._in_progress.values()
            if transfer.sender == sender
        }
        for _, _, node, what in self.simulator.queue.heap:
            if node == index and isinstance(what, TransferOver):
                watched.add((what.to, what.number))
        for key, packet in self.nodes[index].state.unacknowledged.items():
            assert packet.resend_at < float("inf") or key in watched, f"{sender} waits forever with {packet}"

    def at_end(self) -> None:
        self.invariants.at_end(self.nodes)
