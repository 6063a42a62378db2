"""`async-hfl decide`: problems from files, and the messages for mistakes in them."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call, command

import async_hfl
from async_hfl.core.errors import DataError, UserError
from async_hfl.decisions.solvers.exact import best_assignment

SELECTION: dict[str, Any] = {
    "candidates": [
        {"device": "d1", "learning_utility": 0.4, "round_latency_s": 80.0, "data_rate": 20000.0},
        {"device": "d2", "learning_utility": 0.9, "round_latency_s": 100.0, "data_rate": 16000.0},
        {"device": "d3", "learning_utility": -1, "round_latency_s": 10, "data_rate": 1.0},
        {"device": "d4", "learning_utility": 0.5, "round_latency_s": 100.0, "data_rate": 14000},
    ],
    "capacity": 3e4,
    "latency_exponent": 1.0,
}
ASSOCIATION: dict[str, Any] = {
    "devices": [{"device": f"d{k}", "learning_utility": u} for k, u in enumerate((3.0, 2.0, 2.0, 1.0, 5.0))],
    "gateways": [{"gateway": name, "bandwidth": 10.0} for name in ("g1", "g2", "idle")],
    "links": [{"device": f"d{k}", "gateway": g, "data_rate": 1.0} for k in range(4) for g in ("g2", "g1")],
    "load_penalty": 0.1,
    "every_device": True,
}


def written(problem: object) -> str:
    Path("problem.json").write_text(problem if isinstance(problem, str) else json.dumps(problem))
    return "problem.json"


@pytest.mark.parametrize("exact", [[], ["--exact"]])
def test_selection_by_hand(exact: list[str], call: Call) -> None:
    """d2 and d4 fill the capacity exactly: 0.9 / 100 + 0.5 / 100; d3 is worth less than nothing."""
    done = call("decide", "selection", written(SELECTION), "--json", *exact)
    assert done.code == 0
    assert done.err == ""
    assert len(done.out.splitlines()) == 1
    assert list(done.json) == ["selected", "objective", "bound", "gap", "seconds"]
    assert done.json["selected"] == ["d2", "d4"]
    assert done.json["objective"] == pytest.approx(0.014)
    assert (done.json["bound"], done.json["gap"]) == (done.json["objective"], 0.0)
    assert done.json["seconds"] >= 0.0


@pytest.mark.parametrize("exact", [[], ["--exact"]])
def test_association_by_hand(exact: list[str], call: Call) -> None:
    """3 + 1 against 2 + 2; the gateway without links and d4, which reaches no gateway, are left out."""
    done = call("decide", "association", written(ASSOCIATION), "--json", *exact)
    assert done.code == 0
    assert len(done.out.splitlines()) == 1
    assert list(done.json) == ["association", "objective", "bound", "gap", "seconds"]
    found = done.json["association"]
    assert sorted(found) == ["d0", "d1", "d2", "d3"]
    assert found["d0"] == found["d3"] != found["d1"] == found["d2"]
    assert done.json["objective"] == pytest.approx(4.0 - 0.1 * 0.2)
    assert 0.0 <= done.json["gap"] < 1e-9
    if exact:
        assert done.json["gap"] == 0.0


def test_text_output(call: Call) -> None:
    done = call("decide", "selection", written(SELECTION))
    assert done.out.splitlines()[0] == "selected 2: d2 d4"
    assert "objective 0.014, bound 0.014, gap 0, " in done.out
    assert "no device selected" in call("decide", "selection", written({**SELECTION, "capacity": 0.5})).out
    done = call("decide", "association", written(ASSOCIATION))
    assert len(done.out.splitlines()) == 5
    assert done.out.startswith("d0  g")


def test_in_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(ASSOCIATION))
    done = command("decide", "association", "p.json", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["objective"] == pytest.approx(3.98)


def test_the_lone_device_rule_and_scaling_do_not_apply() -> None:
    one = {"device": "d", "learning_utility": 7.0, "round_latency_s": 2.0, "data_rate": 5.0}
    assert async_hfl.decide_selection({"candidates": [one], "capacity": 4.0})["selected"] == []
    found = async_hfl.decide_selection({"candidates": [one], "capacity": 5.0, "latency_exponent": 2})
    assert found["objective"] == pytest.approx(7.0 / 4.0)


def test_empty_problems_have_an_answer() -> None:
    nobody = async_hfl.decide_selection({"candidates": [], "capacity": 1.0})
    assert (nobody["selected"], nobody["objective"], nobody["bound"], nobody["gap"]) == ([], 0.0, 0.0, 0.0)
    for problem in ({"devices": [], "gateways": [], "links": []}, {**ASSOCIATION, "links": []}):
        for exact in (False, True):
            found = async_hfl.decide_association(problem, exact=exact)
            assert (found["association"], found["objective"], found["gap"]) == ({}, 0.0, 0.0)


def best_selection(problem: dict[str, Any]) -> float:
    best = 0.0
    for some in itertools.product((False, True), repeat=len(problem["candidates"])):
        chosen = [one for one, taken in zip(problem["candidates"], some, strict=True) if taken]
        if sum(one["data_rate"] for one in chosen) <= problem["capacity"]:
            best = max(best, sum(one["learning_utility"] / one["round_latency_s"] for one in chosen))
    return best


def test_selections_against_brute_force() -> None:
    """Ties, zero and negative utilities, rates of zero, no bandwidth. Whole numbers make all sums exact."""
    rng = np.random.default_rng(3)
    for _ in range(400):
        problem = {
            "candidates": [
                {
                    "device": f"d{k}",
                    "learning_utility": float(rng.integers(-2, 5)),
                    "round_latency_s": float(rng.choice([1.0, 2.0, 4.0])),
                    "data_rate": float(rng.integers(0, 6)),
                }
                for k in range(int(rng.integers(0, 8)))
            ],
            "capacity": float(rng.integers(0, 12)),
        }
        for exact in (False, True):
            found = async_hfl.decide_selection(problem, exact=exact)
            assert found["objective"] == pytest.approx(best_selection(problem), abs=1e-12)
            assert found["gap"] == 0.0 if exact else found["gap"] <= 1e-12
            chosen = [one for one in problem["candidates"] if one["device"] in found["selected"]]
            assert sum(one["data_rate"] for one in chosen) <= problem["capacity"]


def test_associations_against_brute_force() -> None:
    rng = np.random.default_rng(4)
    for number in range(40):
        devices, gateways = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        links = [
            {"device": f"d{i}", "gateway": f"g{j}", "data_rate": float(rng.integers(0, 4))}
            for i in range(devices)
            for j in range(gateways)
            if rng.random() < 0.7
        ]
        problem = {
            "devices": [{"device": f"d{i}", "learning_utility": float(rng.integers(-2, 5))} for i in range(devices)],
            "gateways": [{"gateway": f"g{j}", "bandwidth": float(rng.integers(1, 3))} for j in range(gateways)],
            "links": links,
            "load_penalty": 0.5,
            "every_device": number % 2 == 0,
        }
        found = async_hfl.decide_association(problem, exact=True)
        assert found["objective"] == pytest.approx(best_association(problem), abs=1e-9)
        assert found["gap"] == 0.0
        near = async_hfl.decide_association(problem)
        assert near["objective"] <= found["objective"] + 1e-9 <= near["bound"] + 2e-9


def best_association(problem: dict[str, Any]) -> float:
    links = {(link["device"], link["gateway"]): link["data_rate"] for link in problem["links"]}
    reachable = sorted({gateway for _, gateway in links})
    bandwidth = {one["gateway"]: one["bandwidth"] for one in problem["gateways"]}
    choices = []
    for one in problem["devices"]:
        own: list[str | None] = [gateway for device, gateway in links if device == one["device"]]
        choices.append(own if own and problem["every_device"] else [*own, None])
    best = -np.inf if reachable else 0.0
    for chosen in itertools.product(*choices) if reachable else ():
        utility, load = dict.fromkeys(reachable, 0.0), dict.fromkeys(reachable, 0.0)
        for one, gateway in zip(problem["devices"], chosen, strict=True):
            if gateway is not None:
                utility[gateway] += one["learning_utility"]
                load[gateway] += links[one["device"], gateway] / bandwidth[gateway]
        best = max(best, min(utility.values()) - problem["load_penalty"] * max(load.values()))
    return float(best)


def first(problem: dict[str, Any], key: str, **changed: object) -> dict[str, Any]:
    """Return the problem with a change in the first row of a list."""
    return {**problem, key: [{**problem[key][0], **changed}, *problem[key][1:]]}


def without(table: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


MISTAKES: dict[str, tuple[str, object, str]] = {
    "not JSON": ("selection", "{candidates", "problem.json: not valid JSON: Expecting property name"),
    "no object": ("selection", "[1]", "problem.json: must be an object, not [1]"),
    "unknown key": ("selection", {**SELECTION, "capcity": 1}, "unknown key 'capcity'; did you mean 'capacity'?"),
    "the other kind": ("association", SELECTION, "unknown key 'candidates'; there are: devices, gateways, links,"),
    "missing key": ("selection", without(SELECTION, "capacity"), "problem.json: has no 'capacity'"),
    "unknown key in a row": (
        "selection",
        first(SELECTION, "candidates", latency=3),
        "candidates[0]: unknown key 'latency'; did you mean",
    ),
    "missing key in a row": (
        "selection",
        {**SELECTION, "candidates": [without(SELECTION["candidates"][0], "data_rate")]},
        "candidates[0]: has no 'data_rate'",
    ),
    "no list": ("selection", {**SELECTION, "candidates": {}}, "candidates must be a list, not {}"),
    "no row": ("selection", {**SELECTION, "candidates": ["d1"]}, 'candidates[0] must be an object, not "d1"'),
    "text for a number": ("selection", {**SELECTION, "capacity": "many"}, 'capacity must be a number, not "many"'),
    "truth for a number": ("selection", {**SELECTION, "capacity": True}, "capacity must be a number, not true"),
    "null": ("selection", {**SELECTION, "capacity": None}, "capacity must be a number, not null"),
    "number for a name": ("selection", first(SELECTION, "candidates", device=1), "device must be a string, not 1"),
    "number for truth": ("association", {**ASSOCIATION, "every_device": 1}, "every_device must be true or false"),
    "NaN": (
        "selection",
        first(SELECTION, "candidates", learning_utility=float("nan")),
        "candidates[0]: learning_utility = nan must be a finite number",
    ),
    "infinite": ("selection", {**SELECTION, "capacity": float("inf")}, "capacity = inf must be a finite number"),
    "too large": ("selection", '{"candidates": [], "capacity": 1' + 400 * "0" + "}", "must be a finite number"),
    "negative rate": (
        "selection",
        first(SELECTION, "candidates", data_rate=-1),
        "candidates[0]: data_rate = -1 must be at least 0",
    ),
    "no latency": (
        "selection",
        first(SELECTION, "candidates", round_latency_s=0),
        "round_latency_s = 0 must be above 0",
    ),
    "no bandwidth": ("association", first(ASSOCIATION, "gateways", bandwidth=0), "bandwidth = 0 must be above 0"),
    "negative penalty": ("association", {**ASSOCIATION, "load_penalty": -1}, "load_penalty = -1 must be at least 0"),
    "negative rate of a link": (
        "association",
        first(ASSOCIATION, "links", data_rate=-2),
        "links[0]: data_rate = -2 must be at least 0",
    ),
    "a device twice": (
        "selection",
        first(SELECTION, "candidates", device="d2"),
        "candidates[1]: device 'd2' is given twice",
    ),
    "a gateway twice": ("association", first(ASSOCIATION, "gateways", gateway="g2"), "gateway 'g2' is given twice"),
    "a link twice": (
        "association",
        {**ASSOCIATION, "links": ASSOCIATION["links"] * 2},
        "links[8]: the link of 'd0' to 'g2' is given twice",
    ),
    "unknown gateway": (
        "association",
        first(ASSOCIATION, "links", gateway="g3"),
        "links[0]: gateway 'g3' is not among the gateways; did you mean 'g2'?",
    ),
    "unknown device": (
        "association",
        first(ASSOCIATION, "links", device="x"),
        "links[0]: device 'x' is not among the devices",
    ),
    "a key twice": ("selection", '{"capacity": 1, "capacity": 2}', "'capacity' occurs twice in one object"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_file(name: str, call: Call) -> None:
    kind, problem, what = MISTAKES[name]
    done = call("decide", kind, written(problem), "--json")
    assert done.code == 2
    assert what in done.told()
    assert done.out == ""


def test_files_that_cannot_be_read(call: Call) -> None:
    done = call("decide", "selection", "none.json")
    assert (done.code, done.out) == (2, "")
    assert "none.json: no such file; give the path of a problem in JSON" in done.told()
    Path("folder").mkdir()
    assert call("decide", "selection", "folder").code == 2
    Path("bytes.json").write_bytes(b"\xff\xfe")
    assert "cannot be read ('utf-8' codec" in call("decide", "selection", "bytes.json").told()


@pytest.mark.parametrize("arguments", [["decide"], ["decide", "both"], ["decide", "selection"]])
def test_wrong_arguments(arguments: list[str], call: Call) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert done.told()


def test_the_python_api_gives_the_same_messages() -> None:
    with pytest.raises(DataError, match="problem: candidates must be a list"):
        async_hfl.decide_selection({"candidates": 3, "capacity": 1.0})
    assert async_hfl.decide_selection(SELECTION)["selected"] == ["d2", "d4"]


def test_an_answer_without_a_proof_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the solver reaches its limit of steps, `exact` raises an error."""
    monkeypatch.setattr("async_hfl.assembly.runs.decide.best_assignment", partial(best_assignment, node_limit=1))
    random = np.random.default_rng(1)
    names = [f"d{number}" for number in range(30)]
    problem = {
        "devices": [{"device": name, "learning_utility": float(random.lognormal())} for name in names],
        "gateways": [{"gateway": gateway, "bandwidth": 1e6} for gateway in "abc"],
        "links": [
            {"device": name, "gateway": gateway, "data_rate": float(random.uniform(1e3, 1e5))}
            for name in names
            for gateway in "abc"
        ],
        "load_penalty": 0.1,
    }
    with pytest.raises(UserError, match=r"no optimum could be proven .* without --exact the answer has"):
        async_hfl.decide_association(problem, exact=True)
