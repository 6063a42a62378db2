"""The tuning file, and the plans that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiment_plans import SMALL, small_plan

from async_hfl.core.errors import SettingsError, UserError
from async_hfl.experiments.comparison.footnotes import tuning_notes
from async_hfl.experiments.comparison.plan import check_tuning, comparison_plan
from async_hfl.experiments.plans.contender import Contender, contenders, equipped
from async_hfl.experiments.plans.plan import make_plan
from async_hfl.experiments.plans.planned_run import PlannedRun, planned
from async_hfl.experiments.tuning.tuning_file import (
    Choice,
    Place,
    Tunings,
    check_output,
    read_tunings,
    write_tunings,
)


def choice(name: str = "two-tier", **more: Any) -> Choice:
    usual: dict[str, Any] = {
        "task": "null",
        "network": "uniform",
        "preset": "tight",
        "name": name,
        "method": name,
        "settings": {"device.learning_rate": 5e-05},
        "seeds": [91, 92],
        "digests": ["0a", "0b"],
        "points": 4,
        "level": None,
        "under": {},
        "made": "2026-11-19T10:00:00+00:00",
        "version": "0.3.0",
    }
    return Choice(**(usual | more))


def run_of(tuning: Tunings | None, seed: int = 1, **more: Any) -> PlannedRun:
    chosen: dict[str, Any] = {"task": "null", "method": "two-tier", "network": "uniform", "preset": "tight"}
    return planned(**(chosen | more), seed=seed, tuning=tuning)


@pytest.mark.parametrize("name", ["tuning.toml", "tuning.json"])
def test_a_file_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    under = {"task.ladder": [0.8, 0.9], "gateway.bandwidth": "25%", "warmup.enabled": False, "outages.device_up": "inf"}
    whole = Tunings(choices=[choice(), choice("semi-async", level=0.9, under=under, task='own "x".py:fruit')])
    write_tunings(tmp_path / name, whole)
    assert read_tunings(tmp_path / name) == whole
    assert read_tunings(tmp_path / name).digest == whole.digest
    assert not list(tmp_path.glob("*.part"))


def test_the_digest_is_that_of_the_content() -> None:
    assert Tunings(choices=[choice()]).digest == Tunings(choices=[choice()]).digest
    assert Tunings(choices=[choice()]).digest != Tunings(choices=[choice(seeds=[91])]).digest


def test_choices_are_replaced_by_problem_and_name() -> None:
    former = Tunings(choices=[choice(), choice(task="har"), choice("semi-async")])
    again = former.with_choices([choice(points=9), choice("async-hl")])
    assert {(one.task, one.name): one.points for one in again.choices} == {
        ("null", "two-tier"): 9,
        ("har", "two-tier"): 4,
        ("null", "semi-async"): 4,
        ("null", "async-hl"): 4,
    }


def test_a_users_task_is_found_wherever_its_file_is() -> None:
    assert Place.of("some/where/own.py:fruit", "uniform", "tight").task == "own.py:fruit"
    assert Place.of("own.py:fruit", "nets/mine.py:net", "tight").network == "mine.py:net"


def test_tuned_settings_replace_those_of_the_method() -> None:
    plain, tuned = run_of(None), run_of(Tunings(choices=[choice()]))
    assert tuned.settings["device.learning_rate"] == 5e-05
    assert tuned.id != plain.id
    assert tuned.tuned is not None
    assert tuned.tuned.seeds == [91, 92]
    assert run_of(Tunings(choices=[choice(task="har")])).tuned is None


def test_a_tuned_setting_replaces_the_one_that_the_search_began_with() -> None:
    momentum = choice("semi-async + momentum", settings={"cloud.momentum": 0.3})
    began = {"method": "semi-async", "label": "semi-async + momentum", "overrides": ["cloud.momentum=0.5"]}
    assert run_of(Tunings(choices=[momentum]), **began).settings["cloud.momentum"] == 0.3


def test_differences_from_the_runs_of_the_tuning_are_named() -> None:
    base = run_of(None).settings
    under = {**base, "cloud.epochs": 150}
    same = run_of(Tunings(choices=[choice(under=base)])).tuned
    other = run_of(Tunings(choices=[choice(under=under)])).tuned
    longer = run_of(Tunings(choices=[choice(under=base)]), overrides=["task.devices=8"]).tuned
    assert same is not None
    assert other is not None
    assert longer is not None
    assert (same.under, other.under, longer.under) == ([], ["cloud.epochs=150"], ["task.devices=1000"])
    (note,) = tuning_notes([run_of(Tunings(choices=[choice(under=under)]))]).values()
    assert ", by runs with cloud.epochs=150: two-tier: device.learning_rate=5e-05." in note


def test_a_seed_of_the_tuning_is_refused() -> None:
    with pytest.raises(UserError, match=r"seed 92: the settings of two-tier were chosen on it; .*\(91, 92\)"):
        run_of(Tunings(choices=[choice()]), seed=92)
    assert run_of(None, seed=92).seed == 92


def small_comparison(tuning: Tunings | None, *methods: str | Contender, **more: Any) -> list[PlannedRun]:
    chosen: dict[str, Any] = {"task": "null", "network": "uniform", "preset": "tight", "overrides": ["task.devices=8"]}
    return list(comparison_plan("c", methods, [1], tuning=tuning, **(chosen | more)).runs)


def test_a_tuned_period_takes_the_place_of_the_three() -> None:
    tunings = Tunings(choices=[choice("semi-async", settings={"gateway.period": 12.0})])
    assert [run.group for run in small_comparison(tunings, "semi-async")] == ["semi-async"]
    assert len(small_comparison(None, "semi-async")) == 3
    only_rate = small_comparison(Tunings(choices=[choice("semi-async")]), "semi-async")
    assert [run.settings["device.learning_rate"] for run in only_rate] == [5e-05] * 3


def test_rivals_are_equipped_with_what_they_lack() -> None:
    int8, momentum = "transfer.encoding=int8", "cloud.momentum=0.5"
    assert equipped("semi-async", "har", "tight", []) == Contender(
        "semi-async + int8 + momentum", "semi-async", (int8, momentum), "equipped"
    )
    assert equipped("two-tier", "har", "tight", []) == Contender("two-tier + int8", "two-tier", (int8,), "equipped")
    assert equipped("two-tier", "har", "tight", ["transfer.encoding=int4"]) is None
    assert equipped("semi-async", "har", "tight", [int8, "cloud.momentum=0.9"]) is None
    assert equipped("semi-async", "har", "tight", [int8, "cloud.optimiser=adam"]) is None


def test_a_method_can_take_part_tuned_equipped_and_as_packaged() -> None:
    tunings = Tunings(choices=[choice(), choice("two-tier + int8", settings={"device.learning_rate": 0.7})])
    wanted = contenders(["two-tier"], "null", "tight", [], with_equipped=True, untuned=["two-tier"])
    runs = {run.group: run for run in small_comparison(tunings, *wanted)}
    assert list(runs) == ["two-tier", "two-tier + int8", "two-tier, untuned"]
    rates = {name: run.settings.get("device.learning_rate") for name, run in runs.items()}
    assert rates == {"two-tier": 5e-05, "two-tier + int8": 0.7, "two-tier, untuned": None}
    assert {name: run.role for name, run in runs.items()} == {
        "two-tier": "compared",
        "two-tier + int8": "equipped",
        "two-tier, untuned": "compared",
    }
    (note,) = tuning_notes(runs.values()).values()
    assert note.startswith("Tuned on seeds 91, 92, which are not reported (tuning file ")
    assert "two-tier: device.learning_rate=5e-05; two-tier + int8: device.learning_rate=0.7" in note
    assert note.endswith("With packaged settings: two-tier, untuned.")
    assert tunings.digest in note
    assert tuning_notes(small_comparison(None, "two-tier")) == {}


def test_a_tuning_file_that_does_not_fit_is_refused() -> None:
    tunings = Tunings(choices=[choice()])
    plan = comparison_plan("c", ["async-hl"], [1], task="null", network="uniform", preset="tight", tuning=tunings)
    with pytest.raises(UserError, match=r"has no settings .* null on uniform .* has: null on uniform .*\(two-tier\)"):
        check_tuning(plan, tunings, "T.toml", [])
    tuned = comparison_plan("c", ["two-tier"], [1], task="null", network="uniform", preset="tight", tuning=tunings)
    check_tuning(tuned, tunings, "T.toml", ["cloud.epochs=3"])
    with pytest.raises(UserError, match=r"--set device\.learning_rate: the tuning file has a value of it for two-tier"):
        check_tuning(tuned, tunings, "T.toml", ["device.learning_rate=0.1"])


def test_a_plan_names_a_tuning_file_and_the_parts_of_its_runs(tmp_path: Path) -> None:
    write_tunings(tmp_path / "T.toml", Tunings(choices=[choice("async-random"), choice("relays, light")]))
    cases = [
        {"methods": "async-random"},
        {"methods": "async-random", "label": "as packaged", "tuning": ""},
        {"methods": "two-tier", "label": "relays, light", "role": "equipped", "set": {"transfer.encoding": "int8"}},
        {"methods": "two-tier", "label": "slow", "role": "ablation", "base": "async-random", "tuning": ""},
    ]
    plan = small_plan(tuning=str(tmp_path / "T.toml"), seeds=1, panel="outages", case=cases)
    assert [(run.group, run.role, run.base, run.tuned is not None) for run in plan.runs] == [
        ("async-random", "compared", "", True),
        ("as packaged", "compared", "", False),
        ("relays, light", "equipped", "", True),
        ("slow", "ablation", "async-random", False),
    ]
    assert {run.panel for run in plan.runs} == {"outages"}


def test_an_ablation_gets_the_tuned_settings_of_its_base_but_those_that_it_changes(tmp_path: Path) -> None:
    settings = {"device.learning_rate": 0.7, "gateway.period": 12.0, "cloud.momentum": 0.3}
    write_tunings(tmp_path / "T.toml", Tunings(choices=[choice("flow", method="semi-async", settings=settings)]))
    small = {key: value for key, value in SMALL.items() if key not in ("set", "methods")}
    ablation = {"role": "ablation", "base": "flow"}
    cases = [
        {"label": "flow"},
        {**ablation, "label": "no momentum", "set": {"cloud.momentum": 0.0}},
        {**ablation, "label": "long periods", "set": {"gateway.period": 50.0}},
        {**ablation, "label": "on arrival", "methods": "async-random"},
    ]
    shared = {"methods": "semi-async", "seeds": 1, "set": {"cloud.momentum": 0.5}, "tuning": str(tmp_path / "T.toml")}
    shared_by_case = [{**case, "set": case.get("set", {})} for case in cases[:3]]
    plan = make_plan({**small, **shared, "case": shared_by_case}, "plan.toml", "plan")
    chosen = {run.group: run.tuned.settings for run in plan.runs if run.tuned}
    assert chosen == {
        "flow": settings,
        "no momentum": {"device.learning_rate": 0.7, "gateway.period": 12.0},
        "long periods": {"device.learning_rate": 0.7, "cloud.momentum": 0.3},
    }
    assert {run.group: run.settings.get("gateway.period") for run in plan.runs}["long periods"] == 50.0
    alone = make_plan({**small, "seeds": 1, "tuning": str(tmp_path / "T.toml"), "case": cases[3:]}, "plan.toml", "plan")
    assert alone.runs[0].tuned is not None
    assert alone.runs[0].tuned.settings == {"device.learning_rate": 0.7}


def test_mistakes_in_a_plan_with_tuning(tmp_path: Path) -> None:
    write_tunings(tmp_path / "T.toml", Tunings(choices=[choice()]))
    tuned: dict[str, Any] = {**SMALL, "methods": ["two-tier"], "tuning": str(tmp_path / "T.toml")}
    for changes, told in (
        ({"methods": ["async-hl"]}, "has no settings for async-hl on null"),
        ({"vary": {"device.learning_rate": [0.1]}}, "vary device.learning_rate: the tuning file has a value of it"),
        ({"seeds": [91]}, "seed 91: the settings of two-tier were chosen on it"),
        ({"tuning": 3}, "must be strings"),
        ({"role": "tuning"}, "role must be one of compared, equipped, ablation"),
        ({"base": "two-tier"}, "only an ablation has a base"),
        ({"case": [{}, {"set": {"cloud.epochs": 9}}]}, "two-tier with seed 1 has other settings in another case"),
    ):
        with pytest.raises(UserError, match=told):
            make_plan({**tuned, **changes}, "plan.toml", "plan")


def test_mistakes_in_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("format = 9\n")
    with pytest.raises(UserError, match="not a tuning file"):
        read_tunings(tmp_path / "bad.toml")
    with pytest.raises(UserError, match="give a file that `async-hfl tune` wrote"):
        read_tunings(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"ends in \.toml or \.json"):
        check_output(tmp_path / "T.txt")
    with pytest.raises(UserError, match="there is no directory"):
        check_output(tmp_path / "none" / "T.toml")
    with pytest.raises(SettingsError, match="unknown key 'tunning'"):
        make_plan({**SMALL, "tunning": "T.toml"}, "plan.toml", "plan")


def test_the_packaged_file_is_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("async_hfl.experiments.tuning.tuning_file._PACKAGED_FILE", tmp_path / "packaged.toml")
    with pytest.raises(UserError, match="comes without a tuning file"):
        read_tunings("packaged")
    write_tunings(tmp_path / "packaged.toml", Tunings(choices=[choice()]))
    assert read_tunings("packaged").choices == [choice()]
