"""The bandwidth in words, for simulated and deployed runs, and for runs of which the manifest says less."""

from __future__ import annotations

from typing import Any

import pytest

from async_hfl.reports.tables.bandwidth import bandwidth_text


def manifest(setting: float | str, **more: Any) -> dict[str, Any]:
    return {"settings": {"gateway": {"bandwidth": setting}}, **more}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (manifest("50%", bandwidth=12_345.0, bandwidth_demand=24_690.0), "12.3 kB/s per gateway (50 % of demand)"),
        (manifest(2e6, bandwidth=2e6, bandwidth_demand=4e8), "2.0 MB/s per gateway (0.5 % of demand)"),
        (manifest("unlimited", bandwidth=1e15, bandwidth_demand=1.0), "unlimited"),
        (manifest("50%", bandwidth=0.3481), "0.348 B/s per gateway"),
        (manifest("50%"), "50 % of demand per gateway, as the warm-up measures it"),
        (
            {"settings": {"gateway": {"bandwidth": "50%"}, "warmup": {"enabled": False}}},
            "50 % of demand per gateway, as estimated when the run begins",
        ),
        (manifest(20_000.0), "20.0 kB/s per gateway"),
        ({"settings": {"task": {}}}, None),
        ({}, None),
    ],
)
def test_the_text(found: dict[str, Any], text: str | None) -> None:
    assert bandwidth_text(found) == text
