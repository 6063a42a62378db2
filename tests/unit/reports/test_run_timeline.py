"""The data of timelines and maps stays small for long runs and large networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from async_hfl.reports.data.journal_columns import Columns, Jobs
from async_hfl.reports.data.run_data import MOST_BARS, device_data, lifecycle_data
from async_hfl.reports.data.run_timeline import MOST_DEVICES, MOST_GATEWAYS, MOST_JOBS, timeline_data
from async_hfl.reports.pages.run_map import MOST_STEPS, association_steps


def columns(gateway: list[int], device: list[int], **more: object) -> Columns:
    count = len(gateway)
    at = np.arange(count, dtype=np.float64)
    ones = np.ones(count)
    jobs = Jobs(
        np.array(gateway),
        np.array(device),
        ("aggregated",) * count,
        at,
        ones,
        2 * ones,
        ones,
        at + 4,
        at + 5,
        np.ones(count, np.int64),
        np.ones(count, np.bool_),
    )
    return Columns(jobs, (), (), more.get("associations", ()), more.get("life", ()), (), float(count))  # type: ignore[arg-type]


def test_a_short_run_is_shown_whole() -> None:
    data = timeline_data(columns([0, 1], [7, 8]))
    assert data is not None
    assert [window["name"] for window in data["windows"]] == ["whole run"]
    assert data["jobs"][0] == [0, 7, 0.0, 1.0, 3.0, 3.0, 4.0, 5.0, 0]
    assert data["thinned"] == {}


def test_times_are_given_as_finely_as_jobs_need() -> None:
    """A job of a deployment on one machine takes a few milliseconds."""
    slow = columns([0, 0], [7, 8])
    times = ("sent_at", "download_s", "training_s", "upload_s", "arrived_at", "ended_at")
    thousandth = {name: getattr(slow.jobs, name) / 1000 for name in times}
    data = timeline_data(replace(slow, jobs=replace(slow.jobs, **thousandth)))
    assert data is not None
    assert data["typical"] == pytest.approx(0.005)
    assert data["jobs"][1] == pytest.approx([0, 8, 0.001, 0.002, 0.004, 0.004, 0.005, 0.006, 0])


def test_a_long_run_is_shown_in_three_windows() -> None:
    count = 10 * MOST_JOBS
    data = timeline_data(columns([0] * count, [n % 30 for n in range(count)]))
    assert data is not None
    assert [window["name"] for window in data["windows"]] == ["beginning", "middle", "end"]
    assert len(data["jobs"]) == MOST_JOBS
    assert data["windows"][0]["from"] == 0.0
    assert data["windows"][2]["to"] == count + 4.0
    assert timeline_data(columns([0] * count, [n % 30 for n in range(count)])) == data, "always the same"


def test_a_big_network_is_thinned() -> None:
    gateways = [n % 100 for n in range(20_000)]
    data = timeline_data(columns(gateways, list(range(20_000))))
    assert data is not None
    assert len({job[0] for job in data["jobs"]}) == MOST_GATEWAYS
    assert data["gateways"] == 100
    assert set(data["thinned"].values()) == {200}
    for gateway in {job[0] for job in data["jobs"]}:
        assert len({job[1] for job in data["jobs"] if job[0] == gateway}) <= MOST_DEVICES


def test_devices_are_sorted_by_their_updates() -> None:
    found = device_data(columns([0, 0, 0], [2, 2, 0]), 4, None, [])
    assert [(row["device"], row["updates"]) for row in found["rows"]] == [(1, 0), (3, 0), (0, 1), (2, 2)]
    assert (found["never"], found["never_count"], found["median"]) == ([1, 3], 2, 0.5)
    assert found["rows"][3]["last"] == 6.0
    assert len(device_data(columns([0], [0]), 50_000, None, [])["rows"]) == MOST_BARS


def test_many_solutions_become_few_steps() -> None:
    moves = tuple({"at": float(n), "moved": [[n % 5, n % 3]]} for n in range(1000))
    steps = association_steps([0, 2, 4], 5, columns([0], [0], associations=moves))
    assert len(steps) == MOST_STEPS
    assert sum(step["moved"] for step in steps) == 1000
    now = {}
    for step in steps:
        now.update(dict(step["changed"]))
    last = {
        device: next(m["moved"][0][1] for m in reversed(moves) if m["moved"][0][0] == device) for device in (0, 2, 4)
    }
    assert now == {row: last[device] for row, device in enumerate((0, 2, 4))}
    assert steps[-1]["load"] == np.bincount([m["moved"][0][1] for m in moves[-5:]]).tolist()


def test_the_number_of_nodes_that_are_down_over_time() -> None:
    life = tuple(
        {"at": at, "what": what, "node": node, "detail": ""}
        for at, what, node in (
            (1.0, "went_down", "d3"),
            (2.0, "went_down", "d4-g1"),
            (3.0, "device_given_up", "d3"),
            (4.0, "came_back", "d3"),
            (5.0, "device_heard", "d3"),
            (6.0, "died", "g1"),
        )
    )
    found = lifecycle_data(columns([0] * 9, [0] * 9, life=life))
    assert found["lines"] == {
        "devices down": [[0.0, 0], [1.0, 1], [4.0, 0], [9.0, 0]],
        "links down": [[0.0, 0], [2.0, 1], [9.0, 1]],
        "gateways down": [[0.0, 0], [6.0, 1], [9.0, 1]],
        "devices timed out": [[0.0, 0], [3.0, 1], [5.0, 0], [9.0, 0]],
    }
    assert found["counts"]["died"] == 1
