"""Workers as Ray actors, on this machine (`--on ray`) or on a cluster (`--on ray://HOST:PORT`). Needs async-hfl[ray].

An actor has one core, or a share of a GPU, and does the same as a worker process. It works directly in the sweep's
folder if it can see it (same machine or shared file system). Otherwise it works in a temporary folder: run directories
are sent there to be resumed and sent back when they are complete or paused. Only text and bytes are sent.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.experiments.sweeps.folder import SweepFolder
from async_hfl.experiments.sweeps.work import Assignment, RunStatus, make_runs
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, PoolShape
from async_hfl.journal.run_directory import RUN_FILES
from async_hfl.reports.export.optional_imports import needed

_POLL_S = 0.3
_WIDTH = 6
_PER_GPU = 8


class RayPool:
    def __init__(
        self,
        folder: Path,
        address: str | None = None,
        processes: int | None = None,
        width: int | None = None,
        *,
        share_folder: bool = True,
    ) -> None:
        """Connect to Ray. Without `share_folder` run directories are always sent, even if actors see the folder."""
        ray = _ray()
        self._folder = SweepFolder(folder.absolute()).make()
        self._asked = (processes, width)
        self._started_ray = not ray.is_initialized()
        if self._started_ray:
            try:
                ray.init(address, logging_level="error", log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"--on {address or 'ray'}: cannot connect to Ray ({error})") from error
        resources = ray.cluster_resources()
        self._cores, self._gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        self._token = f"token-{secrets.token_hex(8)}" if share_folder else ""
        if self._token:
            (self._folder.path / "claims" / self._token).touch()

    def shape(self, runs: int) -> PoolShape:
        processes, width = self._asked
        width = width or (_WIDTH if self._gpus else 1)
        most = processes or (min(self._cores, _PER_GPU * self._gpus) if self._gpus else self._cores)
        return PoolShape(max(1, min(most, self._cores, -(-runs // width))), width)

    def start_worker(self, number: int, shape: PoolShape, inbox: Inbox) -> RayWorker:
        ray = _ray()
        share = min(1.0, self._gpus / shape.workers)
        environment = {} if self._gpus else {"env_vars": {"ASYNC_HFL_HOST_DEVICES": "1"}}
        kind = ray.remote(num_cpus=1, num_gpus=share, max_concurrency=3, runtime_env=environment)
        actor = kind(_Actor).remote(str(self._folder.path), self._token)
        return RayWorker(number, actor, self._folder, inbox)

    def close(self) -> None:
        ray = _ray()
        if self._token:
            (self._folder.path / "claims" / self._token).unlink(missing_ok=True)
        if self._started_ray:
            ray.shutdown()


class _Actor:
    """The worker on the side of Ray, on whichever machine Ray places it."""

    def __init__(self, folder: str, token: str) -> None:
        shared = bool(token) and (Path(folder) / "claims" / token).is_file()
        self._own = None if shared else tempfile.TemporaryDirectory(prefix="async-hfl-")
        self._folder = SweepFolder(Path(folder if self._own is None else self._own.name)).make()
        self._unread: list[str] = []
        self._lock = threading.Lock()
        self._paused = threading.Event()

    def is_remote(self) -> bool:
        """True if the actor does not see the folder of the sweep."""
        return self._own is not None

    def do(self, assignments: str, width: int) -> None:
        given = [Assignment(**one) for one in json.loads(assignments)]
        make_runs(given, self._folder, self._report, self._paused.is_set, width)

    def unread(self) -> list[str]:
        with self._lock:
            unread, self._unread = self._unread, []
        return unread

    def pause(self) -> None:
        self._paused.set()

    def take(self, run: str, files: dict[str, bytes]) -> None:
        """Store a run that was started elsewhere."""
        write_files(self._folder.run(run), files)

    def fetch(self, run: str) -> dict[str, bytes]:
        return read_files(self._folder.run(run))

    def _report(self, status: RunStatus) -> None:
        with self._lock:
            self._unread.append(json.dumps(asdict(status)))


class RayWorker:
    def __init__(self, number: int, actor: Any, folder: SweepFolder, inbox: Inbox) -> None:
        self._number, self._actor, self._folder, self._inbox = number, actor, folder, inbox
        self._stopped = False

    def assign(self, assignments: Sequence[Assignment], width: int) -> None:
        threading.Thread(target=self._follow, args=(list(assignments), width), daemon=True).start()

    def pause(self) -> None:
        self._actor.pause.remote()

    def stop(self) -> None:
        ray = _ray()
        self._stopped = True
        ray.kill(self._actor)

    def _follow(self, assignments: list[Assignment], width: int) -> None:
        ray = _ray()
        try:
            with ExitStack() as claims:
                remote = ray.get(self._actor.is_remote.remote())
                if remote:
                    assignments = self._claimed(assignments, claims)
                    self._send(assignments)
                doing = self._actor.do.remote(json.dumps([asdict(one) for one in assignments]), width)
                finished: list[Any] = []
                while not finished:
                    finished, _ = ray.wait([doing], timeout=_POLL_S)
                    self._forward_statuses(remote)
                ray.get(doing)
                self._forward_statuses(remote)
            self._report({"idle": True})
        except Exception as error:  # whatever happened, the runs must be assigned to another worker
            self._report({"died": f"its Ray actor was lost ({type(error).__name__}: {str(error).splitlines()[0]})"})

    def _claimed(self, assignments: list[Assignment], claims: ExitStack) -> list[Assignment]:
        """Claim the runs here, because the actor does not see the folder."""
        mine = []
        for one in assignments:
            if claims.enter_context(self._folder.claimed(one.id)):
                mine.append(one)
            else:
                self._report(asdict(RunStatus(one.id, "elsewhere")))
        return mine

    def _forward_statuses(self, remote: bool) -> None:
        ray = _ray()
        for text in ray.get(self._actor.unread.remote()):
            data = json.loads(text)
            if remote and data["what"] in ("done", "paused"):
                write_files(self._folder.run(data["run"]), ray.get(self._actor.fetch.remote(data["run"])))
            if remote and data["what"] == "failed":
                self._folder.record_failure(data["run"], data["reason"])
            self._report(data)

    def _send(self, assignments: list[Assignment]) -> None:
        ray = _ray()
        for one in assignments:
            if self._folder.state(one.id) == "interrupted" and not one.restart:
                ray.get(self._actor.take.remote(one.id, read_files(self._folder.run(one.id))))

    def _report(self, data: dict[str, Any]) -> None:
        if not self._stopped:
            self._inbox.put(Message(self._number, data))


def _ray() -> Any:
    return needed("ray", "ray", "--on ray")


def read_files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(run.iterdir()) if file.name in RUN_FILES}


def write_files(run: Path, files: dict[str, bytes]) -> None:
    """Write the files of a run, the summary last, because it marks the run as complete."""
    run.mkdir(parents=True, exist_ok=True)
    for name in sorted(files.keys() & RUN_FILES, key=lambda name: (name == "summary.json", name != "manifest.json")):
        partial = (run / name).with_suffix(".part")
        partial.write_bytes(files[name])
        partial.replace(run / name)
