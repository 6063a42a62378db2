"""A campaign adds up its scenarios, and a seed alone replays one."""

from __future__ import annotations

from async_hfl.assembly.fuzz_campaign import Campaign, campaign
from async_hfl.assembly.fuzzing import fuzz


def test_a_seed_replays() -> None:
    assert fuzz(4) == fuzz(4)
    assert fuzz(4) != fuzz(5)


def test_a_campaign_adds_up() -> None:
    outcomes = [fuzz(seed) for seed in (3, 4)]
    found = campaign(3, 2, processes=1)
    assert found.failures == []
    assert found.events == sum(outcome.events for outcome in outcomes)
    assert found.jobs == sum(outcome.jobs for outcome in outcomes)
    assert found.as_json()["seeds"] == 2


def test_the_summary_says_so_when_seeds_fail() -> None:
    failed = Campaign(200, 0, [(17, "InvariantViolation: twice")], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0.5)
    assert failed.line() == (
        "fuzz-faults: 200 seeds from 0: 1 SEEDS FAILED; 1 events, 2 crashes (3 tore a record, 4 cost a disk), "
        "5 messages lost, 6 link outages, 7 transfers resumed, 8 gateways declared lost, 9 jobs, 10 uploads; "
        "of 11 acknowledged updates 12 lost, all known by name; 0.5 s"
    )
