"""Recorded networks: rows from a journal, the file, and its replay."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import pytest

from async_hfl.core.errors import DataError, InvariantViolation
from async_hfl.network.description import NetworkDescription
from async_hfl.network.files.traces import COLUMNS, Trace, TraceRow, trace_rows, write_trace
from async_hfl.network.topologies.from_file import devices_in, read_network_file
from async_hfl.network.topologies.rated_network import Wire
from async_hfl.network.topologies.trace_network import trace_network

HEAD = ",".join(COLUMNS) + "\n"
TEXT = HEAD + (
    "0,small_download,4,1,100,0.5\n"
    "1,download,4,1,1000,1.5\n"
    "2,training,4,1,,30\n"
    "3,upload,4,1,1000,2.5\n"
    "4,download,4,1,1000,3.5\n"
    "5,training,4,1,,40\n"
    "6,upload,4,1,1000,4.5\n"
    "7,download,9,3,1000,2.5\n"
    "8,upload,9,3,2000,2.5\n"
    "9,download,9,1,1000,2.5\n"
    "10,device_down,9,3,,\n"
    "11,to_cloud,,1,1000,1.25\n"
    "12,small_to_cloud,,1,100,0.25\n"
)


def sent(sender: list[int], receiver: list[int], model: int, **more: Any) -> tuple[str, dict[str, Any]]:
    fields = {
        "at": 1.0,
        "sender": sender,
        "receiver": receiver,
        "model": model,
        "gradient": 5,
        "basis": 0,
        "control": 96,
    }
    return "sent", {**fields, "transfer_s": 2.0, **more}


def replayed(tmp_path: Path, text: str = TEXT, **options: Any) -> NetworkDescription:
    (tmp_path / "trace.csv").write_text(text)
    trace = read_network_file(tmp_path / "trace.csv")
    assert isinstance(trace, Trace)
    chosen = {"devices": devices_in(trace), "model_bytes": 1000, "seed": 1, "replay": "order", **options}
    return trace_network(trace, **chosen)


def test_rows_of_a_journal() -> None:
    job = {"at": 9.0, "job": [3, 1, 7], "device": 4, "sent_at": 1.0, "download_s": 2.0, "training_s": 30.0}
    found = list(
        trace_rows(
            [
                sent([1, 3], [2, 4], 1000),
                sent([2, 4], [1, 3], 1000),
                sent([1, 3], [0, 0], 1000),
                sent([0, 0], [1, 3], 0),
                ("job", job),
                ("job", {**job, "download_s": 0.0}),
                ("lifecycle", {"at": 5.0, "what": "device_given_up", "node": "d4", "detail": "by g3"}),
                ("lifecycle", {"at": 6.0, "what": "gateway_lost", "node": "g3", "detail": ""}),
                ("lifecycle", {"at": 7.0, "what": "finished", "node": "cloud", "detail": ""}),
            ]
        )
    )
    assert found == [
        TraceRow(1.0, "download", 4, 3, 1101, 2.0),
        TraceRow(1.0, "upload", 4, 3, 1101, 2.0),
        TraceRow(1.0, "to_cloud", None, 3, 1101, 2.0),
        TraceRow(1.0, "small_to_gateway", None, 3, 101, 2.0),
        TraceRow(3.0, "training", 4, 3, None, 30.0),
        TraceRow(5.0, "device_down", 4, 3, None, None),
        TraceRow(6.0, "gateway_down", None, 3, None, None),
    ]


def test_written_and_read_again(tmp_path: Path) -> None:
    rows = [TraceRow(2.0, "training", 4, 3, None, 0.1 + 0.2), TraceRow(1.0, "download", 4, 3, 1101, 2.0)]
    file = io.StringIO()
    assert write_trace(file, rows) == {"download": 1, "training": 1}
    (tmp_path / "trace.csv").write_text(file.getvalue())
    again = read_network_file(tmp_path / "trace.csv")
    assert isinstance(again, Trace)
    assert list(again.rows) == sorted(rows)
    assert again.outages == ()


def test_replayed_in_order(tmp_path: Path) -> None:
    """Device 9 has a link to gateway 3 only: there was no upload to gateway 1. Latency 0.5 s."""
    network = replayed(tmp_path)
    links, delays = network.links, network.delays
    assert list(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True)) == [(0, 0), (1, 1)]
    assert [delays.to_device(0, 0, 1000) for _ in range(3)] == pytest.approx([1.5, 3.5, 1.5])
    assert [delays.to_gateway(0, 0, size) for size in (1000, 96, 96, 2000)] == pytest.approx(
        [2.5, 0.5 + 96 * 0.004, 0.5 + 96 * 0.004, 8.5]
    ), "small messages do not use up what was recorded"
    assert delays.to_gateway(1, 1, 1000) == pytest.approx(1.5)
    assert [delays.compute(0) for _ in range(3)] == [30, 40, 30]
    assert [delays.compute(1) for _ in range(2)] == [30, 40], "never recorded: as the others"
    assert delays.gateway_to_cloud(0, 1000) == pytest.approx(1.25)
    assert delays.gateway_to_cloud(1, 1000) == pytest.approx(1.25), "of gateway 3 nothing is known: as the others"
    assert network.expected_compute.tolist() == [35, 35]
    assert links.expected_latency[0] == pytest.approx(2.5 + 35 + 3.5)
    with pytest.raises(InvariantViolation, match="device 1 has no link to gateway 0"):
        delays.to_device(0, 1, 1000)


def test_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    for replay in ("order", "resample"):
        one, other = replayed(tmp_path, replay=replay).delays, replayed(tmp_path, replay=replay).delays
        for _ in range(7):
            one.to_device(0, 0, 1000)
            one.compute(0)
        other.restore(one.snapshot())
        assert [one.to_device(0, 0, 1000) for _ in range(9)] == [other.to_device(0, 0, 1000) for _ in range(9)]
        assert [one.compute(0) for _ in range(9)] == [other.compute(0) for _ in range(9)]


def test_resampled(tmp_path: Path) -> None:
    delays = replayed(tmp_path, replay="resample").delays
    drawn = [delays.to_device(0, 0, 1000) for _ in range(400)]
    assert {round(value, 6) for value in drawn} == {1.5, 3.5}
    assert 140 < sum(value < 2 for value in drawn) < 260
    assert any(one == other for one, other in itertools.pairwise(drawn)), "no order"
    other = replayed(tmp_path, replay="resample", seed=2).delays
    assert drawn != [other.to_device(0, 0, 1000) for _ in range(400)]


def test_a_trace_without_backhaul_transfers(tmp_path: Path) -> None:
    text = "\n".join(line for line in TEXT.splitlines() if "to_cloud" not in line) + "\n"
    delays = replayed(tmp_path, text, wire=Wire(0.0, 100.0, 7.0)).delays
    assert delays.gateway_to_cloud(0, 1000) == pytest.approx(17.0)
    assert delays.cloud_to_gateway(0, 1000) == pytest.approx(17.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("at,what,seconds\n1,training,2\n", "has no column 'device'; it needs at, what"),
        (HEAD + "1,dowload,1,1,5,1\n", "line 2: 'dowload' is not a kind of row in a trace; did you mean download"),
        (HEAD + "1,download,,1,5,1\n", "line 2: device is '', which is not a number"),
        (HEAD + "1,download,1.5,1,5,1\n", "device is 1.5; it must be a whole number"),
        (HEAD + "1,download,-1,1,5,1\n", "device is -1; it must be a number of at least 0"),
        (HEAD + "1,download,1,1,0,1\n", "bytes is 0; it must be a number of at least 1"),
        (HEAD + "1,download,1,1,5,-1\n", "seconds is -1"),
        (HEAD + "1,download,1,1,5,nan\n", "seconds is nan"),
        (HEAD + "-1,training,1,1,5,1\n", "at is -1"),
        (HEAD + "1,training,1,,,3\n", "no link of this trace carried a model both ways"),
        (HEAD + "1,download,1,1,5,1\n1,upload,1,1,5,1\n", "contains no training"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        replayed(tmp_path, text)
