"""Aggregation rules from a user's file: how they are loaded, and the errors that a bad rule gets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from async_hfl.assembly.build.aggregation_rules import cloud_rule, gateway_rule
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.runs.provenance import user_files
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import PolicyError, SettingsError
from async_hfl.faults.checkers.checker import CloudChecker, GatewayChecker
from async_hfl.simulation.simulator import Simulator

GATEWAY_HEAD = """
import numpy as np
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation, Next
class Mine(GatewayAggregation):
"""
GATEWAY_RECEIVED = """
    def received(self, gateway, held, at):
        gateway.weights = held.update.weights
        gateway.state.gateway_epoch += 1
        gateway.aggregated(held, at, staleness=1, weight=1.0)
        return Next.UPLOAD
"""
CLOUD_HEAD = """
import numpy as np
from async_hfl.core.protocol.messages import Outcome
from async_hfl.nodes.cloud.aggregation.rule import CloudAggregation, Next
class Mine(CloudAggregation):
    def received(self, cloud, upload, staleness, at):
"""
YES = "((upload, Outcome(True, staleness, 0.5)),)"


class NoJournal:
    def write(self, record: object) -> None: ...

    def write_sent(self, *fields: Any) -> None: ...

    def note_epoch(self, *facts: Any) -> None: ...


def written(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text(text)
    return f"{file}:Mine"


def run(setting: str, name: str, *more: str) -> Simulator:
    overrides = ["task.devices=6", "network.gateways=2", "cloud.epochs=4", f"{setting}.aggregation={name}", *more]
    settings = compose(task="null", method="async-hfl", network="uniform", overrides=overrides).settings
    simulator = Simulator(build(settings, 1).world, NoJournal())  # type: ignore[arg-type]
    simulator.start()
    simulator.run()
    return simulator


def test_a_rule_of_each_place_runs(tmp_path: Path) -> None:
    assert run("gateway", written(tmp_path, GATEWAY_HEAD + GATEWAY_RECEIVED)).world.cloud.state.epoch == 4
    name = written(tmp_path, CLOUD_HEAD + f"        return Next(upload.weights, {YES})\n")
    assert run("cloud", name).world.cloud.state.epoch == 4
    assert cloud_rule(name).checker is CloudChecker
    assert cloud_rule(name).reads == frozenset()


def test_a_rule_may_read_every_setting(tmp_path: Path) -> None:
    """Of a built-in rule it is known which settings it reads; a user's rule may read any."""
    name = written(tmp_path, GATEWAY_HEAD + GATEWAY_RECEIVED)
    assert gateway_rule(name).checker is GatewayChecker
    run("gateway", name, "gateway.period=50", "gateway.drag=0.5")
    with pytest.raises(SettingsError, match=r"gateway\.period .*has no effect with gateway\.aggregation = 'rounds'"):
        compose(overrides=["gateway.period=50", "gateway.aggregation=rounds", "cloud.aggregation=average"])
    with pytest.raises(
        SettingsError, match=r"cloud\.mixing_weight .*has no effect with cloud\.aggregation = 'average'"
    ):
        compose(overrides=["cloud.mixing_weight=0.5", "gateway.aggregation=rounds", "cloud.aggregation=average"])


def test_a_run_remembers_the_files_of_its_rules(tmp_path: Path) -> None:
    name = written(tmp_path, GATEWAY_HEAD + GATEWAY_RECEIVED)
    settings = compose(overrides=[f"gateway.aggregation={name}"]).settings
    file = tmp_path / "mine.py"
    assert user_files(settings) == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}


@pytest.mark.parametrize(
    ("setting", "names"), [("gateway", "mix, relay, periods, buffer, rounds"), ("cloud", "mix, average")]
)
def test_unknown_names(setting: str, names: str) -> None:
    load = {"gateway": gateway_rule, "cloud": cloud_rule}[setting]
    with pytest.raises(SettingsError, match=f"{setting}.aggregation = 'fedbuff': there is {names}, or FILE.py:CLASS"):
        load("fedbuff")
    with pytest.raises(SettingsError, match=r"write it as FILE\.py:CLASS"):
        load("mine.py")
    with pytest.raises(SettingsError, match=r"there is no file nowhere\.py"):
        load("nowhere.py:Mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mine = 3", "has no class 'Mine'"),
        ("def Mine(): pass", "must be a subclass of .*GatewayAggregation"),
        (CLOUD_HEAD + "        pass", "must be a subclass of .*GatewayAggregation"),
        (GATEWAY_HEAD + "    pass", "without arguments, but .*raised TypeError: .*abstract method '?received"),
        (
            GATEWAY_HEAD + GATEWAY_RECEIVED + "    def __init__(self, size): super().__init__()",
            "without arguments, but .*raised TypeError: .*missing 1 required positional argument: 'size'",
        ),
        (
            GATEWAY_HEAD + GATEWAY_RECEIVED + "    def __init__(self): pass",
            r"__init__ must call super\(\).__init__\(\)",
        ),
        (
            GATEWAY_HEAD + GATEWAY_RECEIVED + "    state_type = object",
            "state cannot be saved: object cannot become plain",
        ),
        ("1 / 0", "failed while loading: ZeroDivisionError"),
    ],
)
def test_a_class_that_is_no_rule_is_reported_before_the_run(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((PolicyError, SettingsError), match=message):
        gateway_rule(written(tmp_path, text))


def test_a_state_that_cannot_be_saved(tmp_path: Path) -> None:
    name = written(tmp_path, GATEWAY_HEAD + GATEWAY_RECEIVED)
    rule = gateway_rule(name).make()
    rule.restore({"state": {"$tuple": [1, 2]}, "due": 3.0})
    assert (rule.state, rule.due) == ((1, 2), 3.0)
    rule.rule.state = object()  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match=f"{name}.state cannot be saved: object cannot become plain data"):
        rule.snapshot()
    rule.reset()
    assert rule.snapshot() == {"state": None, "due": float("inf")}


def body(*lines: str) -> str:
    return "    def received(self, gateway, held, at):\n" + "".join(f"        {line}\n" for line in lines)


KEEP = "gateway.state.buffer.append(held)"
END = "gateway.aggregated(held, at, staleness=1, weight=1.0)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (body(KEEP), "received returned None; it must return a Next"),
        (body(KEEP, "return 'upload'"), "received returned 'upload'; it must return a Next"),
        (body("return 1 / 0"), r"received raised ZeroDivisionError: division by zero \(line 6\)"),
        (body("return Next.SELECT"), r"received dropped the update of job \d+; it must relay it, keep it in"),
        (body(END, END, "return Next.SELECT"), r"received used the update of job \d+ twice; it must .*, once"),
        (body(END, KEEP, "return Next.SELECT"), r"received used the update of job \d+ twice"),
        (body(END, "return Next.RELAY"), r"received used the update of job \d+ twice"),
        (
            body("gateway.weights = np.zeros(3, np.float32)", END, "return Next.UPLOAD"),
            r"received made a model of shape \(3,\) and type float32; it must have shape \(\d+,\) and type float32",
        ),
        (
            body("gateway.weights = gateway.weights.astype(float)", END, "return Next.UPLOAD"),
            r"received made a model of shape \(\d+,\) and type float64; it must",
        ),
        (
            body("gateway.weights = [0.0]", END, "return Next.UPLOAD"),
            "received made a model of type list; it must be an array of float32",
        ),
        (
            body("gateway.weights = gateway.weights * np.float32(np.nan)", END, "return Next.UPLOAD"),
            "received made a model with NaN or infinite values",
        ),
        (body(KEEP, "self.due = 'soon'", "return Next.SELECT"), "received set due to 'soon'; it must be a time"),
        (
            body(KEEP, "self.due = at + 1", "return Next.NOTHING") + "    def timer(self, gateway, at): return True\n",
            r"timer returned True; it must return Next\.NOTHING, Next\.SELECT or Next\.UPLOAD",
        ),
        (
            body(END, "return Next.UPLOAD") + "    def may_select(self, gateway): return 'yes'\n",
            "may_select returned 'yes'; it must return True or False",
        ),
    ],
)
def test_mistakes_in_a_gateway_rule(text: str, message: str, tmp_path: Path) -> None:
    name = written(tmp_path, GATEWAY_HEAD + text)
    with pytest.raises(PolicyError, match=message) as raised:
        run("gateway", name)
    assert str(raised.value).startswith(f"{name}.")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("pass", "received returned None; it must return a Next"),
        ("return upload.weights", "received returned .*; it must return a Next"),
        ("return [][0]", r"received raised IndexError: list index out of range \(line 7\)"),
        (f"return Next(None, {YES})", "received accepted an upload and returned no model that contains it"),
        ("return Next(upload.weights, (upload,))", "received decided .*; it must decide pairs of Upload and Outcome"),
        (f"return Next(upload.weights, 2 * {YES})", r"received decided on upload u\d.1.1, which is decided already"),
        (f"return Next(upload.weights[:2], {YES})", r"received made a model of shape \(2,\) and type float32; it must"),
        (f"return Next(upload.weights + np.inf, {YES})", "received made a model with NaN or infinite values"),
        (
            f"cloud.state.weights = upload.weights; return Next(upload.weights, {YES})",
            r"received assigned cloud\.state\.weights; it must return the model in a Next",
        ),
    ],
)
def test_mistakes_in_a_cloud_rule(lines: str, message: str, tmp_path: Path) -> None:
    name = written(tmp_path, CLOUD_HEAD + f"        {lines}\n")
    with pytest.raises(PolicyError, match=message) as raised:
        run("cloud", name)
    assert str(raised.value).startswith(f"{name}.")
