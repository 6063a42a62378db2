"""The validator without ns-3: a stand-in answers, or nobody does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl.core.errors import UserError
from async_hfl.network.ns3.ask import ask
from async_hfl.network.ns3.comparison import TimeDifference, compare, comparison_lines
from async_hfl.network.ns3.grid import STAGGER_S, WifiCase, WifiTimes, times, wifi_cases
from async_hfl.network.ns3.prediction import predicted
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss, straight_line
from async_hfl.network.radio.propagation.surroundings import Surroundings


def stand_in(slower: float, worse_db: float) -> Any:
    """Answers as we would, by so much off."""

    def answers(question: dict[str, Any]) -> dict[str, Any]:
        losses = []
        for case in question["path_loss"]:
            x, y, a, _, _, b = np.array(case["pairs"]).T
            around = Surroundings(case["frequency_mhz"], case["environment"], case["city_size"], case["rooftop_m"])
            losses.append({"path_loss_db": (path_loss(straight_line(x, y, a - b), a, b, around) + worse_db).tolist()})
        transfers = []
        for case in question["wifi"]:
            mine = next(
                one
                for one in wifi_cases("quick")
                if (one.direction, one.stations) == (case["direction"], len(case["stations"]))
            )
            mean = predicted(mine).mean_s
            assert mean is not None
            transfers.append({"seconds": [mean * slower] * mine.stations})
        return {"path_loss": losses, "wifi": transfers}

    return answers


def test_agreement_is_told() -> None:
    made = compare("quick", put=stand_in(1.1, 0.0))
    assert made.agrees
    assert all(row.mean == pytest.approx(1 / 1.1 - 1) for row in made.transfers)
    text = "\n".join(comparison_lines(made))
    assert "all within the limits" in text
    assert "(-9.1%)" in text
    assert made.as_json()["agrees"] is True
    assert len(made.as_json()["transfers"]) == len(wifi_cases("quick"))


@pytest.mark.parametrize(("slower", "worse_db"), [(1.3, 0.0), (1.0, 1e-5)])
def test_disagreement_is_told(slower: float, worse_db: float) -> None:
    made = compare("quick", put=stand_in(slower, worse_db))
    assert not made.agrees
    assert list(comparison_lines(made))[-1].startswith("NOT all within")


def test_what_never_arrives() -> None:
    case = WifiCase(900.0, 18.0, 0, "up", 1, 100_000)
    assert predicted(case) == WifiTimes(None, None)
    assert TimeDifference(case, WifiTimes(None, None), predicted(case)).within()
    assert not TimeDifference(case, WifiTimes(1.0, 1.0), predicted(case)).within()
    assert times([{"seconds": [1.0, None]}]) == WifiTimes(None, None)


def test_averages_over_runs() -> None:
    assert times([{"seconds": [1.0, 3.0]}, {"seconds": [2.0, 2.0]}]) == WifiTimes(2.0, (3.0 + 2.0) / 2 + STAGGER_S)


def test_without_ns3_the_extra_is_named() -> None:
    if "ns" in sys.modules:  # pragma: no cover - only where ns-3 was installed beside us
        pytest.skip("ns-3 is here")
    with pytest.raises(UserError, match=r"async-hfl\[ns3\]"):
        ask({"path_loss": []})


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be started"):
        ask({}, tmp_path / "python")


def test_a_failure_of_ns3_is_told_by_its_last_line(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\ncat > /dev/null\necho first >&2\necho 'ns-3 fell over' >&2\nexit 7\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match=r"exit code 7\): ns-3 fell over"):
        ask({}, broken)
