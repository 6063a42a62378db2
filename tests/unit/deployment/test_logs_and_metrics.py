"""Log lines for collectors, and metrics for Prometheus."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from async_hfl.core.errors import SettingsError
from async_hfl.core.identifiers import JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol.records import (
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
from async_hfl.deployment.operations.logs import LimitRepeats, LogFormat, set_up_logs
from async_hfl.deployment.operations.metrics import Metrics

JOB = JobId(1, 5, 9)
RECORDS: list[Record] = [
    JobRecord(12.0, JOB, 4, "aggregated", 10.0, 0.25, 1.5, 2, 0.9, 17, 0.3),
    JobRecord(12.0, JobId(1, 5, 10), 4, "device_lost", 10.0, 0.0, 0.0, 0, 0.0, 17, None),
    UploadRecord(13.0, UploadId(1, 5, 2), "mixed", 5, 3, 0.5, 20, False),
    SentRecord(1.0, gateway_address(1), device_address(4), "Train", JOB, 0.1, 1000, 0, 0, 96),
    SentRecord(2.0, gateway_address(1), device_address(4), "Train", JOB, 0.1, 1000, 0, 0, 96),
    EpochRecord(14.0, 6, 120, 0.875, 0.5, {}, False),
    SelectionRecord(0.5, 1, 7, (4, 1), True, False),
    LifecycleRecord(5.0, "gateway_lost", "g3"),
    AssociationRecord(4.0, 2, 1.25, None, ()),
    LostRecord(6.0, JOB, 4),
    FoundRecord(61.0, JOB, 4),
    LateRecord(62.0, JOB, 4),
]


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Leaves logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


def said(form: LogFormat) -> list[str]:
    stream = io.StringIO()
    set_up_logs("info", form, "gateway", "roof-3", stream)
    log = logging.getLogger("async_hfl.test")
    log.debug("not this")
    log.info("device %s joined: %s", "d3", 'quoted "so"\nand over two lines')
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it went wrong")
    return stream.getvalue().splitlines()


@pytest.mark.usefixtures("root_logger")
def test_json_is_one_object_a_line() -> None:
    first, second = (json.loads(line) for line in said("json"))
    assert first["message"] == 'device d3 joined: quoted "so"\nand over two lines'
    assert (first["level"], first["role"], first["node"]) == ("info", "gateway", "roof-3")
    assert first["logger"] == "async_hfl.test"
    assert first["time"].endswith("+00:00")
    assert "ValueError: broken" in second["error"]


@pytest.mark.usefixtures("root_logger")
def test_text_is_for_people() -> None:
    lines = said("text")
    assert "INFO async_hfl.test: device d3 joined" in lines[0]
    assert not any("not this" in line for line in lines)


def test_records_become_numbers() -> None:
    metrics = Metrics("gateway", "roof-3")
    for record in RECORDS:
        metrics.wrote(record)
    close = metrics.serve("0")
    try:
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        close()
    for expected in (
        'async_hfl_jobs_total{reason="aggregated"} 1.0',
        'async_hfl_jobs_total{reason="device_lost"} 1.0',
        'async_hfl_uploads_total{reason="mixed"} 1.0',
        'async_hfl_sent_bytes_total{kind="model",message="Train"} 2000.0',
        'async_hfl_sent_bytes_total{kind="control",message="Train"} 192.0',
        'async_hfl_sent_messages_total{message="Train"} 2.0',
        "async_hfl_cloud_epoch 6.0",
        "async_hfl_updates_in_model 120.0",
        "async_hfl_metric 0.875",
        'async_hfl_selections_total{bound="true"} 1.0',
        'async_hfl_life_total{what="gateway_lost"} 1.0',
        "async_hfl_association_version 2.0",
        "async_hfl_updates_lost_total 1.0",
        "async_hfl_updates_found_total 1.0",
        "async_hfl_updates_late_total 1.0",
        'async_hfl_job_seconds_sum{part="training"} 1.5',
        'async_hfl_job_seconds_sum{part="round"} 2.0',
        'async_hfl_job_seconds_count{part="download"} 1.0',
        'async_hfl_staleness_bucket{le="3.0",tier="cloud"} 1.0',
    ):
        assert expected in lines, expected
    assert any('node="roof-3"' in line and 'role="gateway"' in line for line in lines)


def test_a_wrong_address_is_the_users_mistake() -> None:
    with pytest.raises(SettingsError, match="9100"):
        Metrics("cloud", "c").serve("here")
    metrics = Metrics("cloud", "c")
    close = metrics.serve("127.0.0.1:0")
    try:
        with pytest.raises(SettingsError, match="cannot listen"):
            Metrics("cloud", "c").serve(f"127.0.0.1:{metrics.port}")
    finally:
        close()


def test_a_peer_cannot_fill_the_disk_with_lines() -> None:
    now = [0.0]
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LimitRepeats(lambda: now[0]))
    log = logging.Logger("async_hfl.test")
    log.addHandler(handler)
    for number in range(1000):
        log.warning("refused %d", number)
        log.info("joined %d", number)
    log.warning("another kind")
    now[0] = 61.0
    log.warning("refused %d", 1000)
    lines = stream.getvalue().splitlines()
    assert sum(line.startswith("refused") for line in lines) == 31
    assert sum(line.startswith("joined") for line in lines) == 600
    assert "another kind" in lines
    assert lines[-1] == "refused 1000 (970 more like this were not logged)"
