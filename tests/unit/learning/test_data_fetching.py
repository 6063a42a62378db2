"""Fetching of whole sets: from a server, from the data directory and from archives, into the download folder."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_cases import Behaviour, hourly_csv, hpwren_readings, tar_of, web_server

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets.files import download as download_module
from async_hfl.learning.datasets.files.catalogue import HPWREN, PUBLISHED, published_set
from async_hfl.learning.datasets.files.fetching import fetch, list_sets, verify
from async_hfl.learning.datasets.files.published import Download, PublishedSet, SourceFile
from async_hfl.learning.datasets.files.sources import find, locate
from async_hfl.learning.datasets.files.unpacking import extractor
from async_hfl.learning.datasets.hpwren_files import half_hour_means, read_half_hourly, read_hourly

WORDS = {"one.txt": b"one\n", "two.txt": b"two\r\ntwo\r\n"}


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASYNC_HFL_DATA", raising=False)
    monkeypatch.setattr(download_module, "FIRST_PAUSE_S", 0.001)


def words(address: str, archive: str | None = None) -> PublishedSet:
    """A set of two texts, either as single files or both in one archive."""
    files = tuple(
        SourceFile(name, hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest(), text=True)
        for name, content in WORDS.items()
    )
    if archive is None:
        downloads = tuple(
            Download(f"{name}.gz", (f"{address}{name}.gz",), hashlib.md5(packed(name)).hexdigest()) for name in WORDS
        )
    else:
        downloads = (Download(archive, (address + archive,), unpack=extractor({name: name for name in WORDS})),)
    return PublishedSet("words", "words", "Two words", "none", {"train": 1, "test": 1}, 10, files, downloads)


def packed(name: str) -> bytes:
    return gzip.compress(WORDS[name], mtime=0)


def fetched(published: PublishedSet) -> tuple[str, set[str]]:
    result = fetch(published, lambda *report: None)
    return result.origin, {path.name for path in Path(result.folder).iterdir()}


def test_files_one_by_one() -> None:
    behaviour = Behaviour({f"{name}.gz": packed(name) for name in WORDS})
    with web_server(behaviour) as address:
        published = words(address)
        assert fetched(published) == ("downloaded", {"one.txt.gz", "two.txt.gz"})
        assert fetched(published) == ("there", {"one.txt.gz", "two.txt.gz"})
        assert len(behaviour.asked) == 2
        # One is damaged later: only this one is fetched again, and a plain file of that name would hide it.
        folder = locate(published).folder
        (folder / "one.txt").write_bytes(b"rubbish")
        (folder / "one.txt.gz").write_bytes(b"rubbish")
        assert fetched(published) == ("downloaded", {"one.txt.gz", "two.txt.gz"})
        assert [path for path, *_ in behaviour.asked[2:]] == ["/one.txt.gz"]
    assert locate(published).contents(list(WORDS)) == list(WORDS.values())


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


DEEP = {f"set of words/deep/{name}": content for name, content in WORDS.items()}
ARCHIVES = {
    "words.tar.gz": tar_of(DEEP, "w:gz"),
    "words.tar.bz2": tar_of(DEEP, "w:bz2"),
    "words.zip": zip_of(DEEP),
    "nested.zip": zip_of({"words.zip": zip_of(DEEP), "__MACOSX/._one.txt": b"rubbish"}),
    "hostile.tar": tar_of({"../../../escaped.txt": b"bad", "/tmp/two.txt": WORDS["two.txt"], "../one.txt": b"one\n"}),
    "hostile.zip": zip_of({"../../escaped.txt": b"bad", "../one.txt": b"one\n", "/two.txt": WORDS["two.txt"]}),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_out_of_an_archive(name: str, tmp_path: Path) -> None:
    with web_server(Behaviour(ARCHIVES)) as address:
        assert fetched(words(address, name)) == ("downloaded", set(WORDS)), "the archive is not kept"
    assert {path.name for path in tmp_path.rglob("*.*")} == set(WORDS), "and nothing is written elsewhere"


BAD_ARCHIVES = {
    "no archive": (b"not an archive at all", "not an archive that can be unpacked"),
    "nothing": (b"", "not an archive that can be unpacked"),
    "cut short": (ARCHIVES["words.tar.gz"][:-30], "bad|not an archive that can be unpacked"),
    "cut zip": (ARCHIVES["words.zip"][:-30], "not an archive that can be unpacked"),
    "lacks a file": (tar_of({"one.txt": b"one\n"}), r"there is no two\.txt in it"),
    "other content": (tar_of({**WORDS, "one.txt": b"uno\n"}), r"one\.txt: the checksum is not that of the published"),
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_a_bad_archive(name: str, tmp_path: Path) -> None:
    content, what = BAD_ARCHIVES[name]
    with web_server(Behaviour({"bad": content})) as address, pytest.raises(DataError, match=what):
        fetch(words(address, "bad"), lambda *report: None)
    assert list((tmp_path / "cache/data/words").iterdir()) == [], "nothing is left that could be taken for good"


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "cache/data/words/unpacking-x").mkdir(parents=True)
    with web_server(Behaviour(ARCHIVES)) as address:
        assert fetched(words(address, "words.zip"))[1] == set(WORDS)


def test_a_full_disk_while_unpacking(tmp_path: Path) -> None:
    """The archive is kept, so that only unpacking is repeated."""

    def unpack(archive: Path, folder: Path) -> None:
        (folder / "one.txt").symlink_to("/dev/full")
        (folder / "one.txt").write_bytes(b"one\n")

    behaviour = Behaviour(ARCHIVES)
    with web_server(behaviour) as address:
        published = words(address, "words.zip")
        full = replace(published, downloads=(replace(published.downloads[0], unpack=unpack),))
        with pytest.raises(DataError, match="no space left on the disk"):
            fetch(full, lambda *report: None)
        assert find(published) is None
        assert fetched(published) == ("downloaded", set(WORDS))
    assert len(behaviour.asked) == 1


def test_from_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path / "mine"))
    mine = tmp_path / "mine/words"
    mine.mkdir(parents=True)
    (mine / "one.txt.gz").write_bytes(packed("one.txt"))
    (mine / "two.txt").write_bytes(WORDS["two.txt"].replace(b"\r\n", b"\n"))
    published = words("http://nowhere.invalid/")
    assert locate(published).folder == mine
    assert fetched(published) == ("copied", {"one.txt.gz", "two.txt"})
    monkeypatch.delenv("ASYNC_HFL_DATA")
    assert locate(published).folder == tmp_path / "cache/data/words"


def test_a_damaged_data_directory_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path / "mine"))
    mine = tmp_path / "mine/words"
    mine.mkdir(parents=True)
    for name in WORDS:
        (mine / name).write_bytes(b"rubbish")
    with web_server(Behaviour({f"{name}.gz": packed(name) for name in WORDS})) as address:
        assert fetched(words(address))[0] == "downloaded"


def test_two_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache/data/words"
    folder.mkdir(parents=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="words is being fetched by another process; wait"):
            fetch(words("http://nowhere.invalid/"), lambda *report: None)
    finally:
        os.close(handle)


def test_no_place_for_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = words("http://nowhere.invalid/")
    monkeypatch.setenv("ASYNC_HFL_CACHE", "")
    with pytest.raises(DataError, match="no place for downloads; set ASYNC_HFL_CACHE to a folder"):
        fetch(published, lambda *report: None)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ASYNC_HFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written \(Not a directory\)"):
        fetch(published, lambda *report: None)


def test_verify_reports_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_DATA", str(tmp_path))
    published = words("http://nowhere.invalid/")
    assert [row.problem for row in verify(published)] == ["missing", "missing"]
    (tmp_path / "words").mkdir()
    (tmp_path / "words/one.txt").write_bytes(b"one\r\n")
    (tmp_path / "words/two.txt.gz").write_bytes(packed("two.txt")[:-4])
    right, cut = verify(published)
    assert right.problem is None, "line ends do not matter in a text"
    assert cut.problem is not None
    assert cut.problem.startswith("damaged or cut short")
    (tmp_path / "words/two.txt.gz").write_bytes(packed("one.txt"))
    assert verify(published)[1].problem == "the checksum is not that of the published file (4 bytes)"


def test_every_set_is_listed_and_named() -> None:
    rows = list_sets()
    assert [row.name for row in rows] == ["digits", *PUBLISHED]
    assert all(row.licence and row.train > row.test > 0 for row in rows)
    assert [row.place for row in rows] == ["embedded", *[None] * len(PUBLISHED)]
    for name, published in PUBLISHED.items():
        assert published_set(name) is published
        for download in published.downloads:
            assert all(address.startswith(("https://", "http://")) for address in download.addresses)
            assert download.md5 or download.unpack, "a file that is kept as it came needs a published digest"
    with pytest.raises(DataError, match="unknown data set 'minst'; there are: mnist, fashion-mnist"):
        published_set("minst")


BY_DAY = (
    b"t,Dn,Dm,Dx,Sn,Sm,Sx,Ta,Ua,Pa,Rc,Rd,Ri\n"
    b"0,10.0,20.0,30.0,1.0,2.0,3.0,4.8,42.4,835.2,655.35,43840.0,0.0\n"
    b"60,11.0,22.0,33.0,1.5,2.5,3.5,4.7,42.1,835.2,655.35,43840.0,0.0\n"
    b"1800,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0\n"
    b"86400,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0\n"
)


def test_half_hourly_means_by_hand() -> None:
    means, counts = half_hour_means(BY_DAY)
    wanted = [10.5, 21, 31.5, 1.25, 2.25, 3.25, 4.75, 42.25, 835.2, 655.35, 43840, 0]
    np.testing.assert_array_equal(means[0], np.array(wanted, np.float32))
    assert counts[:2].tolist() == [2, 1]
    assert counts.sum() == 3, "a reading after midnight is another day's"
    assert np.isnan(means[2:]).all()


def test_hpwren_is_built_from_the_archive_of_readings() -> None:
    hours = hpwren_readings(["BH"], 24 * 365)[0].round(2)
    archive = zip_of(
        {
            "iot-dataset-edf868a/README.md": b"readings",
            "iot-dataset-edf868a/hpwren/2021/BH.csv": hourly_csv(hours),
            "iot-dataset-edf868a/hpwren/2021/BH/20210102.csv": BY_DAY,
            "iot-dataset-edf868a/hpwren/2021/BH/20210103.csv": BY_DAY.splitlines(keepends=True)[0],
            "iot-dataset-edf868a/hpwren/2020/BH/20200102.csv": b"of another year",
        }
    )
    with web_server(Behaviour({"iot-dataset.zip": archive})) as address:
        download = replace(HPWREN.downloads[0], addresses=(f"{address}iot-dataset.zip",))
        assert fetched(replace(HPWREN, downloads=(download,))) == (
            "downloaded",
            {"hpwren_2021_30min.npz", "hpwren_2021_hourly_csv.tar"},
        )
    half_hourly, hourly = locate(HPWREN).contents([file.name for file in HPWREN.files])
    readings = read_half_hourly(half_hourly)
    assert readings.stations == ("BH",)
    assert readings.values.shape == (1, 17520, 12)
    np.testing.assert_array_equal(readings.values[0, 48:96], half_hour_means(BY_DAY)[0])
    assert np.isfinite(readings.values).all(axis=2).sum() == 2
    np.testing.assert_array_equal(read_hourly(hourly).values[0], hours)
