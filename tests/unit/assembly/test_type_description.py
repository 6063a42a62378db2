"""The types of settings in words."""

from __future__ import annotations

import msgspec
import pytest

from async_hfl.assembly.settings.schema import RunChoice, Settings
from async_hfl.assembly.settings.tiers import StartSection
from async_hfl.assembly.settings.type_description import describe_field


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("cloud.epochs", "a whole number >= 1"),
        ("cloud.epochs_after_target", "a whole number >= 0"),
        ("cloud.mixing_weight", "a number > 0 and <= 1"),
        ("gateway.drag", "a number >= 0 and <= 1"),
        ("device.momentum", "a number >= 0 and < 1"),
        ("task.target", "a number"),
        ("gateway.max_staleness", "a whole number >= 1 or 'auto'"),
        ("gateway.bandwidth", "a number > 0 or a text"),
        ("simulation.batching", "one of 'off', 'on'"),
        ("utility.compression", "one of 'none', 'pca', 'sketch'"),
        ("warmup.enabled", "true or false"),
        ("selection.policy", "a text"),
        ("gateway", "a table of settings"),
    ],
)
def test_in_words(path: str, words: str) -> None:
    assert describe_field(Settings, path.split(".")) == words


def test_a_missing_field() -> None:
    assert describe_field(Settings, ["gateway", "colour"]) is None
    assert describe_field(Settings, ["gateway", "epochs", "most"]) is None
    assert describe_field(Settings, []) is None
    assert describe_field(RunChoice, ["seed"]) == "a whole number"


def test_every_setting_has_a_description() -> None:
    for section in msgspec.structs.fields(Settings):
        for field in msgspec.structs.fields(section.type):
            inner = msgspec.structs.fields(field.type) if field.type is StartSection else ()
            paths = [[section.name, field.name, one.name] for one in inner] or [[section.name, field.name]]
            for path in paths:
                assert describe_field(Settings, path) not in (None, "a table of settings"), path
