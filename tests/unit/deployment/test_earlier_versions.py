"""Nodes of release 0.2.0 and of this one: what they are told when they are admitted, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from async_hfl.assembly.deployments.deployed_nodes import TaskFacts, settings_text
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import CLOUD
from async_hfl.deployment.transport import joining
from async_hfl.deployment.transport.admission import Admission, Refusal
from async_hfl.deployment.transport.earlier_versions import admission_for_2, admission_from_2
from async_hfl.deployment.transport.limits import HIGHEST_VERSION, LOWEST_VERSION, PACKAGE

SHARED = {"model_size": 10, "gradient_size": 8, "learning_rate": 0.1, "seed": 1, "task": "null"}
FACTS_OF_2: dict[str, Any] = {**SHARED, "model_bytes": 40, "half": False, "zstd": False, "share": 1.0}
FACTS: dict[str, Any] = {
    **SHARED,
    "up": "float32",
    "down": "float32",
    "encodes_gradients": True,
    "projected_sizes": (),
}
SETTINGS = json.dumps({"gateway": {"epochs": 3}, "task": {"ladder": [0.1], "devices": 4, "shard_size": None}})
ADMISSION = Admission(7, CLOUD, 2, 1.0, SETTINGS, "digest", {**FACTS, "version": PACKAGE})


def test_facts_that_were_added_since_are_not_told() -> None:
    """A node of release 0.2.0 ends with an error at any fact that it does not know."""
    added = {one.name: "" for one in fields(TaskFacts)} | FACTS | {"clients": {}}
    told = admission_for_2(replace(ADMISSION, facts=added))
    assert isinstance(told, Admission)
    assert set(told.facts) == {*FACTS_OF_2, "metric", "threshold", "direction", "task_digest", "method"}


def test_an_admission_is_told_in_the_words_of_the_earlier_version() -> None:
    told = admission_for_2(ADMISSION)
    assert isinstance(told, Admission)
    assert told.facts == FACTS_OF_2
    assert json.loads(told.settings) == {"gateway": {"epochs": 3}, "task": {"devices": 4, "shard_size": None}}
    assert admission_from_2(told).facts == FACTS


@pytest.mark.parametrize(
    ("admission", "named"),
    [
        (replace(ADMISSION, facts={**ADMISSION.facts, "up": "int8"}), "travel as int8"),
        (replace(ADMISSION, facts={**ADMISSION.facts, "up": "int8"}), "(--set transfer.encoding=float32)"),
        (replace(ADMISSION, settings='{"gateway": {"refill": "immediate"}}'), "gateway.refill = 'immediate'"),
        (replace(ADMISSION, settings='{"gateway": {"refill": "immediate"}}'), "(for example with --method async-hfl)"),
        (replace(ADMISSION, facts={**ADMISSION.facts, "clients": {"size": 3}}), "task.name = 'null', whose clients"),
        (replace(ADMISSION, settings='{"selection": {"policy": "tifl"}}'), "selection.policy = 'tifl'"),
    ],
)
def test_what_the_earlier_version_does_not_know_is_refused_with_both_versions(admission: Admission, named: str) -> None:
    told = admission_for_2(admission)
    assert isinstance(told, Refusal)
    for part in (named, "async-hfl 0.2.0", f"async-hfl {PACKAGE}", "update the node"):
        assert part in told.reason


def test_the_remedy_for_the_default_method_is_complete() -> None:
    """It sends light updates and has settings of its own; without one of them it would be refused again."""
    settings = settings_text(compose(task="null", method="async-hfl-plus", network="deployed").settings)
    facts = {**ADMISSION.facts, "up": "int4", "down": "int8"}
    told = admission_for_2(replace(ADMISSION, settings=settings, facts=facts))
    assert isinstance(told, Refusal)
    assert "models that travel as int4 and models that travel as int8 and " in told.reason
    assert "(for example with --method async-hfl --set transfer.encoding=float32)" in told.reason


def test_an_encoding_of_the_earlier_version_is_refused() -> None:
    for lossy in ({"half": True}, {"zstd": True}):
        with pytest.raises(PeerError, match=r"0\.2\.0 with transfer\.encoding"):
            admission_from_2(replace(ADMISSION, facts={**FACTS_OF_2, **lossy}))


def test_versions_agree_on_the_highest_common_one_or_name_both() -> None:
    assert joining.agreed_version(2, 2) == 2
    assert joining.agreed_version(1, HIGHEST_VERSION + 3) == HIGHEST_VERSION
    assert joining.agreed_version(HIGHEST_VERSION + 1, HIGHEST_VERSION + 2) == 0
    reason = joining.no_common_version(7, 9, "9.9.9").reason
    for part in (
        "async-hfl 9.9.9",
        "protocol 7 to 9",
        f"async-hfl {PACKAGE}",
        f"{LOWEST_VERSION} to {HIGHEST_VERSION}",
    ):
        assert part in reason
