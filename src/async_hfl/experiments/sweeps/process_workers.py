"""Workers as processes of this machine: a fresh interpreter each, spoken to in lines of JSON.

On processors a member is one process with its share of the cores and one run at a time: runs side by side need no
waiting for one another. On a GPU a few processes share each card, and each of them has several runs that share an
engine, so that the card is full while Python simulates.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from async_hfl.core.errors import UserError
from async_hfl.experiments.sweeps.work import Assignment
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, Shape
from async_hfl.learning.engine.runtime import HOST_DEVICES_VARIABLE, accelerator_installed, usable_cores

_WORKER = (sys.executable, "-m", "async_hfl.experiments.sweeps.worker")
_PER_CARD = 8
"""Processes on a GPU, where there are cores for them: one alone is kept waiting by its own Python."""
_CORES_EACH = 2
_WIDTH = 6
_PROBE_S = 300


class ProcessPool:
    def __init__(self, folder: Path, processes: int | None = None, width: int | None = None) -> None:
        for name, number in (("--processes", processes), ("--together", width)):
            if number is not None and number < 1:
                raise UserError(f"{name} {number}: must be at least 1")
        self._folder = folder
        self._asked = (processes, width)
        self._cards = _cards() if accelerator_installed() else 0

    def shape(self, runs: int) -> Shape:
        processes, width = self._asked
        if self._cards:
            each = max(1, min(_PER_CARD, usable_cores() // (_CORES_EACH * self._cards)))
            members, width = processes or each * self._cards, width or _WIDTH
            return Shape(max(1, min(members, -(-runs // width))), width)
        width = width or 1
        return Shape(max(1, min(processes or usable_cores(), -(-runs // width))), width)

    def hire(self, number: int, shape: Shape, inbox: Inbox) -> ProcessWorker:
        given = dict(os.environ)
        if self._cards:
            given.setdefault("CUDA_VISIBLE_DEVICES", str(number % self._cards))
            if shape.members > self._cards:
                given.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        else:
            given.setdefault(HOST_DEVICES_VARIABLE, str(max(1, usable_cores() // shape.members)))
        return ProcessWorker(number, self._folder, inbox, given)

    def close(self) -> None:
        """Nothing is shared by the processes."""


class ProcessWorker:
    def __init__(self, number: int, folder: Path, inbox: Inbox, environment: Mapping[str, str]) -> None:
        self._number = number
        self._inbox = inbox
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            _WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
            text=True,
            start_new_session=True,  # Ctrl-C is for the sweep, which then has its members pause
        )
        self._order({"folder": str(folder)})
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def give(self, assignments: Sequence[Assignment], width: int) -> None:
        self._order({"do": [asdict(one) for one in assignments], "width": width})

    def pause(self) -> None:
        self._order({"pause": True})

    def stop(self) -> None:
        self._process.kill()
        self._listener.join()

    def _order(self, data: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has died; the listener says so

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            data = json.loads(line)
            if "ready" not in data:
                self._inbox.put(Message(self._number, data))
        code = self._process.wait()
        self._inbox.put(Message(self._number, {"died": self._why(code)}))
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            with contextlib.suppress(OSError):  # what could not be written to a dead process
                file.close()  # type: ignore[union-attr]

    def _why(self, code: int) -> str:
        self._complaints.seek(0)
        last = self._complaints.read().decode(errors="replace").strip().splitlines()[-1:]
        if code >= 0:
            how = f"ended with exit code {code}"
        else:
            name = signal.Signals(-code).name
            how = f"was killed ({name}{', perhaps for want of memory' if name == 'SIGKILL' else ''})"
        return f"its process {how}" + (f": {last[0]}" if last else "")


def _cards() -> int:
    """GPUs that a worker sees; asked in a process of its own, so that this one never holds one."""
    script = "from async_hfl.learning.engine.runtime import platform_and_devices as p; print(*p())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=_PROBE_S, check=True
        )
        kind, number = done.stdout.split()[-2:]
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
    return 0 if kind == "cpu" else int(number)
