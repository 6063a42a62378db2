"""Fuzzing campaigns: sums over scenarios, repeatable seeds, resumed campaigns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from async_hfl.assembly.fuzzing import campaign as fuzz_campaign
from async_hfl.assembly.fuzzing.campaign import Campaign, Rules, campaign, check_rules
from async_hfl.assembly.fuzzing.scenarios import fuzz
from async_hfl.core.errors import SettingsError


def test_a_seed_repeats_its_scenario() -> None:
    assert fuzz(4) == fuzz(4)
    assert fuzz(4) != fuzz(5)


def test_a_campaign_sums_its_scenarios() -> None:
    outcomes = [fuzz(seed) for seed in (3, 4)]
    found = campaign(3, 2, processes=1)
    assert found.failures == []
    assert found.events == sum(outcome.events for outcome in outcomes)
    assert found.jobs == sum(outcome.jobs for outcome in outcomes)
    assert found.as_json()["seeds"] == 2


def test_the_summary_of_a_campaign_with_failures() -> None:
    failed = Campaign(
        *range(1, 15),
        seeds=200,
        first_seed=0,
        failures=[(17, "InvariantViolation: twice")],
        without_checker=["mine.py:Mine"],
        wall_s=0.5,
    )
    assert failed.line() == (
        "fuzz-faults: 200 seeds from 0: 1 SEEDS FAILED; 1 events, 2 crashes (3 tore a record, 4 cost a disk), "
        "5 messages lost, 6 link outages, 7 transfers resumed, 8 gateways declared lost, 9 jobs, 10 uploads; "
        "of 11 acknowledged updates 12 lost, all known by name, 14 too late for the end of their run, "
        "13 found again after they were listed as lost; 0.5 s; "
        "rule mine.py:Mine: generic invariants only, no checker of its own"
    )


def test_a_campaign_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_campaign, "_SAVE_EVERY", 2)
    file = tmp_path / "progress.json"
    whole = fuzz_campaign.resumed(file, 3, 3, processes=1)
    known = json.loads(file.read_text())
    # The state after the first part.
    first = campaign(3, 2, processes=1)
    file.write_text(json.dumps({"key": known["key"], **first.as_json()}))
    again = fuzz_campaign.resumed(file, 3, 3, processes=1)
    assert (again.seeds, again.events, again.jobs, again.failures) == (3, whole.events, whole.jobs, [])
    assert again.wall_s != whole.wall_s
    # The progress of another version of the program is ignored.
    file.write_text(json.dumps({"key": {}, **first.as_json()}))
    assert fuzz_campaign.resumed(file, 3, 3, processes=1).events == whole.events


def test_a_campaign_with_given_rules(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from async_hfl.nodes.gateway.aggregation.relay import Relay\n"
        "class Mine(Relay):\n"
        "    def received(self, gateway, held, at):\n"
        "        return super().received(gateway, held, at)\n"
    )
    rules = Rules(gateway=f"{file}:Mine", cloud="mix")
    found = campaign(3, 2, processes=1, rules=rules)
    assert found.failures == []
    assert found.without_checker == [f"{file}:Mine"]
    progress = tmp_path / "progress.json"
    whole = fuzz_campaign.resumed(progress, 3, 2, processes=1, rules=rules)
    assert whole.without_checker == [f"{file}:Mine"]
    # A changed rule is a finding, and the progress made with the old one is ignored.
    file.write_text(file.read_text().replace("return super()", "super()"))
    broken = fuzz_campaign.resumed(progress, 3, 2, processes=1, rules=rules)
    assert [seed for seed, _ in broken.failures] == [3, 4]
    assert broken.failures[0][1] == f"PolicyError: {file}:Mine.received returned None; it must return a Next"
    assert campaign(3, 1, processes=1, rules=Rules(gateway="relay")).without_checker == []
    with pytest.raises(SettingsError, match=r"gateway\.aggregation = 'fedbuff': there is mix, relay, .*CLASS"):
        check_rules(Rules(gateway="fedbuff"))
