"""The protocol between the benchmark and an engine's process: one line of JSON in each direction.

Standard output is reserved for it; output of libraries is redirected to standard error.
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
    """Something that trains the first so many clients of a work."""

    def train(self, clients: int) -> None:
        """Returns when all of it is done."""

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        """(clients, size): where each client ends, flat in the work's layout."""

    def device_bytes(self) -> int | None:
        """The most an accelerator held; None on a processor."""

    def close(self) -> None: ...


Make = Callable[[Work, dict[str, Any]], Engine]


class Channel:
    def __init__(self) -> None:
        sys.stdout.flush()
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._in = sys.stdin

    def hear(self) -> dict[str, Any] | None:
        line = self._in.readline()
        return json.loads(line) if line else None

    def say(self, **answer: Any) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


def serve(channel: Channel, make: Make, *, peak: Callable[[], dict[str, float]] | None = None, **about: Any) -> None:
    """Answer until the conversation ends. `peak` measures matrix products; `about` is told once."""
    channel.say(ready=True, **about)
    engine: Engine | None = None
    before = 0
    while (request := channel.hear()) is not None:
        match request.pop("do"):
            case "load":
                memory.give_back()
                before = memory.resident_bytes()
                began = time.perf_counter()
                engine = make(load_work(request.pop("folder")), request)
                channel.say(seconds=time.perf_counter() - began)
            case "train":
                assert engine is not None
                channel.say(**_timed(engine, request["clients"], request.get("at_least", 0.0)))
            case "forget":
                # What compiling took and the allocator still holds is not what training takes.
                memory.give_back()
                memory.forget_most()
                channel.say()
            case "weights":
                assert engine is not None
                began = time.perf_counter()
                found = engine.weights(request["clients"])
                channel.say(seconds=time.perf_counter() - began)
                np.save(Path(request["path"]), found[: request["keep"]])
                channel.say()
            case "memory":
                assert engine is not None
                on_device = engine.device_bytes()
                channel.say(peak_bytes=memory.most_resident_bytes() - before if on_device is None else on_device)
            case "unload":
                if engine is not None:
                    engine.close()
                engine = None
                channel.say()
            case "peak":
                channel.say(**(peak() if peak else {}))
            case unknown:
                raise ValueError(unknown)
    if engine is not None:
        engine.close()


def _timed(engine: Engine, clients: int, at_least: float) -> dict[str, float]:
    """Calls are repeated until they last that many seconds: short ones say little."""
    began = time.perf_counter()
    calls = 0
    while True:
        engine.train(clients)
        calls += 1
        seconds = time.perf_counter() - began
        if seconds >= at_least:
            return {"updates": calls * clients, "seconds": seconds}
