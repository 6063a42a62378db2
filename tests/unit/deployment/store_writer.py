"""A process that writes to a store until it is killed, and prints the number of each event after its commit.

Event n holds n, an array of `n % 5` sizes whose content follows from n, and a note; so the reader can tell by itself
what event n must look like."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.deployment.store.node_store import Budget, NodeStore

SIZES = (10, 2_000, 40_000, 400_000, 3_000)
"""Bytes: inside the event, inside the event, inside the database, a file, inside the event."""


def event(number: int) -> dict[str, Any]:
    # A third of the models are sent twice: their content must be stored once.
    source = number - number % 3
    model = np.random.default_rng(source).integers(0, 255, SIZES[source % len(SIZES)], dtype=np.uint8)
    model.flags.writeable = False
    return {"number": number, "model": model}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(folder: str, budget: int) -> None:
    with NodeStore.open(Path(folder), Budget(payloads=budget)) as store:
        snapshot, log, _ = store.read()
        number = log[-1]["number"] if log else 0 if snapshot is None else snapshot["number"]
        say(f"ready {number}")
        while True:
            for _ in range(1 + number % 4):
                number += 1
                store.append(event(number))
                store.handled([])
            store.commit()
            say(str(number))
            if number % 7 == 0:
                store.replace(event(number))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
