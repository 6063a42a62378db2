"""Complete run directories with made-up numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from async_hfl.journal.run_directory import EpochsWriter, RunDirectory


def summary(method: str, reached: float | None, **more: Any) -> dict[str, Any]:
    return {
        "run": f"runs/{method}",
        "method": method,
        "task": "digits",
        "network": "nycmesh-paper",
        "preset": "tight",
        "seed": 1,
        "target_reached": reached is not None,
        "time_to_target_s": reached,
        "first_crossing_s": reached,
        "bytes_to_target": None if reached is None else 123_456_789,
        "models_uplink_bytes_to_target": None if reached is None else 45_678_901,
        "final_metric": 0.9111,
        "cloud_epochs": 1054,
        "device_updates": 12_345,
        "updates_dropped": 17,
        "virtual_s": 41_000.0,
        "wall_s": 12.345,
        "bandwidth_bound_share": 0.9876,
        "largest_selection_gap": 0.0,
        "largest_association_gap": 0.0123,
        "convergence": {"K_c": 7, "K_g": 41},
        "warmup_s": 131.0,
        "warmup_bytes": 2_000_000,
        "bytes_total": 150_000_000,
        "bytes": {
            tier: {
                way: {"model": 37_000_000, "gradient": 400_000, "basis": 0, "control": 100_000}
                for way in ("down", "up")
            }
            for tier in ("gateway-cloud", "device-gateway")
        },
        "training": {"calls": 103, "trained": 700, "wasted": 35, "largest_batch": 60},
        "digest": "0123456789abcdef" * 4,
        "order_digest": "fedcba9876543210" * 4,
        **more,
    }


MANIFEST = {
    "task": "digits",
    "network": "nycmesh-paper",
    "devices": 60,
    "settings": {"task": {"target": 0.9}, "warmup": {"charge": True}},
}


def stored(
    where: Path, method: str, reached: float | None = None, *, rows: int = 0, complete: bool = True
) -> RunDirectory:
    run = RunDirectory.create(where / method, {**MANIFEST, "method": method, "seed": 1})
    writer = EpochsWriter(run.epochs)
    for epoch in range(1, rows + 1):
        writer.write((100.0 * epoch, epoch, 20 * epoch, epoch / rows, 1 / epoch, False, 10**6 * epoch, 10**5 * epoch))
    writer.close()
    if complete:
        run.write_summary(summary(method, reached))
    return run
