"""A worker process: `python -m async_hfl.experiments.sweeps.worker`. Lines of JSON in, lines of JSON out.

In:   {"folder": PATH}                                first, once
      {"do": [{"id", "arguments", "anew"}], "width"}  again and again
      {"pause": true}                                 checkpoint and come back
Out:  {"ready": "cpu" | "gpu" | …, "devices": N}, then the news of every run, and {"idle": true} after each `do`.

When the other end of the pipe closes, whoever gave the orders is dead: so is the worker, at once. Its runs have their
checkpoints, and its claims end with it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from typing import Any

from async_hfl.experiments.sweeps.work import Assignment, do, folder_at
from async_hfl.learning.engine.runtime import platform_and_devices


def main() -> None:
    # What the user's code prints must not get among our lines.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    speaking = threading.Lock()

    def say(data: dict[str, Any]) -> None:
        with speaking:
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
    folder = folder_at(orders.get()["folder"])
    say(_ready())
    while True:
        order = orders.get()
        do(
            [Assignment(**one) for one in order["do"]],
            folder,
            lambda news: say(asdict(news)),
            paused.is_set,
            order["width"],
        )
        say({"idle": True})


def _ready() -> dict[str, Any]:
    kind, devices = platform_and_devices()
    return {"ready": kind, "devices": devices}


if __name__ == "__main__":
    main()
