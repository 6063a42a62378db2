"""The cost of churn: the same runs with and without a tenth of the devices down and a gateway that fails.

    python benchmarks/churn.py [--seeds 5] [--methods async-hfl,async-hfl-plus,sync-random] [--down 600]

Each run is made twice with the same seed. In the second one, the gateway with the most devices fails after a third of
the time to target of the first. Devices are down for --down seconds on average, and up for nine times as long.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from async_hfl import api


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default="async-hfl,async-hfl-plus,sync-random")
    parser.add_argument("--down", type=float, default=600.0)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--network", default="nycmesh-paper")
    options = parser.parse_args()
    print("| method | quiet, h | churn, h | slower | MB quiet | MB churn | reached | lost jobs | kJ quiet | kJ churn |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for method in options.methods.split(","):
        pairs = [_pair(options, method, seed) for seed in range(1, options.seeds + 1)]
        print(_row(method, pairs), flush=True)


def _pair(options: argparse.Namespace, method: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    task, network = options.task, options.network
    churn = (f"outages.device_up={9 * options.down}", f"outages.device_down={options.down}")
    with tempfile.TemporaryDirectory(prefix="async-hfl-churn-") as folder:
        quiet = api.run(task=task, network=network, method=method, seed=seed, out=Path(folder) / "quiet")
        victim = _busiest(quiet.path)
        third = (quiet.summary["time_to_target_s"] or quiet.summary["virtual_s"]) / 3
        overrides = [*churn, f'outages.schedule=["{third} gateway {victim} dies"]']
        rough = api.run(
            task=task, network=network, method=method, seed=seed, overrides=overrides, out=Path(folder) / "rough"
        )
        return quiet.summary, rough.summary


def _busiest(path: Path) -> int:
    """Return the gateway with the most finished jobs."""
    from async_hfl.journal.run_directory import RunDirectory

    counts: dict[int, int] = {}
    for _, fields in RunDirectory(path).read_events("job"):
        gateway = int(fields["job"][0])
        counts[gateway] = counts.get(gateway, 0) + 1
    return max(counts, key=lambda gateway: counts[gateway])


def _row(method: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    both = [(q, r) for q, r in pairs if q["target_reached"] and r["target_reached"]]
    lost = [r["job_ends"].get("device_lost", 0) + r["job_ends"].get("gateway_lost", 0) for _, r in pairs]
    cells = [
        _spread([q["time_to_target_s"] / 3600 for q, _ in both], 2),
        _spread([r["time_to_target_s"] / 3600 for _, r in both], 2),
        _spread([r["time_to_target_s"] / q["time_to_target_s"] for q, r in both], 2),
        _spread([q["bytes_to_target"] / 1e6 for q, _ in both], 0),
        _spread([r["bytes_to_target"] / 1e6 for _, r in both], 0),
        f"{sum(r['target_reached'] for _, r in pairs)} of {len(pairs)}",
        _spread(lost, 0),
        _spread([q["energy"]["total_j"] / 1e3 for q, _ in pairs], 0),
        _spread([r["energy"]["total_j"] / 1e3 for _, r in pairs], 0),
    ]
    return f"| `{method}` | {' | '.join(cells)} |"


def _spread(values: list[float], digits: int) -> str:
    """Format as: median (minimum to maximum)."""
    if not values:
        return "-"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
