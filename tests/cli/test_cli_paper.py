"""The command `async-hfl paper`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Call

LISTED = """
table3        Table 3: bytes in the motivating study (HAR)
fig3          Fig. 3: map, delays and convergence in the motivating study (HAR)
table6        Table 6: speed-up of Async-HFL over eight baselines on six data sets
fig7-left     Fig. 7 left: bytes to the target, without the synchronous methods
fig7-right    Fig. 7 right: selection and association, separately and combined
fig8          Fig. 8: convergence on the deployment in 30 cloud epochs (simulated, or --deployed)
fig9          Fig. 9: download, training and upload by client (simulated, or --deployed)
fig10-left    Fig. 10 left: speed-up by the bandwidth of gateways (MNIST)
fig10-right   Fig. 10 right: speed-up by target accuracy (MNIST)
fig11-left    Fig. 11 left: time to the target by kappa, the weight of latency in selection (HAR)
fig11-middle  Fig. 11 middle: time to the target by phi, the weight of load in association (HAR)
fig11-right   Fig. 11 right: time to the target by principal components of the gradients (HAR)
overhead      Overhead analysis: bytes of gradients, seconds per decision
"""


def test_the_list(call: Call) -> None:
    said = call("paper", "list")
    assert said.code == 0
    assert [line for line in said.out.splitlines() if not line.startswith(" ")] == LISTED.strip().splitlines()
    names = [row["name"] for row in call("paper", "list", "--json").json]
    assert names == [line.split()[0] for line in LISTED.strip().splitlines()]


def test_an_ablation_of_digits(call: Call, tmp_path: Path) -> None:
    """Make a small entry twice; the second time reuses the runs of the first."""
    arguments = ["paper", "fig7-right", "--quick", "--tasks", "digits", "--seeds", "1", "--preset", "tight"]
    settings = ["--set", "task.devices=20", "--set", "task.target=0.4", "--out", "p"]
    first = call(*arguments, *settings)
    assert first.code == 0, first.err
    said = " ".join(first.out.split())
    assert "Fig. 7 right: contributions of selection and association (nycmesh-paper, preset tight)" in said
    assert "Selections of Async-HFL that the bandwidth limited: digits" in said
    again = call(*arguments, *settings, "--json")
    assert again.json["were_there"] == again.json["runs"] == 5
    report = tmp_path / "p" / "fig7-right-tight-nycmesh-paper-quick"
    assert {path.name for path in report.iterdir()} >= {"report.html", "figure.png", "curves.png", "tables.md"}
    assert "async-hfl paper fig7-right --quick --tasks digits" in (report / "tables.md").read_text()


def test_fig_9_is_drawn_from_any_run(call: Call, tmp_path: Path) -> None:
    made = call(
        *("run", "--network", "uniform", "--method", "async-random", "--set", "task.devices=10"),
        *("--set", "cloud.epochs=3", "--set", "network.gateways=2", "--out", "mine", "--json"),
    )
    assert made.code == 0, made.err
    said = call("paper", "fig9", "--runs", "mine", "--out", "p")
    assert said.code == 0, said.err
    assert "device 9" in said.out
    assert "invented" not in said.out
    assert not list((tmp_path / "p" / "runs").iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["paper", "table7"], "did you mean table"),
        (["paper", "table6", "--network", "uniform"], "nycmesh-paper, nycmesh"),
        (["paper", "table6", "--preset", "loose"], "paper, authors, tight"),
        (["paper", "table6", "--runs", "x"], "only fig8 and fig9"),
        (["paper", "table6", "--deployed"], "--deployed: applies to fig8 and fig9"),
        (["paper", "table6", "--rounds", "3"], "applies to fig8 and fig9 only"),
        (["paper", "fig8", "--rounds", "0"], "at least 1"),
        (["paper", "fig8", "--time-factor", "3"], "give --deployed"),
        (["paper", "fig8", "--deployed", "--time-factor", "0.5"], "at least 1"),
        (["paper", "fig8", "--deployed", "--preset", "authors"], "paper, tight"),
        (["paper", "table6", "--tasks", "mnst"], "did you mean mnist?"),
    ],
)
def test_mistakes(arguments: list[str], told: str, call: Call) -> None:
    said = call(*arguments)
    assert said.code == 2
    assert told in said.told()
