"""The protocol between the benchmark and the process of an engine: one line of JSON per request and answer.

Standard output is reserved for the protocol; output of libraries goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
import numpy.typing as npt

from engine_peers import memory
from engine_peers.work import Work, load_work


class Engine(Protocol):
    """An engine that trains the first clients of a workload."""

    def train(self, clients: int) -> None:
        """Train this many clients; return when all are done."""

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        """Return the trained weights (clients, size), flat in the layout of the workload."""

    def device_bytes(self) -> int | None:
        """Return the peak memory on an accelerator; None on a CPU."""

    def close(self) -> None: ...


Make = Callable[[Work, dict[str, Any]], Engine]


class Channel:
    def __init__(self) -> None:
        sys.stdout.flush()
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._in = sys.stdin

    def receive(self) -> dict[str, Any] | None:
        line = self._in.readline()
        return json.loads(line) if line else None

    def send(self, **answer: Any) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


def serve(channel: Channel, make: Make, *, peak: Callable[[], dict[str, float]] | None = None, **about: Any) -> None:
    """Answer requests until the input ends. `peak` measures matrix products; `about` is sent once, at the start."""
    channel.send(ready=True, **about)
    engine: Engine | None = None
    before = 0
    while (request := channel.receive()) is not None:
        match request.pop("do"):
            case "load":
                memory.release()
                before = memory.resident_bytes()
                began = time.perf_counter()
                engine = make(load_work(request.pop("folder")), request)
                channel.send(seconds=time.perf_counter() - began)
            case "train":
                assert engine is not None
                channel.send(**_timed(engine, request["clients"], request.get("at_least", 0.0)))
            case "forget":
                # Memory that compilation took is not counted as memory of training.
                memory.release()
                memory.reset_peak()
                channel.send()
            case "weights":
                assert engine is not None
                began = time.perf_counter()
                found = engine.weights(request["clients"])
                channel.send(seconds=time.perf_counter() - began)
                np.save(Path(request["path"]), found[: request["keep"]])
                channel.send()
            case "memory":
                assert engine is not None
                on_device = engine.device_bytes()
                channel.send(peak_bytes=memory.peak_resident_bytes() - before if on_device is None else on_device)
            case "unload":
                if engine is not None:
                    engine.close()
                engine = None
                channel.send()
            case "peak":
                channel.send(**(peak() if peak else {}))
            case unknown:
                raise ValueError(unknown)
    if engine is not None:
        engine.close()


def _timed(engine: Engine, clients: int, at_least: float) -> dict[str, float]:
    """Repeat the call until `at_least` seconds have passed: a short call is not measured precisely."""
    began = time.perf_counter()
    calls = 0
    while True:
        engine.train(clients)
        calls += 1
        seconds = time.perf_counter() - began
        if seconds >= at_least:
            return {"updates": calls * clients, "seconds": seconds}
