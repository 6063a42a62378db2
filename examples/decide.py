"""The two decisions of Async-HFL on their own, for teaching, debugging or your own scheduler.

Run it from the directory above:

    python examples/decide.py

The same from the command line, with the problem as a file: `async-hfl decide selection PROBLEM.json`.
"""

from __future__ import annotations

import async_hfl

LATENCY = {"roof": 80.0, "cellar": 200.0, "corner": 50.0}
UTILITY = {"roof": 0.4, "cellar": 0.9, "corner": 0.3}
MODEL_BYTES = 1_600_000


def main() -> None:
    candidates = [
        {"device": name, "learning_utility": UTILITY[name], "round_latency_s": s, "data_rate": MODEL_BYTES / s}
        for name, s in LATENCY.items()
    ]
    chosen = async_hfl.decide_selection({"candidates": candidates, "capacity": 45_000.0})
    print("trigger", chosen["selected"], "worth", round(chosen["objective"], 6))

    links = [{"device": d, "gateway": g, "data_rate": MODEL_BYTES / LATENCY[d]} for d in UTILITY for g in ("a", "b")]
    problem = {
        "devices": [{"device": name, "learning_utility": value} for name, value in UTILITY.items()],
        "gateways": [{"gateway": "a", "bandwidth": 1e6}, {"gateway": "b", "bandwidth": 1e6}],
        "links": links,
    }
    placed = async_hfl.decide_association(problem, exact=True)
    alone = [d for d, g in placed["association"].items() if list(placed["association"].values()).count(g) == 1]
    print("alone at its gateway:", alone, "worth", round(placed["objective"], 6), "gap", placed["gap"])


if __name__ == "__main__":
    main()
