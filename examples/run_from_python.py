"""Async-HFL from Python: make a run, read it back from disk, and start another run from its model.

Run it from the directory above:

    python examples/run_from_python.py
"""

from __future__ import annotations

import async_hfl


def main() -> None:
    made = async_hfl.run(task="digits", method="async-hfl-plus", network="nycmesh-paper", seed=1)

    run = async_hfl.load_run(made.path)  # any time later, in any process
    hours = run.summary["time_to_target_s"] / 3600
    print(f"{run.path}: {run.manifest['settings']['task']['target']:.0%} after {hours:.2f} simulated hours")
    print("last row:", run.epochs[-1])
    print("uploads mixed by the cloud:", sum(event["reason"] == "mixed" for _, event in run.events("upload")))

    further = async_hfl.run(task="digits", seed=2, start_from=run.model, overrides=["cloud.epochs=5"])
    print("started from that model:", further.epochs[0]["metric"])


if __name__ == "__main__":
    main()
