"""Checkpoint files: round trips, shared arrays, and detection of damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.journal.checkpoint import load, save


def frozen(*values: float) -> np.ndarray[Any, Any]:
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


def round_trip(path: Path, tree: Any) -> Any:
    save(path, [("only", tree)])
    (found,) = load(path)["only"]
    return found


PLAIN = {
    "nothing": None,
    "truth": [True, False],
    "numbers": [0, -1, 2**62, 0.1 + 0.2, -0.0, 5e-324, float("inf"), float("-inf")],
    "texts": ["", "ß", "a" * 300],
    "nested": {"deep": [[[{"down": 1}]]], "empty": {}, "list": []},
}


def test_round_trip_of_plain_data(tmp_path: Path) -> None:
    found = round_trip(tmp_path / "c.msgpack", PLAIN)
    assert found == PLAIN
    assert [type(value) for value in found["numbers"]] == [type(value) for value in PLAIN["numbers"]]
    assert str(found["numbers"][4]) == "-0.0"
    assert np.isnan(round_trip(tmp_path / "c.msgpack", float("nan")))


def test_round_trip_of_registered_values(tmp_path: Path) -> None:
    value = {"tuple": (1, (2, "x")), "set": {3, 1}, 5: "number as key", (1, 2): "tuple as key"}
    assert from_plain(round_trip(tmp_path / "c.msgpack", to_plain(value))) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([1.5, np.nan, np.inf, -0.0]),
        np.array([], np.int64),
        np.zeros((0, 4), np.float32),
        np.array(7, np.int64),
        np.array([True, False]),
        np.array([2**63], np.uint64),
        np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1, 2], ">i4"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
@pytest.mark.parametrize("writeable", [True, False])
def test_arrays_keep_type_shape_bits_and_write_protection(
    tmp_path: Path, array: np.ndarray[Any, Any], writeable: bool
) -> None:
    array = array.copy(order="K")
    array.flags.writeable = writeable
    found = round_trip(tmp_path / "c.msgpack", {"a": array})["a"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable == writeable


def test_a_shared_array_is_stored_once_and_shared_after_loading(tmp_path: Path) -> None:
    path = tmp_path / "c.msgpack"
    model, twin = frozen(*range(10_000)), frozen(*range(10_000))
    save(path, [("devices", [model] * 50), ("devices", [{"start": model}, twin])])
    assert path.stat().st_size < 3 * model.nbytes
    first, second = load(path)["devices"]
    assert all(found is first[0] for found in first)
    assert second[0]["start"] is first[0], "sharing extends across parts"
    assert second[1] is not first[0], "equal arrays are not shared"
    assert second[1].tolist() == twin.tolist()
    assert not first[0].flags.writeable


def test_writeable_arrays_are_never_shared(tmp_path: Path) -> None:
    """Nodes modify their arrays in place; two of them must not get the same one."""
    counts = np.zeros(3)
    found = round_trip(tmp_path / "c.msgpack", [to_plain(counts), to_plain(counts)])
    found[0][0] = 1.0
    assert found[1][0] == 0.0


def test_parts_are_loaded_by_name_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "c.msgpack"
    save(path, ((name, number) for number, name in enumerate("abbab")))
    assert load(path) == {"a": [0, 3], "b": [1, 2, 4]}
    save(path, [])
    assert load(path) == {}


def test_a_new_checkpoint_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.msgpack"
    (tmp_path / "checkpoint.part").write_bytes(b"left by a kill" * 1000)
    for value in (1, 2):
        save(path, [("value", value)])
        assert load(path) == {"value": [value]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.msgpack"]


def test_a_failure_while_saving_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.msgpack"
    save(path, [("value", 1)])
    with pytest.raises(TypeError, match="object in a checkpoint"):
        save(path, [("value", 2), ("value", object())])
    assert load(path) == {"value": [1]}


def test_every_damaged_byte_and_every_truncation_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.msgpack"
    save(path, [("session", {"at": 1.5}), ("nodes", [frozen(1.0, 2.0), np.arange(3)])])
    whole = path.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(RunDirectoryError, match=r"checkpoint\.msgpack: .*delete it to begin the run again"):
                load(path)


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04", b"async-hfl checkpoint", b"\xff" * 100])
def test_a_file_that_is_not_a_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.msgpack"
    path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match="not a checkpoint; delete it to begin the run again"):
        load(path)


@pytest.mark.parametrize("written", [1, 2])
def test_a_checkpoint_of_an_older_version_names_the_version_that_reads_it(tmp_path: Path, written: int) -> None:
    path = tmp_path / "checkpoint.msgpack"
    path.write_bytes(b"async-hfl checkpoint %d\n" % written + b"\x00" * 50)
    why = rf"by async-hfl 0\.1\.0 \(format {written}\); this version reads format 3: use async-hfl 0\.1\.0 to open it"
    with pytest.raises(RunDirectoryError, match=why):
        load(path)
