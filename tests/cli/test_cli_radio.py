"""`async-hfl network path-loss` and `async-hfl network validate`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from command_line import Call

GOLDEN = Path(__file__).parents[1] / "golden" / "ns3_path_loss.csv"


@pytest.mark.parametrize("frequency", ["2160", "5180"])
def test_path_loss_equals_that_of_ns3(call: Call, frequency: str) -> None:
    done = call("network", "path-loss", str(GOLDEN), "--frequency-mhz", frequency)
    assert done.code == 0
    made = list(csv.DictReader(done.out.splitlines()))
    golden = list(csv.DictReader(line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")))
    assert [row["pair"] for row in made] == [row["pair"] for row in golden]
    for mine, theirs in zip(made, golden, strict=True):
        assert float(mine["path_loss_db"]) == pytest.approx(float(theirs[f"path_loss_db_{frequency}MHz"]), abs=1e-6)


def test_path_loss_as_json_and_in_other_surroundings(call: Call) -> None:
    Path("pairs.csv").write_text("device_x_m,device_y_m,device_z_m,gateway_z_m\n1500,0,5,50\n")
    done = call("network", "path-loss", "pairs.csv", "--frequency-mhz", "800", "--environment", "open-areas", "--json")
    (row,) = done.json
    assert row["pair"] == "0"
    assert row["path_loss_db"] == pytest.approx(94.92, abs=0.01)  # ns-3: 94.9127 at 1,500 m, this is 0.675 m further


def test_mistakes(call: Call) -> None:
    Path("pairs.csv").write_text("device_x_m,device_y_m,device_z_m,gateway_z_m\n1,2,x,4\n")
    assert (
        "line 2: device_z_m is 'x', which is not a number"
        in call("network", "path-loss", "pairs.csv", "--frequency-mhz", "2160").told()
    )
    assert "no such file" in call("network", "path-loss", "none.csv", "--frequency-mhz", "2160").told()
    assert "frequency_mhz = -1.0" in call("network", "path-loss", "pairs.csv", "--frequency-mhz", "-1").told()
    assert "--frequency-mhz" in call("network", "path-loss", "pairs.csv").told()
    assert "invalid float value" in call("network", "path-loss", "pairs.csv", "--frequency-mhz", "fast").told()


def test_validate_without_ns3_names_the_extra(call: Call) -> None:
    done = call("network", "validate", "--quick", "--python", "no-such-python")
    assert done.code == 2
    assert "no-such-python: cannot be started" in done.told()


def test_validate_without_a_source_checkout(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("async_hfl.cli.network.__file__", str(tmp_path / "lib" / "async_hfl" / "cli" / "network.py"))
    done = call("network", "validate")
    assert done.code == 2
    assert "needs a source checkout" in done.told()
    assert ".[ns3]" in done.told()
