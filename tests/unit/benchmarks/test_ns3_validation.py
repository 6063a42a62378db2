"""benchmarks/ns3_validation.py without ns-3: a stub answers in its place, or ns-3 is missing or fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl.core.errors import UserError
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import Surroundings
from ns3_probe.ask import ask
from ns3_probe.prediction import predicted
from ns3_probe.transfers import STAGGER_S, WifiCase, WifiTimes, times, wifi_cases
from ns3_validation import TimeDifference, compare, comparison_lines


def stub_ns3(slower: float, worse_db: float) -> Any:
    """Return a stub for ns-3 that gives async_hfl's own answers, scaled and shifted by the arguments."""

    def answers(question: dict[str, Any]) -> dict[str, Any]:
        losses = []
        for case in question["path_loss"]:
            x, y, a, _, _, b = np.array(case["pairs"]).T
            around = Surroundings(case["frequency_mhz"], case["environment"], case["city_size"], case["rooftop_m"])
            losses.append({"path_loss_db": (path_loss(straight_line(x, y, a - b), a, b, around) + worse_db).tolist()})
        transfers = []
        for case in question["wifi"]:
            known = next(
                one
                for one in wifi_cases("quick")
                if (one.direction, one.stations) == (case["direction"], len(case["stations"]))
            )
            mean = predicted(known).mean_s
            assert mean is not None
            transfers.append({"seconds": [mean * slower] * known.stations})
        return {"path_loss": losses, "wifi": transfers}

    return answers


def test_agreement_is_reported() -> None:
    comparison = compare("quick", put=stub_ns3(1.1, 0.0))
    assert comparison.agrees
    assert all(row.mean == pytest.approx(1 / 1.1 - 1) for row in comparison.transfers)
    text = "\n".join(comparison_lines(comparison))
    assert "all within the limits" in text
    assert "(-9.1%)" in text
    assert comparison.as_json()["agrees"] is True
    assert len(comparison.as_json()["transfers"]) == len(wifi_cases("quick"))


@pytest.mark.parametrize(("slower", "worse_db"), [(1.3, 0.0), (1.0, 1e-5)])
def test_disagreement_is_reported(slower: float, worse_db: float) -> None:
    comparison = compare("quick", put=stub_ns3(slower, worse_db))
    assert not comparison.agrees
    assert list(comparison_lines(comparison))[-1].startswith("NOT all within")


def test_transfers_that_never_arrive() -> None:
    case = WifiCase(900.0, 18.0, 0, "up", 1, 100_000)
    assert predicted(case) == WifiTimes(None, None)
    assert TimeDifference(case, WifiTimes(None, None), predicted(case)).within()
    assert not TimeDifference(case, WifiTimes(1.0, 1.0), predicted(case)).within()
    assert times([{"seconds": [1.0, None]}]) == WifiTimes(None, None)


def test_averages_over_runs() -> None:
    assert times([{"seconds": [1.0, 3.0]}, {"seconds": [2.0, 2.0]}]) == WifiTimes(2.0, (3.0 + 2.0) / 2 + STAGGER_S)


def test_without_ns3_the_extra_is_named() -> None:
    if "ns" in sys.modules:  # pragma: no cover - only if ns-3 is installed
        pytest.skip("ns-3 is installed")
    with pytest.raises(UserError, match=r"async-hfl\[ns3\]"):
        ask({"path_loss": []})


def test_a_python_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be started"):
        ask({}, tmp_path / "python")


def test_a_failure_of_ns3_is_reported_with_its_last_line(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\ncat > /dev/null\necho first >&2\necho 'ns-3 fell over' >&2\nexit 7\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match=r"exit code 7\): ns-3 fell over"):
        ask({}, broken)
