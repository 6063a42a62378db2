"""Events files: round trips of every kind of record, digests, and damaged files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.identifiers import CLOUD, JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol.records import (
    RECORD_TYPES,
    AssociationRecord,
    EpochRecord,
    FoundRecord,
    JobRecord,
    LateRecord,
    LifecycleRecord,
    LostRecord,
    Record,
    SelectionRecord,
    SentRecord,
    UploadRecord,
)
from async_hfl.journal.events_file import EventsWriter, columns, read_events, truncate
from async_hfl.journal.formats import FORMAT

THIRD = 1 / 3
RECORDS: list[Record] = [
    SelectionRecord(0.1 + 0.2, 3, 7, (4, 1), True, False),
    SentRecord(1.0, gateway_address(3), device_address(4), "Train", "g3.1.9", THIRD, 100, 0, 0, 8),
    JobRecord(2.5, JobId(3, 1, 9), 4, "aggregated", 0.5, 0.25, 1.5, 2, 0.9, 17, THIRD),
    JobRecord(2.5, JobId(3, 1, 10), 5, "device_lost", 0.5, 0.0, 0.0, 0, 0.0, 17, None),
    UploadRecord(1e-300, UploadId(3, 1, 2), "mixed", 5, 1, 0.5, 20, False),
    EpochRecord(1e22, 6, 120, 0.875, 5e-324, {"recall": THIRD}, True),
    AssociationRecord(4.0, 2, 1.25, None, ((0, 3), (7, -1))),
    LifecycleRecord(5.0, "gateway_lost", "g3"),
    SentRecord(6.0, gateway_address(3), CLOUD, "Upload", "u3.1.2", 0.0, 0, 0, 0, 0),
    LostRecord(60.0, JobId(1, 2, 9), 4),
    FoundRecord(61.0, JobId(1, 2, 9), 4),
    LateRecord(62.0, JobId(1, 2, 9), 4),
]


def write(path: Path, records: list[Record]) -> tuple[str, str]:
    writer = EventsWriter(path)
    for record in records:
        writer.write(record)
    found = writer.digests()
    writer.close()
    return found


def as_read(record: Record) -> tuple[str, dict[str, Any]]:
    """Return a record as it is read from JSON: with lists for tuples, otherwise unchanged."""
    return record.KIND, json.loads(json.dumps(asdict(record)))


def test_the_records_here_are_of_every_kind() -> None:
    assert {type(record) for record in RECORDS} == set(RECORD_TYPES)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, RECORDS)
    assert list(read_events(path)) == [as_read(record) for record in RECORDS]
    assert list(read_events(path, "epoch", "lifecycle")) == [as_read(RECORDS[5]), as_read(RECORDS[7])]
    jobs = [fields for _, fields in read_events(path, "job")]
    assert JobId(*jobs[0]["job"]) == JobId(3, 1, 9)
    ((_, upload),) = read_events(path, "upload")
    assert UploadId(*upload["upload"]) == UploadId(3, 1, 2)


def test_the_header_names_the_columns_and_the_format(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, RECORDS)
    kind, names, written = json.loads(path.read_text().splitlines()[0])
    assert (kind, written) == ("columns", FORMAT)
    assert set(names) == {cls.KIND for cls in RECORD_TYPES}
    assert names["epoch"] == [["at", "epoch", "updates", "target_reached"], ["metric", "loss", "details"]]
    assert {kind: (list(order), list(learnt)) for kind, (order, learnt) in names.items()} == columns()


def test_write_sent_writes_the_same_line_as_write(tmp_path: Path) -> None:
    sent = RECORDS[1]
    assert isinstance(sent, SentRecord)
    writer = EventsWriter(tmp_path / "fast.jsonl")
    writer.write_sent(*(getattr(sent, name) for name in sent.__slots__))
    fast = writer.digests()
    writer.close()
    assert fast == write(tmp_path / "slow.jsonl", [sent])
    assert (tmp_path / "fast.jsonl").read_bytes() == (tmp_path / "slow.jsonl").read_bytes()


def test_the_digest_is_the_hash_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    digest, order_digest = write(path, RECORDS)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert order_digest != digest


def test_the_order_digest_ignores_learnt_fields(tmp_path: Path) -> None:
    job, epoch, association = RECORDS[2], RECORDS[5], RECORDS[6]
    assert isinstance(job, JobRecord)
    assert isinstance(epoch, EpochRecord)
    assert isinstance(association, AssociationRecord)
    first = write(tmp_path / "a", [job, epoch, association])
    learnt = [replace(job, loss=9.0), replace(epoch, metric=0.1, loss=0.2, details={}), replace(association, bound=3.0)]
    second = write(tmp_path / "b", learnt)
    assert first[0] != second[0]
    assert first[1] == second[1]
    for changed in (replace(job, staleness=3), replace(job, weight=0.8), replace(job, reason="stale")):
        assert write(tmp_path / f"c{changed.reason}{changed.staleness}{changed.weight}", [changed, epoch, association])[
            1
        ] != first[1]  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 4, len(RECORDS)])
def test_a_file_continued_after_truncation_has_the_same_digests(tmp_path: Path, cut: int) -> None:
    wanted = write(tmp_path / "whole", RECORDS)
    path = tmp_path / "broken"
    writer = EventsWriter(path)
    for record in RECORDS[:cut]:
        writer.write(record)
    length = writer.sync()
    assert length == path.stat().st_size
    for record in reversed(RECORDS):  # as if a killed process had written them after its checkpoint
        writer.write(record)
    writer.close()
    with path.open("ab") as file:
        file.write(b'["job",[1.0,[3,')
    truncate(path, length)
    assert write(path, RECORDS[cut:]) == wanted
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_more_records_than_the_buffer_holds(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    many = RECORDS * 700
    digest, _ = write(path, many)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sum(1 for _ in read_events(path)) == len(many)


def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    writer = EventsWriter(tmp_path / "events.jsonl")
    writer.close()
    writer.close()


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, RECORDS)
    whole = path.read_bytes()
    for missing in (1, 2, 10):
        path.write_bytes(whole[:-missing])
        assert list(read_events(path)) == [as_read(record) for record in RECORDS[:-1]]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"3\n",
        b"[]\n",
        b'["comet",[1]]\n',
        b'["lifecycle",[1.0]]\n',
        b'["lifecycle",7]\n',
        b'[["a"],[1]]\n',
    ],
)
def test_the_error_names_the_damaged_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "events.jsonl"
    write(path, RECORDS)
    path.write_bytes(path.read_bytes() + line + b'["lifecycle",[5.0,"finished","cloud",""]]\n')
    with pytest.raises(RunDirectoryError, match=rf"events\.jsonl, line {len(RECORDS) + 2}: not a journal line"):
        list(read_events(path))


def test_a_file_without_its_header_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'["lifecycle",[5.0,"finished","cloud",""]]\n')
    with pytest.raises(RunDirectoryError, match="line 1: not a journal line"):
        list(read_events(path))


def test_truncating_a_file_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with pytest.raises(RunDirectoryError, match="shorter than its checkpoint says"):
        truncate(path, 3)
    path.write_bytes(b"ab")
    with pytest.raises(RunDirectoryError, match="delete the checkpoint to begin the run again"):
        truncate(path, 3)
    assert path.read_bytes() == b"ab"


def test_a_file_of_an_older_version_names_the_version_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'["columns",{"life":[["at","what","node","detail"],[]]}]\n["life",[5.0,"finished","cloud",""]]\n')
    why = (
        r"events\.jsonl: written by async-hfl 0\.1\.0 \(format 1\); this version reads format 3: use async-hfl 0\.1\.0"
    )
    with pytest.raises(RunDirectoryError, match=why):
        list(read_events(path))
