"""The readers on small files in the published formats, valid and invalid ones."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_cases import (
    cifar_folder,
    cifar_record,
    har_folder,
    hourly_csv,
    hpwren_npz,
    hpwren_readings,
    idx,
    idx_folder,
    tar_of,
)

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.cifar10 import load_cifar10
from async_hfl.learning.datasets.files import parsed_cache
from async_hfl.learning.datasets.files.catalogue import MNIST
from async_hfl.learning.datasets.files.sources import Sources
from async_hfl.learning.datasets.har import load_har
from async_hfl.learning.datasets.hpwren import load_hpwren
from async_hfl.learning.datasets.idx_images import load_fashion_mnist, load_mnist
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.datasets.shakespeare import ALPHABET, load_shakespeare
from async_hfl.learning.datasets.shakespeare_roles import speeches

PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASYNC_HFL_DATA", raising=False)


def test_idx(tmp_path: Path) -> None:
    data = load_mnist(idx_folder(tmp_path / "mine", [0, 9, 3, 3], [9, 1]))
    assert data.train.inputs.shape == (4, 4, 4, 1)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.targets.tolist() == [0, 9, 3, 3]
    assert data.test.targets.dtype == np.int32
    assert data.classes == 10, "although the test set lacks most of them"
    np.testing.assert_allclose(data.train.read([2]), np.full((1, 4, 4, 1), (2 / 255 - 0.1307) / 0.3081), rtol=1e-5)
    assert load_fashion_mnist(tmp_path / "mine").class_names[9] == "Ankle boot"
    assert not (tmp_path / "cache").exists(), "the user's own files are not cached"


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_files_are_read_as_they_are(packing: str, tmp_path: Path) -> None:
    plain = load_mnist(idx_folder(tmp_path / "mine", [1, 2], [3]))
    for path in list((tmp_path / "mine").iterdir()):
        path.with_name(path.name + packing).write_bytes(PACKERS[packing](path.read_bytes()))
        path.unlink()
    again = load_mnist(tmp_path / "mine")
    np.testing.assert_array_equal(again.train.inputs, plain.train.inputs)
    images = tmp_path / f"mine/train-images-idx3-ubyte{packing}"
    images.write_bytes(images.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"train-images-idx3-ubyte{packing}: damaged or cut short"):
        load_mnist(tmp_path / "mine")


IMAGES = idx(np.zeros((3, 4, 4), np.uint8))
WRONG_IDX = {
    "another magic number": ("train-images-idx3-ubyte", b"\x00\x00\x0d\x03" + IMAGES[4:], "begins with 00000d03"),
    "axes of labels": ("train-labels-idx1-ubyte", IMAGES, "not an IDX file of 1 axes"),
    "empty": ("t10k-images-idx3-ubyte", b"", "not an IDX file"),
    "header only": ("train-images-idx3-ubyte", IMAGES[:9], "9 bytes are less than its header"),
    "truncated": ("train-images-idx3-ubyte", IMAGES[:-1], "63 bytes do not fit its header .*cut short or damaged"),
    "too long": ("train-images-idx3-ubyte", IMAGES + b"x", "do not fit its header"),
    "label out of range": ("t10k-labels-idx1-ubyte", idx(np.array([10], np.uint8)), "label 10, but there are only 0"),
    "numbers differ": ("train-labels-idx1-ubyte", idx(np.array([1, 2], np.uint8)), "3 images but 2 labels"),
}


@pytest.mark.parametrize("name", WRONG_IDX)
def test_wrong_idx(name: str, tmp_path: Path) -> None:
    file, content, what = WRONG_IDX[name]
    folder = idx_folder(tmp_path / "mine", [0, 1, 2], [3])
    (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=what):
        load_mnist(folder)


def test_a_missing_file(tmp_path: Path) -> None:
    folder = idx_folder(tmp_path / "mine", [0], [1])
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"mine: has no t10k-labels-idx1-ubyte \(nor \.gz"):
        load_mnist(folder)


LOADERS: dict[str, Callable[[], Dataset]] = {
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "har": load_har,
    "shakespeare": load_shakespeare,
    "hpwren": load_hpwren,
}


@pytest.mark.parametrize("name", LOADERS)
def test_missing_data_names_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = rf"{name}: the data is not on this machine; `async-hfl data fetch {name}` downloads it \(\d+ MB\), or set "
    with pytest.raises(DataError, match=told):
        LOADERS[name]()
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path / "nothing here"))
    with pytest.raises(DataError, match=told):
        LOADERS[name]()
    monkeypatch.setenv("ASYNC_HFL_CACHE", "")
    with pytest.raises(DataError, match="set ASYNC_HFL_CACHE to a folder for downloads, then `async-hfl data fetch"):
        LOADERS[name]()


def test_an_incomplete_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path))
    idx_folder(tmp_path / "mnist", [0], [1])
    (tmp_path / "mnist/train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="mnist has no train-labels-idx1-ubyte; `async-hfl data fetch mnist`"):
        load_mnist()


def test_a_wrong_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path))
    idx_folder(tmp_path / "mnist", [0], [1])
    with pytest.raises(DataError, match=r"checksum is not that of the published file .*; replace it, or unset ASYNC"):
        load_mnist()
    monkeypatch.delenv("ASYNC_HFL_DATA")
    idx_folder(tmp_path / "cache/data/mnist", [0], [1])
    with pytest.raises(DataError, match="`async-hfl data fetch mnist` fetches it anew"):
        load_mnist()


class Parser:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, sources: Sources) -> parsed_cache.Arrays:
        self.calls += 1
        return {"numbers": np.arange(5), "names": np.array(["a", "b"])}


def kept_arrays(parse: Parser, version: str = "v1") -> parsed_cache.Arrays:
    return parsed_cache.load_arrays(MNIST, parse, version=version, folder=None)


def test_arrays_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path))
    idx_folder(tmp_path / "mnist", [0], [1])
    parse = Parser()
    for _ in range(2):
        arrays = kept_arrays(parse)
        assert arrays["numbers"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["names"].tolist() == ["a", "b"]
    assert parse.calls == 1
    kept_arrays(parse, "v2")
    assert parse.calls == 2, "another version of the reader parses anew"
    entries = sorted((tmp_path / "cache/arrays").iterdir())
    assert len(entries) == 2
    whole = entries[0].read_bytes()
    for damage in (b"", whole[:-40], whole[:100] + b"??" + whole[102:], whole.replace(b"\x03", b"\x04"), b"\x93NUMPY"):
        entries[0].write_bytes(damage)
        before = parse.calls
        assert kept_arrays(parse)["numbers"].tolist() == [0, 1, 2, 3, 4]
        assert parse.calls == before + 1
        assert entries[0].read_bytes() == whole, "and put right again"


def test_without_a_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path))
    idx_folder(tmp_path / "mnist", [0], [1])
    parse = Parser()
    (tmp_path / "file").write_text("in the way")
    for cache in ("", str(tmp_path / "file")):
        monkeypatch.setenv("ASYNC_HFL_CACHE", cache)
        assert kept_arrays(parse)["numbers"].tolist() == [0, 1, 2, 3, 4]
    assert parse.calls == 2


def test_cifar(tmp_path: Path) -> None:
    data = load_cifar10(cifar_folder(tmp_path))
    assert data.train.inputs.shape == (10, 32, 32, 3)
    assert data.train.targets.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.train.inputs[2, 0, 0].tolist() == [7, 100, 200], "row, column, colour"
    assert data.train.inputs[2, 0, 1].tolist() == [2, 100, 200]
    assert data.test.targets.tolist() == [0]
    wanted = (np.array([10, 20, 30]) / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(data.test.read([0])[0, 5, 5], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "0 bytes are not whole records of 3073"),
        (cifar_record(1, 2, 3, 4)[:-1], "3,072 bytes are not whole records"),
        (cifar_record(10, 2, 3, 4), "label 10, but there are only 0 to 9"),
    ],
)
def test_wrong_cifar(content: bytes, what: str, tmp_path: Path) -> None:
    folder = cifar_folder(tmp_path)
    (folder / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DataError, match=rf"data_batch_3\.bin: {what}"):
        load_cifar10(folder)


def test_har(tmp_path: Path) -> None:
    data = load_har(har_folder(tmp_path))
    assert data.owner_names == ("person 1", "person 2", "person 3")
    assert data.owner is not None
    assert data.test_owner is not None
    assert np.bincount(data.owner).tolist() == [18, 18, 18]
    assert np.bincount(data.test_owner).tolist() == [2, 2, 2]
    assert sorted(set(data.train.targets.tolist())) == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(data.train.inputs.mean(axis=0), 0, atol=1e-5)
    deviation = data.train.inputs.std(axis=0)
    np.testing.assert_allclose(np.delete(deviation, 5), 1, atol=1e-5)
    assert not data.train.inputs[:, 5].any(), "a feature that never changes is 0, not NaN"
    again = load_har(tmp_path)
    assert again.test.inputs.tobytes() == data.test.inputs.tobytes(), "one split for all runs"


WRONG_HAR = {
    "cut in a row": ("X_train.txt", lambda text: text[: len(text) // 2 + 100], "cut short or damaged"),
    "rows missing": ("X_test.txt", lambda text: b"\n".join(text.splitlines()[:-3]), "17 rows, 20 labels and 20 subj"),
    "empty": ("X_train.txt", lambda text: b"", "is empty"),
    "words": ("X_train.txt", lambda text: b"one two three\n", "could not convert string"),
    "not a number": ("X_train.txt", lambda text: b"nan " * 561 + b"\n", "not a table of 561 numbers"),
    "activity out of range": ("y_train.txt", lambda text: text.replace(b"6", b"7"), "7, but there are only 1 to 6"),
    "half an activity": ("y_train.txt", lambda text: text.replace(b"6", b"1.5"), "1.5, but there are only 1 to 6"),
}


@pytest.mark.parametrize("name", WRONG_HAR)
def test_wrong_har(name: str, tmp_path: Path) -> None:
    file, damage, what = WRONG_HAR[name]
    folder = har_folder(tmp_path)
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    with pytest.raises(DataError, match=what):
        load_har(folder)


NOTICE = "<<THIS ELECTRONIC VERSION IS COPYRIGHT\n  KING. NOT A SPEECH>>\n"
WORKS = f"""The contents
by nobody

THE SONNETS

by William Shakespeare

  A line of verse. It ends
    here too.

A SHORT PLAY

by William Shakespeare

Dramatis Personae
{NOTICE}
ACT I. SCENE 1.

  KING. Now is the winter
    of our   discontent.
  Queen. Made glorious!
Exit
  KING. Again.
    [Aside]
{NOTICE}
THE COMEDY OF ERRORS

by William Shakespeare

ACT I. SCENE 1

DUKE. Merchant of Syracusa,
 plead no more.
Enter all
QUEEN. No.
ACT II. SCENE 1
 Not said by anybody
"""


def test_speeches_by_role() -> None:
    assert dict(speeches(WORKS)) == {
        ("A SHORT PLAY", "KING"): "Now is the winter of our discontent. Again. [Aside]",
        ("A SHORT PLAY", "QUEEN"): "Made glorious!",
        ("THE COMEDY OF ERRORS", "DUKE"): "Merchant of Syracusa, plead no more.",
        ("THE COMEDY OF ERRORS", "QUEEN"): "No.",
    }


def play(folder: Path, lengths: list[int], text: str = "abcdefgh") -> Path:
    """A play in which each role speaks once, with this many characters."""
    roles = "".join(f"  {'ABCDEFGHIJ'[n]}. {(text * length)[:length]}\r\n" for n, length in enumerate(lengths))
    path = folder / "shakespeare-pg100-1994.txt"
    path.write_bytes(f"THE PLAY\r\n\r\nby William Shakespeare\r\n\r\n{roles}".encode())
    return folder


def test_shakespeare_windows(tmp_path: Path) -> None:
    data = load_shakespeare(play(tmp_path, [400, 81, 82, 1000]), roles=None)
    assert data.owner_names == ("THE PLAY: A", "THE PLAY: C", "THE PLAY: D"), "one window is too few"
    assert data.owner is not None
    assert data.test_owner is not None
    assert np.bincount(data.owner).tolist() == [256, 1, 736]
    assert np.bincount(data.test_owner, minlength=3).tolist() == [320 - 256 - 80 if 320 - 256 > 80 else 0, 0, 104]
    assert data.classes == len(ALPHABET) == 80
    assert data.train.inputs.dtype == np.uint8
    first = data.train.read([0])[0]
    assert "".join(ALPHABET[symbol] for symbol in first) == "abcdefgh" * 10
    assert ALPHABET[data.train.targets[0]] == "a"
    assert ALPHABET[data.train.targets[1]] == "b"
    assert data.train.starts is not None
    assert data.test.starts is not None
    for role in range(3):
        trained, tested = data.train.starts[data.owner == role], data.test.starts[data.test_owner == role]
        assert len(tested) == 0 or tested.min() > trained.max() + 80, "no character is in both"


def test_windows_do_not_cross_roles(tmp_path: Path) -> None:
    data = load_shakespeare(play(tmp_path, [100, 100]), roles=None)
    assert data.train.starts is not None
    assert data.owner is not None
    for start, role in zip(data.train.starts, data.owner, strict=True):
        assert 100 * role <= start
        assert start + 80 < 100 * (role + 1)


def test_roles_of_every_size(tmp_path: Path) -> None:
    folder = play(tmp_path, [100, 900, 200, 800, 300, 700, 400, 600])
    assert load_shakespeare(folder, roles=4).owner_names == tuple(f"THE PLAY: {name}" for name in "BCFG")
    assert load_shakespeare(folder, roles=1).owner_names == ("THE PLAY: H",), "the middle one"
    for wrong in (0, 9):
        with pytest.raises(DataError, match=f"{wrong} roles were asked for; 1 to 8 are possible"):
            load_shakespeare(folder, roles=wrong)


def test_an_unknown_character_is_a_blank(tmp_path: Path) -> None:
    data = load_shakespeare(play(tmp_path, [100], "ab*\u00e9"), roles=None)
    assert {ALPHABET[symbol] for symbol in np.unique(data.train.inputs)} == {"a", "b", " "}


def test_no_play(tmp_path: Path) -> None:
    (tmp_path / "shakespeare-pg100-1994.txt").write_text("To be, or not to be\n")
    with pytest.raises(DataError, match=r"1994\.txt: there is no play in the text"):
        load_shakespeare(tmp_path)


def test_hpwren(tmp_path: Path) -> None:
    stations = ["AA", "BMR", "CC", "DD"]
    readings = hpwren_readings(stations, 600)
    readings[0, 100] = np.nan  # a gap of one reading
    readings[0, 300, 4] = np.nan  # one value missing
    readings[3, 40:] = np.nan  # too short for a window
    readings[2, 50:60, 4] = 99.9
    readings[:, :, 11] = 0
    readings[2, 200:210, 11] = 3.5
    hpwren_npz(tmp_path / "hpwren_2021_30min.npz", stations, readings)
    data = load_hpwren(tmp_path)
    assert data.owner_names == ("AA", "CC")
    assert data.classes == 0
    assert data.owner is not None
    assert data.test_owner is not None
    windows = [100 - 48 + 199 - 48 + 299 - 48, 600 - 48]
    assert np.bincount(data.owner).tolist() == [round(0.9 * count) for count in windows]
    assert np.bincount(data.test_owner, minlength=2).tolist() == [0, windows[1] - round(0.9 * windows[1]) - 48]
    assert data.train.read([0, 1]).shape == (2, 48, 12)
    assert data.train.targets.shape[1] == 12
    assert np.abs(data.train.inputs).max() == 6.0, "outliers are clipped"
    np.testing.assert_allclose(np.median(data.train.inputs[:, :11], axis=0), 0, atol=0.1)
    assert set(np.unique(data.train.inputs[:598, 11])) == {0.0}, "no rain is 0, though its quartiles coincide"
    assert data.train.starts is not None
    for row in (0, 51, 52, 400):
        start = int(data.train.starts[row])
        np.testing.assert_array_equal(data.train.targets[row], data.train.inputs[start + 48])
    for gap in (100, 299):  # in the series without the two readings
        crossing = (data.train.starts < gap) & (data.train.starts + 48 >= gap) & (data.owner == 0)
        assert not crossing.any(), "a gap is not bridged"


def test_hpwren_hourly(tmp_path: Path) -> None:
    readings = hpwren_readings(["AA", "SCI"], 500).round(2)
    readings[0, 7, 3] = np.nan
    files = {f"{station}.csv": hourly_csv(table) for station, table in zip(["AA", "SCI"], readings, strict=True)}
    (tmp_path / "hpwren_2021_hourly_csv.tar.bz2").write_bytes(bz2.compress(tar_of(files)))
    data = load_hpwren(tmp_path, hourly=True)
    assert data.owner_names == ("AA",)
    assert len(data.train) == round(0.9 * (492 - 48))
    with pytest.raises(DataError, match=r"has no hpwren_2021_30min\.npz"):
        load_hpwren(tmp_path)


def test_wrong_hpwren(tmp_path: Path) -> None:
    path = tmp_path / "hpwren_2021_30min.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="not an archive of readings"):
        load_hpwren(tmp_path)
    hpwren_npz(path, ["AA"], hpwren_readings(["AA", "BB"], 100))
    with pytest.raises(DataError, match="are not those of HPWREN"):
        load_hpwren(tmp_path)
    hpwren_npz(path, ["AA"], hpwren_readings(["AA"], 40))
    with pytest.raises(DataError, match="no station has 49 whole readings in a row"):
        load_hpwren(tmp_path)
    tar = tmp_path / "hpwren_2021_hourly_csv.tar"
    tar.write_bytes(b"no archive")
    with pytest.raises(DataError, match="not an archive of hourly csv files"):
        load_hpwren(tmp_path, hourly=True)
    tar.write_bytes(tar_of({"AA.csv": b"year,month\n1,2\n"}))
    with pytest.raises(DataError, match="its first line is not year,month,day,hour,Dn"):
        load_hpwren(tmp_path, hourly=True)
