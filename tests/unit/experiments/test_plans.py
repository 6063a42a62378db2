"""A plan becomes runs whose ids depend only on what determines their results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from experiment_plans import SMALL, small_plan

from async_hfl.core.errors import SettingsError, UserError
from async_hfl.experiments.comparison.plan import METHODS, comparison_plan, seeds_of
from async_hfl.experiments.plans.plan import make_plan, read_plan
from async_hfl.experiments.plans.planned_run import planned


def test_a_grid_is_a_product() -> None:
    plan = small_plan(vary={"gateway.epochs": [2, 3]})
    found = {(run.method, run.seed, run.group) for run in plan.runs}
    assert found == {
        (method, seed, f"{method}, gateway.epochs={epochs}")
        for method in ("async-random", "two-tier")
        for seed in (1, 2)
        for epochs in (2, 3)
    }
    assert len({run.id for run in plan.runs}) == 8
    assert {run.panel for run in plan.runs} == {"null · uniform · tight"}


def test_an_id_depends_on_everything_that_determines_the_result() -> None:
    """The same settings have the same id however they are written; any difference gives another id."""
    plain = planned(task="null", method="two-tier", network="uniform", preset="tight", seed=1)
    spelt = planned(
        task="null", method="two-tier", network="uniform", preset="tight", seed=1, overrides=["cloud.epochs=1000"]
    )
    assert spelt.id == plain.id
    others = [
        planned(task="null", method="two-tier", network="uniform", preset="tight", seed=2),
        planned(task="null", method="two-tier", network="uniform", preset="paper", seed=1),
        planned(task="null", method="async-random", network="uniform", preset="tight", seed=1),
        planned(
            task="null", method="two-tier", network="uniform", preset="tight", seed=1, overrides=["cloud.epochs=7"]
        ),
    ]
    assert len({plain.id, *(run.id for run in others)}) == 5
    assert plain.id.startswith("null-two-tier-uniform-tight-s1-")


def test_an_id_depends_on_the_users_files(tmp_path: Path) -> None:
    policy = tmp_path / "own.py"

    def now() -> str:
        setting = f"selection.policy={policy}:choose"
        return planned(
            task="null", method="async-random", network="uniform", preset="tight", seed=1, overrides=[setting]
        ).id

    policy.write_text("def choose(problem):\n    return []\n")
    before = now()
    assert now() == before
    policy.write_text("def choose(problem):\n    return list(problem.candidates)\n")
    assert now() != before


def test_an_id_depends_on_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    before = small_plan().runs[0].id
    monkeypatch.setattr("async_hfl.experiments.plans.planned_run.versions", lambda: {"numpy": "99"})
    assert small_plan().runs[0].id != before


def test_cases_override_shared_keys_and_no_run_is_planned_twice() -> None:
    cases = [
        {"methods": "semi-async", "vary": {"gateway": {"period": [50, 100]}}, "best": True},
        {"methods": ["two-tier"], "set": {"cloud": {"epochs": 9}}},
        {"methods": ["two-tier"], "seeds": [2, 5], "set": {"cloud.epochs": 9}},
    ]
    plan = small_plan(case=cases)
    periods = [run for run in plan.runs if run.method == "semi-async"]
    assert {run.group for run in periods} == {"semi-async, gateway.period=50", "semi-async, gateway.period=100"}
    assert {run.family for run in periods} == {"semi-async"}
    assert {run.epochs for run in periods} == {4}
    others = [run for run in plan.runs if run.method == "two-tier"]
    assert sorted(run.seed for run in others) == [1, 2, 5]
    assert {run.epochs for run in others} == {180}, "each device's update is a cloud epoch there, every 20th evaluated"
    assert {run.family for run in others} == {"two-tier"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"method": "two-tier"}, "unknown key 'method'"),
        ({"methods": "two-teir"}, "did you mean two-tier?"),
        ({"methods": []}, "contains no run"),
        ({"methods": [3]}, "methods must be a name or a list of names"),
        ({"seeds": 0}, "seeds must be a number of seeds (3) or a list ([1, 2, 3])"),
        ({"seeds": [-1]}, "seed -1"),
        ({"vary": {"gateway.epochs": 3}}, "vary.gateway.epochs must be a list"),
        ({"vary": {"gateway.epoch": [3]}}, "gateway.epochs"),
        ({"set": {"cloud": {"epochs": {"a": 1}}}}, "cannot be the value of a setting"),
        ({"case": {"methods": "two-tier"}}, "[[case]]"),
        ({"best": 1}, "best must be true or false"),
    ],
)
def test_mistakes_are_reported(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        make_plan({**SMALL, **changes}, "plan.toml", "plan")


def test_a_plan_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'tasks = "null"\nnetworks = "uniform"\nmethods = ["two-tier"]\n'
        '[set]\ncloud.epochs = 3\nnetwork.gateways = 2\n[vary]\ngateway.bandwidth = ["25%", 5e3]\n'
    )
    plan = read_plan(file)
    assert plan.name == "mine"
    assert [run.group for run in plan.runs] == [
        "two-tier, gateway.bandwidth=25%",
        "two-tier, gateway.bandwidth=5000.0",
    ]
    with pytest.raises(SettingsError, match="no such file"):
        read_plan(tmp_path / "other.toml")
    file.write_text("methods = [")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_plan(file)


def test_a_comparison_has_every_method_and_three_periods() -> None:
    plan = comparison_plan("all", METHODS, [1, 2], task="null", network="uniform", overrides=["cloud.epochs=3"])
    assert len(plan.runs) == 2 * 18
    assert [run.seed for run in plan.runs] == [1] * 18 + [2] * 18
    assert [run.group for run in plan.runs if run.family == "semi-async"][:3] == [
        "semi-async, 50 s",
        "semi-async, 100 s",
        "semi-async, 150 s",
    ]
    told = comparison_plan("one", ["semi-async"], [1], task="null", network="uniform", overrides=["gateway.period=70"])
    assert [run.group for run in told.runs] == ["semi-async"]


def test_seeds_as_a_number_or_as_a_list() -> None:
    assert seeds_of("3") == [1, 2, 3]
    assert seeds_of("7,2,7") == [7, 2]
    for wrong in ("0", "x", "1,x"):
        with pytest.raises(UserError, match="--seeds"):
            seeds_of(wrong)


def test_the_example_is_a_valid_plan() -> None:
    plan = read_plan(Path(__file__).parents[3] / "examples" / "plans" / "bandwidth.toml")
    assert len(plan.runs) == 8
    assert {run.group for run in plan.runs} == {
        f"{method}, gateway.bandwidth={share}"
        for method in ("async-hfl-plus", "async-random")
        for share in ("25%", "50%")
    }
