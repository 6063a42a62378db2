"""Objects made in Python: their digest, their names, and runs that are resumed with them."""

from __future__ import annotations

import dataclasses
import functools
import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import async_hfl
from async_hfl.assembly.runs.replay import replay
from async_hfl.assembly.settings.overrides import override_texts
from async_hfl.assembly.user_code.content import Content
from async_hfl.assembly.user_code.loading import load_function
from async_hfl.assembly.user_code.objects import is_object, name_of_object, shown
from async_hfl.core.errors import PolicyError, SettingsError, TaskError, UserError
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival

EXAMPLES = Path(__file__).parents[3] / "examples"
SHORT = {"task.devices": 12, "cloud.epochs": 3}
HANG_GUARD_S = 300


def made(text: str, name: str = "choose", **known: Any) -> Any:
    """Execute code as a cell of a notebook would, and return what it defines."""
    space = {"__name__": "__main__", "np": np, **known}
    exec(text, space)
    return space[name]


def digest(value: object) -> str:
    return Content(value).digest


POLICY = """
def choose(problem):
    order = problem.round_latency.argsort()
    return problem.candidates[order[problem.data_rate[order].cumsum() <= LIMIT * problem.capacity]]
"""


@pytest.mark.parametrize(
    ("text", "known", "same"),
    [
        (POLICY.replace("    order =", "    # the quickest first\n\n    order ="), {"LIMIT": 1.0}, True),
        (POLICY, {"LIMIT": 0.5}, False),
        (POLICY.replace("argsort()", "argsort()[::-1]"), {"LIMIT": 1.0}, False),
        (POLICY, {"LIMIT": 1.0, "order": [1], "capacity": 7}, True),
        (POLICY + "choose.needs = {'utility'}\n", {"LIMIT": 1.0}, False),
    ],
    ids=["comment", "a variable", "code", "variables of other names", "attribute"],
)
def test_code_and_the_variables_that_it_refers_to_count(text: str, known: dict[str, Any], same: bool) -> None:
    assert (digest(made(text, **known)) == digest(made(POLICY, LIMIT=1.0))) is same


def closing_over(value: object) -> Callable[[], object]:
    return lambda: value


def test_values_in_closures_defaults_and_partials_count() -> None:
    one, two = np.arange(6.0), np.arange(6.0)
    assert digest(closing_over(one)) == digest(closing_over(two))
    two[3] = 9
    assert digest(closing_over(one)) != digest(closing_over(two))
    assert digest(closing_over({"a": [1, 2]})) != digest(closing_over({"a": [1, 3]}))
    assert digest(closing_over(one.astype("f4"))) != digest(closing_over(one))
    assert digest(functools.partial(closing_over, 1)) != digest(functools.partial(closing_over, 2))
    assert digest(lambda x=1: x) != digest(lambda x=2: x)


def test_a_function_that_refers_to_itself_has_a_digest() -> None:
    text = "def choose(n):\n    return n and choose(n - 1)\n"
    assert digest(made(text)) == digest(made(text))


def test_classes_count_with_their_bases_and_methods() -> None:
    text = "class Rule(Base):\n    def received(self, gateway, held, at):\n        return AGE\n"
    one = digest(made(text, "Rule", Base=MixOnArrival, AGE=1))
    assert one == digest(made(text, "Rule", Base=MixOnArrival, AGE=1))
    assert one != digest(made(text, "Rule", Base=MixOnArrival, AGE=2))
    assert one != digest(made(text, "Rule", Base=object, AGE=1))


def test_what_cannot_be_compared_is_named() -> None:
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as two:
        found = Content(closing_over(one))
        assert found.opaque == ["_io.BufferedRandom"]
        assert found.digest == digest(closing_over(one))
        assert found.digest != digest(closing_over(two))


def test_the_digest_is_the_same_in_another_process(tmp_path: Path) -> None:
    text = POLICY + (
        "from async_hfl import OwnTask\nfrom async_hfl.assembly.user_code.content import Content\n"
        "SOME = {'b': {3, 1, 2}, 'a': frozenset('xyz')}\n"
        "task = OwnTask(init=lambda r: SOME, apply=choose, target=0.5, train=(np.eye(3), [1, 2, 3]), test=([], []))\n"
    )
    (tmp_path / "cell.py").write_text(f"import numpy as np\nLIMIT = 2\n{text}print(Content(task).digest)\n")
    done = subprocess.run(
        [sys.executable, "cell.py"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest(made(text, "task", LIMIT=2))


def test_names_of_objects() -> None:
    choose = made(POLICY, LIMIT=1.0)
    name = name_of_object("selection.policy", choose)
    assert is_object(name)
    assert shown(name) == "choose"
    assert load_function("selection.policy", name) is choose
    assert name_of_object("selection.policy", made(POLICY, LIMIT=2.0)) != name
    del choose
    gc.collect()
    with pytest.raises(SettingsError, match=r"selection.policy: choose was made in Python, .* put it in a file"):
        load_function("selection.policy", name)


def test_overrides_as_values_and_as_texts() -> None:
    many = {"cloud.epochs": 50, "gateway": {"bandwidth": "50%", "round_deadline": float("inf")}}
    network = {"network.options.metres": 2.5, "task.ladder": (0.5, np.float64(0.75))}
    assert override_texts({**many, **network, "warmup.charge": False}) == [
        *("cloud.epochs=50", 'gateway.bandwidth="50%"', "gateway.round_deadline=inf", "network.options.metres=2.5"),
        *("task.ladder=[0.5, 0.75]", "warmup.charge=false"),
    ]
    assert override_texts(["cloud.epochs=50"]) == ["cloud.epochs=50"]


def loaded(file: str, name: str) -> Any:
    """An object of an example, as if its code stood in a cell. Classes of stored state have different names."""
    return made((EXAMPLES / file).read_text().replace("MomentumState", "CellState"), name)


@pytest.mark.parametrize(
    ("setting", "file", "name"),
    [
        ("selection.policy", "own_policy.py", "choose"),
        ("gateway.aggregation", "own_gateway_rule.py", "FedBuff"),
        ("cloud.aggregation", "own_cloud_rule.py", "Momentum"),
    ],
)
def test_an_object_gives_the_same_run_as_its_file(setting: str, file: str, name: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"task": "null", "network": "uniform", "method": "async-hfl"}
    given = loaded(file, name)
    one = async_hfl.run(**usual, overrides={**SHORT, setting: f"{EXAMPLES / file}:{name}"}, out=tmp_path / "file")
    two = async_hfl.run(**usual, overrides={**SHORT, setting: given}, out=tmp_path / "object")
    assert one.summary["digest"] == two.summary["digest"]
    assert one.manifest["user_objects"] == {}
    facts = two.manifest["user_objects"][setting]
    assert facts["sha256"] == Content(given).digest
    assert facts["name"] == two.manifest["settings"][setting.partition(".")[0]][setting.partition(".")[2]]
    assert replay(two.path).differences == 0


def test_a_network_gives_the_same_run_as_its_file(tmp_path: Path) -> None:
    street, usual = loaded("own_network.py", "street"), {"task": "null", "overrides": SHORT}
    named = f"{EXAMPLES / 'own_network.py'}:street"
    one = async_hfl.run(**usual, network=named, out=tmp_path / "file")
    two = async_hfl.run(**usual, network=street, out=tmp_path / "object")
    assert one.summary["digest"] == two.summary["digest"]
    assert async_hfl.show_network(two).view.links == async_hfl.show_network(named, devices=12).view.links


@pytest.fixture(scope="module")
def task() -> async_hfl.OwnTask:
    random = np.random.default_rng(1)
    inputs = random.standard_normal((140, 4))
    targets = inputs[:, :3].argmax(axis=1)
    return async_hfl.OwnTask(
        init=lambda random: {"w": np.zeros((4, 3))},
        apply=lambda parameters, batch: batch @ parameters["w"],
        target=0.95,
        train=(inputs[:100], targets[:100]),
        test=(inputs[100:], targets[100:]),
    )


def test_resuming_needs_the_same_objects(task: async_hfl.OwnTask, tmp_path: Path) -> None:
    mine = dataclasses.replace(task, ladder=(0.5,))
    choose = made(POLICY, LIMIT=1.0)
    chosen = {**SHORT, "selection.policy": choose}
    run = async_hfl.run(task=mine, network="uniform", overrides=chosen, out=tmp_path / "run")
    wanted = run.summary["digest"]
    run.directory.summary.unlink()
    assert async_hfl.resume(run.path).summary["digest"] == wanted  # they are still here
    run.directory.summary.unlink()
    again, other = dataclasses.replace(mine), dataclasses.replace(mine, target=0.5)
    forget(mine, choose)
    del mine, choose, chosen
    for _ in range(2):  # caches hold the last two tasks
        async_hfl.run(task=dataclasses.replace(task), network="uniform", overrides=SHORT)
    with pytest.raises(UserError, match=r"the task OwnTask, the selection policy choose was made in Python, .*resume"):
        async_hfl.resume(run.path)
    policy = {"selection.policy": made(POLICY, LIMIT=1.0)}
    with pytest.raises(UserError, match=r"task: OwnTask is not what the run .* its code or data has changed"):
        async_hfl.resume(run.path, task=other, overrides=policy)
    with pytest.raises(UserError, match=r"selection.policy: choose is not what"):
        async_hfl.resume(run.path, task=again, overrides={"selection.policy": made(POLICY, LIMIT=0.9)})
    with pytest.raises(UserError, match="has no network that was made in Python; leave it out"):
        async_hfl.resume(run.path, task=again, network=lambda request: None, overrides=policy)
    assert async_hfl.resume(run.path, task=again, overrides=policy).summary["digest"] == wanted


def forget(*values: object) -> None:
    """Forget objects as a new process would."""
    from async_hfl.assembly.user_code import objects

    for name, known in list(objects._OBJECTS.items()):
        if any(known is value for value in values):
            del objects._OBJECTS[name]


def test_comparing_here(tmp_path: Path) -> None:
    """Runs with objects are those that would be made alone; the same call makes none of them again."""
    choose = made(POLICY, LIMIT=1.0)
    methods = {"async-hfl": {}, "mine": {"method": "async-hfl", "selection.policy": choose}}
    chosen: dict[str, Any] = {"task": "null", "network": "uniform", "seeds": [3, 5], "overrides": SHORT}
    found = async_hfl.compare(methods=methods, **chosen, out=tmp_path / "compared")
    assert found.complete
    assert [(row.group, row.seeds, len(row.outcomes)) for row in found.panels[0].rows] == [
        ("async-hfl", 2, 2),
        ("mine", 2, 2),
    ]
    alone = async_hfl.run(
        task="null", network="uniform", method="async-hfl", seed=5,
        overrides={**SHORT, "selection.policy": choose}, out=tmp_path / "alone",
    )  # fmt: skip
    assert alone.summary["digest"] in {run.summary["digest"] for run in found.runs}
    again = async_hfl.compare(methods=methods, **chosen, out=tmp_path / "compared")
    assert (again.swept.already_complete, again.swept.done) == (4, 0)
    methods["mine"]["selection.policy"] = made(POLICY, LIMIT=0.9)
    other = async_hfl.compare(methods=methods, **chosen, out=tmp_path / "compared")
    assert (other.swept.already_complete, other.swept.done) == (2, 2)


def test_sweeping_here(task: async_hfl.OwnTask, tmp_path: Path) -> None:
    plan = {
        "tasks": [task],
        "networks": "uniform",
        "methods": ["async-hfl"],
        "set": SHORT,
        "vary": {"selection.policy": ["random", made(POLICY, LIMIT=1.0)]},
    }
    found = async_hfl.sweep(plan, out=tmp_path / "swept")
    assert [row.group for row in found.panels[0].rows] == [
        "async-hfl, selection.policy=random",
        "async-hfl, selection.policy=choose",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"processes": 2}, "task: OwnTask .* the workers .on = processes. are other processes, which load their own"),
        ({"on": "ray"}, "task: OwnTask .* the workers .on = ray. are other processes"),
        ({"on": "here", "processes": 2}, "here is one process"),
        ({"seeds": []}, "give a number of seeds"),
        ({"methods": ["async-hlf"]}, "did you mean async-hl"),
        ({"methods": "async-random, async-hlf"}, "did you mean async-hl"),
        ({"tuning": "no.toml", "untuned": "async-hlf"}, "no.toml"),
    ],
)
def test_mistakes_in_comparisons(more: dict[str, Any], told: str, task: async_hfl.OwnTask, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"methods": ["async-hfl"], "seeds": 1, "overrides": SHORT, "out": tmp_path / "compared"}
    with pytest.raises(UserError, match=told):
        async_hfl.compare(task=task, **{**usual, **more})


@pytest.mark.parametrize("value", [{"init": 1}, [1, 2], 7])
def test_what_cannot_be_a_task(value: object) -> None:
    with pytest.raises(SettingsError, match="cannot be a task; give an OwnTask, or a function that returns one"):
        async_hfl.run(task=value)  # type: ignore[arg-type]


def test_methods_as_one_text(tmp_path: Path) -> None:
    """As on the command line."""
    found = async_hfl.compare(
        task="null", network="uniform", methods="async-random, two-tier", seeds=1, overrides=SHORT, on="here",
        out=tmp_path / "compared",
    )  # fmt: skip
    assert {row.group for row in found.panels[0].rows} == {"async-random", "two-tier"}


def test_a_cluster_needs_files(task: async_hfl.OwnTask, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    with pytest.raises(SettingsError, match="a cluster consists of other processes, which load their own: put a task"):
        async_hfl.cluster(task=task, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Rule(MixOnArrival):
    """A rule at the top level of a file."""


def test_the_file_of_an_object_is_suggested(tmp_path: Path) -> None:
    chosen = {"gateway.aggregation": Rule}
    with pytest.raises(SettingsError, match=r"give gateway.aggregation = '.*test_user_objects.py:Rule'"):
        async_hfl.compare(task="null", network="uniform", methods=["async-hfl"], overrides=chosen, processes=2)


@pytest.mark.parametrize(
    ("overrides", "error", "told"),
    [
        ({"gatway.epochs": 3}, SettingsError, "unknown section 'gatway' .*did you mean gateway"),
        ({"cloud.epoch": 3}, SettingsError, "did you mean cloud.epochs"),
        ({"epochs": 3}, SettingsError, "write it as section.key=value"),
        ({"cloud.epochs": None}, SettingsError, "cloud.epochs = None: is not a value"),
        ({"cloud.epochs": 0}, SettingsError, "cloud.epochs = 0"),
        ({"cloud.epochs": Rule}, SettingsError, "takes no object; those that do: task, network, selection.policy"),
        ({"gateway.aggregation": Rule()}, SettingsError, "gateway.aggregation: Rule is a Rule; give a class"),
        ({"gateway.aggregation": dict}, PolicyError, "gateway.aggregation: dict must be a subclass"),
        ({"cloud.aggregation": Rule}, PolicyError, "cloud.aggregation: Rule must be a subclass"),
        ("cloud.epochs=3", SettingsError, "give a mapping"),
    ],
)
def test_mistakes_in_overrides(overrides: Any, error: type[UserError], told: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=told):
        async_hfl.run(task="null", network="uniform", overrides=overrides, out=tmp_path / "run")


def test_errors_name_the_object_and_the_line(task: async_hfl.OwnTask, tmp_path: Path) -> None:
    def wrong(problem: Any) -> object:
        return problem.nothing

    chosen = {**SHORT, "selection.policy": wrong}
    with pytest.raises(PolicyError, match=r"selection policy wrong at gateway \d: raised AttributeError.*line \d+"):
        async_hfl.run(task="null", network="uniform", overrides=chosen, out=tmp_path / "policy")
    broken = dataclasses.replace(task, apply=lambda parameters, batch: parameters["v"])
    with pytest.raises(TaskError, match=r"OwnTask: apply: raised KeyError: 'v' \(line \d+ of <lambda>\)"):
        async_hfl.run(task=broken, out=tmp_path / "task")
    with pytest.raises(TaskError, match=r"task: is a int; give an async_hfl.OwnTask"):
        async_hfl.run(task=lambda devices, seed: 3, out=tmp_path / "number")  # type: ignore[arg-type, return-value]


def test_a_run_prints_itself(task: async_hfl.OwnTask, tmp_path: Path) -> None:
    run = async_hfl.run(task=task, network="uniform", method="async-hfl", overrides=SHORT, out=tmp_path / "run")
    line = f"<Run {tmp_path / 'run'}: async-hfl on OwnTask, uniform, seed 1; target not reached, final accuracy 0."
    assert repr(run).startswith(line)
    assert run.summary["digest"] in run._repr_html_()
    run.directory.summary.unlink()
    assert repr(run).endswith("seed 1; not complete>")
    assert "not complete" in run._repr_html_()


def test_a_task_in_pytorch_is_trained_in_this_process(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (async-hfl[torch])")
    chosen = {"task.devices": 4, "cloud.epochs": 2}
    made_here = loaded("own_torch.py", "task")
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    two = async_hfl.run(task=made_here, network="uniform", overrides=chosen, out=tmp_path / "object")
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    named = f"{EXAMPLES / 'own_torch.py'}:task"
    one = async_hfl.run(task=named, network="uniform", overrides=chosen, out=tmp_path / "file")
    assert one.summary["digest"] == two.summary["digest"]
