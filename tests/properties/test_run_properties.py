"""Properties of whole runs, for any small network, policy and setting."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from heapq import heappop
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from run_worlds import Memory, Plan, Slower, feasible_pairs, final_weights, plans, simulator_of, world_of

from async_hfl.core.protocol.events import TimerFired
from async_hfl.core.protocol.records import (
    AssociationRecord,
    EpochRecord,
    JobRecord,
    LifecycleRecord,
    SelectionRecord,
    SentRecord,
    UploadRecord,
)
from async_hfl.journal import checkpoint
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.simulator import Simulator

FEW = settings(max_examples=25, derandomize=True)
HARD = Plan(5, 9, 3, 0.05, 8, 3, False, True, True, "update", True, "broadcast", 0.5, "carry", False, 2)
IMPATIENT = Plan(7, 5, 1, 0.3, 6, 3, False, False, False, "none", True, "reply", 0.5, "carry", True, None)
SLOW = Plan(5, 4, 1, 1.0, 4, 3, False, False, False, "none", False, "reply", 1.0, "carry", False, None)
SYNC = replace(
    HARD, family="rounds", averages=True, delivery="reply", compression="pca", min_participation=0.3, up="int8"
)
SEMI = replace(HARD, family="periods", averages=True, compression="sketch", up="int4", down="int8")
RELAYED = Plan(
    *(6, 7, 2, 0.3, 8, 1, True, False, False, "none", False, "reply", 1.0, "carry", False, None),
    up="int8",
    down="float16",
)


def run(plan: Plan) -> tuple[Simulator, Memory]:
    simulator, journal = simulator_of(plan)
    simulator.start()
    simulator.run()
    return simulator, journal


def restored(simulator: Simulator, plan: Plan) -> tuple[Simulator, Memory]:
    """Return another simulator, restored from a checkpoint of the first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        checkpoint.save(path, simulator.snapshot())
        second, journal = simulator_of(plan)
        second.restore(checkpoint.load(path))
    return second, journal


@given(plans())
@example(HARD)
@example(IMPATIENT)
@example(RELAYED)
@example(SYNC)
@example(SEMI)
@FEW
def test_a_run_ends_and_every_job_ends_exactly_once(plan: Plan) -> None:
    simulator, journal = run(plan)
    # The run made H evaluations and recorded their epochs.
    assert simulator.finished_at is not None
    assert [e.epoch for e in journal.of(EpochRecord)] == [
        (3 if plan.relay else 1) * (n + 1) for n in range(plan.epochs)
    ]
    assert [r.what for r in journal.of(LifecycleRecord)].count("finished") == 1
    # Jobs sent and jobs ended are the same, each once.
    sent = [record.about for record in journal.of(SentRecord) if record.message == "Train"]
    ended = [str(record.job) for record in journal.of(JobRecord)]
    assert Counter(ended) == Counter(sent)
    assert set(Counter(ended).values()) <= {1}
    assert not any(gateway.state.in_flight_jobs for gateway in simulator.world.gateways)
    # Every update aggregated at a gateway is in exactly one of its uploads, and the cloud counts those it mixed.
    if not plan.relay:
        uploaded: Counter[int] = Counter()
        for record in {u.upload: u for u in journal.of(UploadRecord)}.values():
            uploaded[record.upload.gateway] += record.updates
        mixed = Counter(j.job.gateway for j in journal.of(JobRecord) if j.reason == "aggregated")
        assert +uploaded == mixed
    counted = sum(u.updates for u in journal.of(UploadRecord) if u.reason == "mixed")
    assert simulator.world.cloud.state.updates == counted
    least = 0 if plan.family == "periods" else 1  # ages in periods count from 0
    assert all(j.staleness >= least and j.weight > 0 for j in journal.of(JobRecord) if j.reason == "aggregated")


@pytest.mark.parametrize("times", [4, 12])
def test_devices_that_are_slower_than_announced_finish_their_jobs(times: int) -> None:
    """Twelve times is beyond the timeout of five: devices time out, are probed and found alive, and must not get the
    same work again and again."""
    world = world_of(SLOW)
    simulator, events = Simulator(replace(world, delays=Slower(world.delays, times)), Memory()), count()
    simulator.start()
    simulator.run(stop=lambda: next(events) > 10_000)
    assert simulator.finished_at is not None


@given(plans())
@example(HARD)
@example(IMPATIENT)
@example(RELAYED)
@example(SYNC)
@example(SEMI)
@FEW
def test_load_stays_within_the_bandwidth(plan: Plan) -> None:
    """The load is computed from the journal alone: sends, arrivals, timeouts, and the warm-up.

    A job loads its gateway with M / tau; tau is at most the real duration of the round, so the load below is at most
    the load that the gateway itself accounts for.
    """
    simulator, journal = run(plan)
    bandwidth, size = simulator.world.gateways[0].config.bandwidth, simulator.world.model_bytes
    warmup = {str(j.job) for j in journal.of(JobRecord) if j.reason == "warmup"}
    discarded = {str(j.job): j.at for j in journal.of(JobRecord) if j.reason == "round_closed"}
    lone = {(s.at, f"g{s.gateway}", f"d{s.devices[0]}") for s in journal.of(SelectionRecord) if s.lone}
    sent = journal.of(SentRecord)
    arrival = {r.about: r.at + r.transfer_s for r in sent if r.message == "Update"}
    dropped = {str(j.job): j.at for j in journal.of(JobRecord) if j.reason in ("superseded", "device_lost")}
    given_up = defaultdict(list)
    for record in journal.of(LifecycleRecord):
        if record.what == "device_given_up":
            given_up[record.detail.removeprefix("by "), record.node].append(record.at)
    changes: dict[str, list[tuple[float, int, str, float, bool]]] = defaultdict(list)
    for train in sent:
        if train.message != "Train" or train.about in warmup or train.about not in arrival:
            continue  # without an arrival its latency is unknown; leaving it out only lowers the load
        end = min(
            [
                arrival[train.about],
                discarded.get(train.about, float("inf")),
                dropped.get(train.about, float("inf")),
                *(at for at in given_up[train.sender, train.receiver] if at > train.at),
            ]
        )
        rate = size / (arrival[train.about] - train.at)
        alone = (train.at, train.sender, train.receiver) in lone
        changes[train.sender] += [(train.at, 1, train.about, rate, alone), (end, 0, train.about, rate, alone)]
    for gateway, timeline in changes.items():
        flying: dict[str, tuple[float, bool]] = {}
        for at, begins, job, rate, alone in sorted(timeline):
            if begins:
                flying[job] = (rate, alone)
            else:
                flying.pop(job, None)
            load = sum(rate for rate, _ in flying.values())
            recorded = len(flying) == 1 and next(iter(flying.values()))[1]
            assert load <= bandwidth * (1 + 1e-9) or recorded, f"{gateway} at {at}: {load} of {bandwidth}, {flying}"


@given(plans())
@example(HARD)
@example(IMPATIENT)
@FEW
def test_a_gateways_load_is_right_after_every_event(plan: Plan) -> None:
    simulator, journal = simulator_of(plan)
    lone: set[tuple[int, int, float]] = set()
    read = 0

    def look() -> bool:
        nonlocal read
        for record in journal.records[read:]:
            if type(record) is SelectionRecord and record.lone:
                lone.add((record.gateway, record.devices[0], record.at))
        read = len(journal.records)
        for number, gateway in enumerate(simulator.world.gateways):
            state = gateway.state
            flying = [in_flight for in_flight in state.in_flight_jobs.values() if not in_flight.overdue]
            load = sum(in_flight.rate for in_flight in flying)
            assert state.active == len(flying)
            assert abs(state.load - load) <= 1e-9 * max(load, 1.0)
            paying = [in_flight for in_flight in flying if not in_flight.warmup]
            assert all(in_flight.rate == 0 for in_flight in flying if in_flight.warmup)
            if load > gateway.config.bandwidth * (1 + 1e-9):
                (only,) = paying
                assert (number, int(state.device_table.devices[only.slot]), only.sent_at) in lone
            if state.phase != "over":
                devices = [int(state.device_table.devices[in_flight.slot]) for in_flight in flying]
                assert len(set(devices)) == len(devices)
        return False

    simulator.start()
    simulator.run(stop=look)
    assert read > 0


@given(plans())
@FEW
def test_associations_use_feasible_links_only(plan: Plan) -> None:
    simulator, journal = run(plan)
    pairs = feasible_pairs(plan)
    gateway_of: dict[int, int] = {}
    for record in journal.of(AssociationRecord):
        gateway_of.update(dict(record.moved))
    moved = [move for record in journal.of(AssociationRecord) for move in record.moved]
    assert moved
    assert all(gateway == -1 or (device, gateway) in pairs for device, gateway in moved)
    assert gateway_of == dict(enumerate(simulator.world.cloud.state.association.gateway_of.tolist()))
    versions = [record.version for record in journal.of(AssociationRecord)]
    assert versions == sorted(set(versions))
    for record in journal.of(SentRecord):
        if record.message == "Train":
            assert (int(record.receiver[1:]), int(record.sender[1:])) in pairs


@given(plans())
@FEW
def test_every_byte_is_counted(plan: Plan) -> None:
    simulator, journal = run(plan)
    sent = journal.of(SentRecord)
    assert simulator.byte_counts.total == sum(r.model + r.gradient + r.basis + r.control for r in sent)
    upwards = [r for r in sent if r.receiver == "cloud" or r.sender.startswith("d")]
    assert simulator.byte_counts.models_up == sum(r.model for r in upwards)
    table = simulator.byte_counts.summary()
    for kind in ("model", "gradient", "basis", "control"):
        backhaul_up = sum(getattr(r, kind) for r in sent if r.receiver == "cloud")
        backhaul_down = sum(getattr(r, kind) for r in sent if r.sender == "cloud")
        link_up = sum(getattr(r, kind) for r in sent if r.sender.startswith("d"))
        link_down = sum(getattr(r, kind) for r in sent if r.receiver.startswith("d"))
        assert table["gateway-cloud"]["up"][kind] == backhaul_up
        assert table["gateway-cloud"]["down"][kind] == backhaul_down
        assert table["device-gateway"]["up"][kind] == link_up
        assert table["device-gateway"]["down"][kind] == link_down
    # Every message carries one model in the encoding of its direction, or none.
    up, down = plan.codec.bytes_of(plan.up), plan.codec.bytes_of(plan.down)
    assert {r.model for r in upwards} <= {0, up}
    assert {r.model for r in sent if r not in upwards} <= {0, down}
    assert [total for _, total in journal.totals] == sorted(total for _, total in journal.totals)


@given(plans())
@example(HARD)
@example(IMPATIENT)
@FEW
def test_the_same_seed_is_the_same_run_and_batching_changes_nothing(plan: Plan) -> None:
    simulator, journal = run(plan)
    again, same = run(plan)
    assert same.records == journal.records
    assert final_weights(again) == final_weights(simulator)
    alone, one_by_one = run(replace(plan, batching=False))
    assert one_by_one.records == journal.records
    assert final_weights(alone) == final_weights(simulator)
    # One by one, only jobs whose results are used are trained; in batches, each job at most once.
    assert alone.pool.counts.wasted == 0
    assert simulator.pool.counts.used == alone.pool.counts.used == alone.pool.counts.trained
    assert simulator.pool.counts.calls <= alone.pool.counts.calls


def test_another_seed_is_another_run() -> None:
    _, journal = run(RELAYED)
    _, other = run(replace(RELAYED, seed=RELAYED.seed + 1))
    assert other.records != journal.records


@given(plans(), st.floats(0, 1))
@example(HARD, 0.5)
@example(IMPATIENT, 0.3)
@example(RELAYED, 0.99)
@FEW
def test_a_restored_run_is_the_same_run(plan: Plan, share: float) -> None:
    whole, journal = run(plan)
    cut = int(share * len(journal.records))

    first, before = simulator_of(plan)
    first.start()
    first.run(stop=lambda: len(before.records) >= cut)
    second, after = restored(first, plan)
    second.run()
    assert before.records + after.records == journal.records
    assert before.totals + after.totals == journal.totals
    assert final_weights(second) == final_weights(whole)
    assert second.byte_counts.total == whole.byte_counts.total
    assert second.byte_counts.summary() == whole.byte_counts.summary()
    # The snapshot does not disturb the simulator that it was taken from.
    first.run()
    assert before.records == journal.records


@pytest.mark.parametrize("plan", [HARD, RELAYED])
def test_a_run_restored_during_an_evaluation_is_the_same_run(plan: Plan) -> None:
    _, journal = run(plan)
    first, before = simulator_of(plan)
    first.start()
    first.run(stop=lambda: len(before.of(EpochRecord)) >= 2 and bool(first._evaluations))
    assert len(first._evaluations) == 1, "else this tests nothing"
    second, after = restored(first, plan)
    second.run()
    assert before.records + after.records == journal.records
    first.run()
    assert before.records == journal.records


def test_events_of_the_same_time_keep_their_order_over_a_checkpoint() -> None:
    queue = EventQueue()
    for node, at in enumerate((2.0, 1.0, 2.0, 1.0)):
        queue.push(at, node, TimerFired(at, "x"))
    other = EventQueue()
    other.restore(list(queue.snapshot(2)))
    other.push(1.0, 4, TimerFired(1.0, "later"))
    assert [heappop(other.heap)[2] for _ in range(len(other.heap))] == [1, 3, 4, 0, 2]
    assert [heappop(queue.heap)[2] for _ in range(len(queue.heap))] == [1, 3, 0, 2]


def test_a_run_restored_after_the_cloud_has_finished_keeps_its_end_time() -> None:
    """The checkpoint of the last epoch is saved after the cloud has stopped and before the gateways have."""
    whole, _ = run(RELAYED)
    first, _ = simulator_of(RELAYED)
    first.start()
    first.run(stop=lambda: first.finished_at is not None)
    assert first.finished_at == whole.finished_at
    second, _ = restored(first, RELAYED)
    second.run()
    assert second.finished_at == whole.finished_at
