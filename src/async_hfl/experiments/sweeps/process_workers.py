"""Workers as processes of this machine: one fresh interpreter each, which exchanges lines of JSON with the sweep.

On CPUs each worker is bound to its share of the cores and makes one run at a time, so that runs never wait for one
another. A GPU is shared by several processes, each with several runs on one engine, so that it stays busy while Python
simulates.
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from async_hfl.core.errors import UserError
from async_hfl.experiments.sweeps.work import Assignment
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, PoolShape
from async_hfl.learning.engine.runtime import HOST_DEVICES_VARIABLE, accelerator_installed, usable_cores

_WORKER = (sys.executable, "-m", "async_hfl.experiments.sweeps.worker")
_PER_GPU = 8
"""The most processes on a GPU; a single one would often leave it idle while its Python code runs."""
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
        self._gpus = _count_gpus() if accelerator_installed() else 0

    def shape(self, runs: int) -> PoolShape:
        processes, width = self._asked
        if self._gpus:
            each = max(1, min(_PER_GPU, usable_cores() // (_CORES_EACH * self._gpus)))
            workers, width = processes or each * self._gpus, width or _WIDTH
            return PoolShape(max(1, min(workers, -(-runs // width))), width)
        width = width or 1
        return PoolShape(max(1, min(processes or usable_cores(), -(-runs // width))), width)

    def start_worker(self, number: int, shape: PoolShape, inbox: Inbox) -> ProcessWorker:
        given, cores = dict(os.environ), set[int]()
        if self._gpus:
            given.setdefault("CUDA_VISIBLE_DEVICES", str(number % self._gpus))
            if shape.workers > self._gpus:
                given.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        else:
            given.setdefault(HOST_DEVICES_VARIABLE, str(max(1, usable_cores() // shape.workers)))
            cores = share_of_cores(number, shape.workers)
        return ProcessWorker(number, self._folder, inbox, given, cores)

    def close(self) -> None:
        """Do nothing: the processes share no resource."""


class ProcessWorker:
    def __init__(
        self,
        number: int,
        folder: Path,
        inbox: Inbox,
        environment: Mapping[str, str],
        cores: Collection[int] = (),
    ) -> None:
        self._number = number
        self._inbox = inbox
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process runs)
        with _bound_to(cores):
            self._process = subprocess.Popen(
                _WORKER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the sweep only, which then pauses its workers
            )
        self._send({"folder": str(folder)})
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def assign(self, assignments: Sequence[Assignment], width: int) -> None:
        self._send({"do": [asdict(one) for one in assignments], "width": width})

    def pause(self) -> None:
        self._send({"pause": True})

    def stop(self) -> None:
        self._process.kill()
        self._listener.join()

    def _send(self, data: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # the process has died; the listener reports it

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            data = json.loads(line)
            if "ready" not in data:
                self._inbox.put(Message(self._number, data))
        code = self._process.wait()
        self._inbox.put(Message(self._number, {"died": self._reason(code)}))
        for file in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(OSError):  # unsent data for a process that has died
                file.close()  # type: ignore[union-attr]

    def _reason(self, code: int) -> str:
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        if code >= 0:
            how = f"ended with exit code {code}"
        else:
            name = signal.Signals(-code).name
            how = f"was killed ({name}{', perhaps out of memory' if name == 'SIGKILL' else ''})"
        return f"its process {how}" + (f": {last[0]}" if last else "")


def share_of_cores(number: int, workers: int) -> set[int]:
    """Return the cores of a worker: as many for each, and the same again if there are more workers than cores."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // workers)
    first = number % workers * each
    return {cores[place % len(cores)] for place in range(first, first + each)}


@contextlib.contextmanager
def _bound_to(cores: Collection[int]) -> Iterator[None]:
    """Bind this thread to these cores, so that a process that it starts inherits them: libraries create their threads
    while they are imported, and threads that exist already would not follow."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _count_gpus() -> int:
    """Count the GPUs that a worker sees, in a separate process, so that this one never occupies a GPU."""
    script = "from async_hfl.learning.engine.runtime import platform_and_devices as p; print(*p())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=_PROBE_S, check=True
        )
        kind, number = done.stdout.split()[-2:]
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
    return 0 if kind == "cpu" else int(number)
