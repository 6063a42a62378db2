"""Mistakes that a Flower user makes, with what they get: the table of docs/coming-from-flower.md, row by row."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from async_hfl.adapters.learner import ClientLearner
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.user_code.user_task import load_client_task
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import TrainingJob

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-flower.md"
CLIENT = """
import numpy as np

from async_hfl.adapters import flower


class Client:
    def get_parameters(self, config):
        return [np.zeros(3), np.zeros(1)]

    def fit(self, parameters, config):
        return [array + 1.0 for array in parameters], 10, {"loss": 0.5}

    def evaluate(self, parameters, config):
        return 0.5, 10, {"accuracy": 0.7}


def client_fn(context):
    return Client()


task = flower(client_fn, target=0.9)
"""
CHANGES = {
    "1": ("flower(client_fn, target", "flower(Client, target"),
    "2": ("return Client()", 'context.run_config["lr"]; return Client()'),
    "3": ("    def get_parameters", "    def parameters"),
    "4": (', 10, {"loss": 0.5}', ", 10"),
    "5": ("for array in parameters]", "for array in parameters[:1]]"),
    "6": ("[array + 1.0 for", "[array.reshape(1, -1) + 1.0 for"),
    "7": (', 10, {"loss"', ', 0, {"loss"'),
    "8": ('{"accuracy": 0.7}', '{"acc": 0.7}'),
    "9": ('{"accuracy": 0.7}', '{"accuracy": 70.0}'),
    "10": ("    def evaluate", "    def test"),
    "11": ("target=0.9", "target=90"),
    "12": ("return Client()", 'return [Client()][context.node_config["partition-id"]]'),
}


def rows() -> dict[str, str]:
    """The messages of the table, by the number of their row."""
    found = re.findall(r"^\| (\d+) \|.*\| `(.*)` \|$", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def attempt(task: str) -> None:
    """Compose the settings, train once on each device and evaluate, as a run does."""
    compose(task=task, method="async-hfl", overrides=["task.devices=2", "network.gateways=1"])
    learner = ClientLearner(partial(load_client_task, task, 2, 1), task, 2, 1, gradient=False, processes=0)
    weights = learner.initial_weights(1)
    learner.train_many([TrainingJob(JobId(0, 0, device), device, weights, device) for device in (0, 1)])
    learner.evaluate(weights)


def test_every_row_has_a_test_and_the_correct_code_runs(tmp_path: Path) -> None:
    assert [*rows()] == [*CHANGES, "13", "14", "15"]
    (tmp_path / "client.py").write_text(CLIENT)
    attempt(f"{tmp_path / 'client.py'}:task")


@pytest.mark.parametrize("number", CHANGES)
def test_a_mistake_in_client_code(tmp_path: Path, number: str) -> None:
    before, after = CHANGES[number]
    assert CLIENT.count(before) == 1
    (tmp_path / "client.py").write_text(CLIENT.replace(before, after))
    with pytest.raises(UserError) as raised:
        attempt(f"{tmp_path / 'client.py'}:task")
    assert rows()[number] in str(raised.value)


FURTHER = {
    "no fit": (
        "    def fit",
        "    def train",
        "the initial model: made a Client, which has no fit; return a NumPyClient",
    ),
    "a loss that is NaN": (
        '{"loss": 0.5}',
        '{"loss": np.nan}',
        "fit of device 0: its loss is nan, and its arrays are fini",
    ),
    "arrays of texts": (
        "[array + 1.0 for",
        "[array.astype(str) for",
        "returned array '0' of <U32 values; a model consists",
    ),
    "a metric as text": (
        '{"accuracy": 0.7}',
        '{"accuracy": "0.7"}',
        "device 0: reports '0.7' as 'accuracy'; report a numb",
    ),
    "examples in words": (
        "0.5, 10",
        "0.5, 'ten'",
        "evaluate of device 0: reports 'ten' examples; report a whole number",
    ),
    "no examples": ("0.5, 10", "0.5, 0", "evaluate of device 0: reports 0 examples; report a whole number from 1"),
    "a model": (
        "target=0.9",
        "target=0.9, model=[1.0]",
        "client.py failed while loading: flower(...): model= is a list; give a function that makes it",
    ),
    "a result": ("target=0.9", "target=0.9, evaluate=0.5", "flower(...): evaluate= is a float; give a function"),
    "names": ("target=0.9", "target=0.9, config=['lr']", "flower(...): config= is a list; give a dict, or a function"),
    "more names": ("target=0.9", "target=0.9, run_config=['lr']", "flower(...): run_config= is a list; give a dict"),
}


@pytest.mark.parametrize("mistake", FURTHER)
def test_a_further_mistake_in_client_code(tmp_path: Path, mistake: str) -> None:
    before, after, told = FURTHER[mistake]
    assert CLIENT.count(before) == 1
    (tmp_path / "client.py").write_text(CLIENT.replace(before, after))
    with pytest.raises(UserError) as raised:
        attempt(f"{tmp_path / 'client.py'}:task")
    assert told in str(raised.value)


@pytest.mark.parametrize(("number", "options"), [("13", {"method": "FedAvg"}), ("14", {"overrides": ["num_rounds=5"]})])
def test_a_mistake_on_the_command_line(number: str, options: dict[str, str]) -> None:
    with pytest.raises(UserError) as raised:
        compose(**{"task": "digits", **options})  # type: ignore[arg-type]
    assert rows()[number] in str(raised.value)


def test_a_setting_that_clients_do_not_read(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    with pytest.raises(UserError) as raised:
        compose(task=f"{tmp_path / 'client.py'}:task", overrides=["task.devices=2", "device.learning_rate=0.1"])
    assert rows()["15"] in str(raised.value)
