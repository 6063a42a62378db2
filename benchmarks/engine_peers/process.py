"""The benchmark's side of the protocol with the process of an engine."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).resolve().parents[1]
_SOURCES = _BENCHMARKS.parent / "src"
_EXIT_S = 10.0
_LATE_EXIT_S = 0.3
"""Seconds that a process has to exit before it is killed: usually, and after the time limit of the benchmark."""


class EngineFailed(Exception):
    """The process could not be started, died, or took too long."""


class EngineProcess:
    """The process of an engine, started at once; `ready` waits for it. Use it as a context manager."""

    def __init__(self, name: str, python: str, options: dict[str, Any], patience: float, last: float) -> None:
        """`patience`: timeout of an answer in seconds. `last`: monotonic time at which every wait ends."""
        self.name = name
        self._patience = patience
        self._last = last
        # Not a pipe: nobody would read it while the benchmark waits for an answer, and a full pipe blocks the process.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        try:
            self._process = subprocess.Popen(
                [python, "-m", "engine_peers.worker", name, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
            )
        except OSError as problem:
            self._errors.close()
            raise EngineFailed(f"{python}: {problem.strerror}") from problem
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._received = b""

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ready(self) -> dict[str, Any]:
        answer = self.receive()
        if not answer.pop("ready"):
            raise EngineFailed(answer["reason"])
        return answer

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as problem:
            raise EngineFailed(self._last_error()) from problem
        return self.receive()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_EXIT_S if time.monotonic() < self._last else _LATE_EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = min(time.monotonic() + self._patience, self._last)
        while b"\n" not in self._received:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                if time.monotonic() >= self._last:
                    raise EngineFailed("the time limit of the benchmark is reached")
                raise EngineFailed(f"no answer within {self._patience:.0f} s")
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                raise EngineFailed(self._last_error())
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "ended without an error message"


def _environment() -> dict[str, str]:
    paths = [str(_BENCHMARKS), str(_SOURCES), os.environ.get("PYTHONPATH", "")]
    return {
        # Several libraries share an accelerator here: none may take all of its memory in advance.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
