"""The settings of [transfer]: one encoding for both directions, or one for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_hfl.assembly.build.wire import wire_facts
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.compression.encodings import encoded_bytes
from async_hfl.core.errors import SettingsError


def settings(*overrides: str) -> Settings:
    return compose(task="null", method="async-hfl", network="uniform", overrides=list(overrides)).settings


@pytest.mark.parametrize(
    ("overrides", "up", "down"),
    [
        ((), "float32", "float32"),
        (("transfer.encoding=int8",), "int8", "int8"),
        (("transfer.encoding=float16",), "float16", "float16"),
        (("transfer.up=int4",), "int4", "float32"),
        (("transfer.down=float16",), "float32", "float16"),
        (("transfer.encoding=int8", "transfer.up=int4"), "int4", "int8"),
        (("transfer.encoding=int8", "transfer.down=float32"), "int8", "float32"),
        (("transfer.encoding=int8", "transfer.up=float16", "transfer.down=int4"), "float16", "int4"),
        (("transfer.encoding=int4", "transfer.up=auto"), "int4", "int4"),
    ],
)
def test_the_encoding_sets_both_directions_and_each_can_be_set(overrides: tuple[str, ...], up: str, down: str) -> None:
    transfer = settings(*overrides).transfer
    assert (transfer.up_kind, transfer.down_kind) == (up, down)


@pytest.mark.parametrize(
    ("overrides", "up", "down"),
    [
        ((), "int4", "int8"),
        (("transfer.encoding=float32",), "float32", "float32"),
        (("transfer.encoding=float16", "transfer.up=int8"), "int8", "float16"),
        (("transfer.up=int8", "transfer.encoding=float16"), "int8", "float16"),
        (("transfer.down=float32",), "int4", "float32"),
    ],
)
def test_the_encoding_replaces_the_directions_that_the_method_sets(
    overrides: tuple[str, ...], up: str, down: str
) -> None:
    transfer = compose(task="null", method="async-hfl-plus", overrides=list(overrides)).settings.transfer
    assert (transfer.up_kind, transfer.down_kind) == (up, down)


def test_the_encoding_of_a_run_file_replaces_the_directions_of_the_method(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[transfer]\nencoding = "float16"\ndown = "int8"\n')
    transfer = compose(file, task="null", method="async-hfl-plus").settings.transfer
    assert (transfer.up_kind, transfer.down_kind) == ("float16", "int8")
    transfer = compose(file, task="null", overrides=["transfer.encoding=int4"]).settings.transfer
    assert (transfer.up_kind, transfer.down_kind) == ("int4", "int4")


def test_a_job_moves_a_model_down_and_a_change_up() -> None:
    chosen = settings("transfer.up=int4", "transfer.down=int8")
    facts = wire_facts(chosen, model_size=1010, gradient_size=1000, learning_rate=0.1, seed=4)
    up, down = encoded_bytes("int4", 1000, 10), encoded_bytes("int8", 1000, 10)
    assert (facts.codec.bytes_of("int4"), facts.codec.bytes_of("int8")) == (up, down)
    assert facts.model_bytes == (up + down) // 2
    assert facts.float32_bytes == 4040
    assert (facts.codec.up, facts.codec.down, facts.codec.size, facts.codec.trained) == ("int4", "int8", 1010, 1000)


@pytest.mark.parametrize(("compression", "encoded"), [("none", True), ("sketch", False), ("pca", False)])
def test_projected_gradients_are_not_encoded(compression: str, encoded: bool) -> None:
    chosen = settings("transfer.encoding=int8", f"utility.compression={compression}")
    facts = wire_facts(chosen, model_size=1000, gradient_size=1000, learning_rate=0.1, seed=4)
    assert facts.codec.encodes_gradient("up") is facts.codec.encodes_gradient("down") is encoded


def test_all_nodes_of_a_run_round_alike_and_another_seed_rounds_otherwise() -> None:
    chosen = settings("transfer.encoding=int8")
    one, same, other = (
        wire_facts(chosen, model_size=9, gradient_size=9, learning_rate=0.1, seed=seed).codec for seed in (4, 4, 5)
    )
    assert one.key("update", 0, 1, 2) == same.key("update", 0, 1, 2) != other.key("update", 0, 1, 2)
    assert len({one.key("update", 0, 1, 2), one.key("upload", 0, 1, 2), one.key("update", 0, 1, 3)}) == 3


@pytest.mark.parametrize("override", ["transfer.encoding=int2", "transfer.up=float64", "transfer.down=half"])
def test_another_encoding_is_an_error(override: str) -> None:
    with pytest.raises(SettingsError, match="float16"):
        settings(override)
