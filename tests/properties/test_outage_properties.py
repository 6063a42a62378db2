"""Properties that hold under any outages, for any small network and method."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from outage_worlds import OutageScenario, Watch, outage_scenarios, outage_simulator
from run_worlds import Memory, Plan, final_weights

from async_hfl.core.protocol.records import EpochRecord, LifecycleRecord, SentRecord
from async_hfl.journal import checkpoint
from async_hfl.network.outages.on_off import OnOff
from async_hfl.network.outages.plan import Change, OutagePlan
from async_hfl.simulation.simulator import Simulator

FEW = settings(max_examples=20, derandomize=True)
RUN = Plan(5, 9, 3, 0.3, 12, 3, False, True, True, "update", True, "reply", 0.5, "carry", False, None)
STORM = OutagePlan(
    3,
    OnOff(300.0, 100.0),
    OnOff(400.0, 60.0, "log-normal"),
    OnOff(600.0, 90.0),
    (Change(90.0, "device", 2, "slow"), Change(120.0, "gateway", 1, "dies")),
    detection_s=30.0,
    transfer_loss=0.2,
    slow_factor=4.0,
)
MIXED = OutageScenario(RUN, STORM, True, True)
SYNC = OutageScenario(replace(RUN, family="rounds", averages=True), STORM, True, False)
SEMI = OutageScenario(replace(RUN, family="periods", averages=True, warmup=False), STORM, False, True)
RELAYED = OutageScenario(
    replace(RUN, relay=True, utility=False, solve_assignment=False, gradient="none"), STORM, False, False
)
CROWDED = OutageScenario(RUN, None, True, True)


def run(plan: OutageScenario) -> tuple[Simulator, Memory]:
    simulator, journal = outage_simulator(plan)
    simulator.start()
    simulator.run()
    return simulator, journal


@given(outage_scenarios())
@example(MIXED)
@example(SYNC)
@example(SEMI)
@example(RELAYED)
@FEW
def test_the_invariants_hold_after_every_event_and_the_run_ends(plan: OutageScenario) -> None:
    simulator, journal = outage_simulator(plan)
    watch = Watch(simulator, plan.run)
    simulator.start()
    simulator.run(stop=watch.look)
    watch.at_end()
    assert simulator.finished_at is not None
    assert len(journal.of(EpochRecord)) == plan.run.epochs
    assert [record.what for record in journal.of(LifecycleRecord)].count("finished") == 1
    # The byte counts and the journal agree to the byte, transfers cut off included.
    sent = journal.of(SentRecord)
    assert simulator.byte_counts.total == sum(r.model + r.gradient + r.basis + r.control for r in sent)
    assert all(record.transfer_s >= 0 for record in sent)
    # The bytes in the row of an epoch are those that arrived and the part sent of the transfers in progress.
    spent = [total for _, total in journal.totals]
    for record, total, later in zip(
        journal.of(EpochRecord), spent, [*spent[1:], simulator.byte_counts.total], strict=True
    ):
        in_progress = sum(one.at < record.at < one.at + one.transfer_s for one in sent)
        slack = 4 * in_progress + 1  # bytes of transfers cut off are rounded down, kind by kind
        assert later >= total - slack
        if simulator.world.air is None:  # then each has a steady rate
            assert total == pytest.approx(sum(sent_by(one, record.at) for one in sent), abs=slack)


def sent_by(sent: SentRecord, at: float) -> float:
    size = sent.model + sent.gradient + sent.basis + sent.control
    if at >= sent.at + sent.transfer_s:
        return size
    return size * max(0.0, at - sent.at) / sent.transfer_s


@given(outage_scenarios(), st.integers(1, 400))
@example(MIXED, 150)
@example(SYNC, 220)
@example(CROWDED, 90)
@FEW
def test_a_run_restored_from_a_checkpoint_anywhere_continues_alike(plan: OutageScenario, steps: int) -> None:
    whole, wanted = run(plan)
    first, before = outage_simulator(plan)
    first.start()
    left = iter(range(steps))
    first.run(stop=lambda: next(left, None) is None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        checkpoint.save(path, first.snapshot())
        second, after = outage_simulator(plan)
        second.restore(checkpoint.load(path))
    second.run()
    assert before.records + after.records == wanted.records
    assert before.totals + after.totals == wanted.totals
    assert final_weights(second) == final_weights(whole)
    assert second.times.snapshot()[0].tolist() == whole.times.snapshot()[0].tolist()
