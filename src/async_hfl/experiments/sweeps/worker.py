"""A worker process, `python -m async_hfl.experiments.sweeps.worker`, which reads and writes lines of JSON.

In:   {"folder": PATH}                                   first, once
      {"do": [{"id", "arguments", "restart"}], "width"}  repeatedly
      {"pause": true}                                    checkpoint and stop
Out:  {"ready": "cpu" | "gpu" | …, "devices": N}, then the status of every run, and {"idle": true} after each `do`.

The worker exits at once when stdin closes, because the sweep is then gone. Its runs have their checkpoints, and its
claims are released with the process.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.work import Assignment, make_runs
from async_hfl.learning.engine.runtime import platform_and_devices


def main() -> None:
    # Output of the user's code must not mix with the protocol: redirect stdout to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    writing = threading.Lock()

    def write(data: dict[str, Any]) -> None:
        with writing:
            out.write(json.dumps(data) + "\n")
            out.flush()

    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    paused = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            order = json.loads(line)
            if "pause" in order:
                paused.set()
            else:
                orders.put(order)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    folder = SweepFolder(Path(orders.get()["folder"])).make()
    kind, devices = platform_and_devices()
    write({"ready": kind, "devices": devices})
    while True:
        order = orders.get()
        make_runs(
            [Assignment(**one) for one in order["do"]],
            folder,
            lambda status: write(asdict(status)),
            paused.is_set,
            order["width"],
        )
        write({"idle": True})


if __name__ == "__main__":
    main()
