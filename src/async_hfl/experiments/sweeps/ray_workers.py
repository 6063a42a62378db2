"""Workers as Ray's actors: on this machine (`--on ray`) or on a cluster (`--on ray://HOST:PORT`). Wants async-hfl[ray].

An actor has one core, or its part of a GPU, and does what a worker process does. Where it sees the sweep's folder (one
machine, or a shared file system) it works in it. Elsewhere it works in a folder of its own: run directories travel
there to be resumed and come back when they are done or paused. Only text and bytes travel.
"""

from __future__ import annotations

import importlib
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
from async_hfl.experiments.sweeps.work import Assignment, News, do, folder_at
from async_hfl.experiments.sweeps.worker_pool import Inbox, Message, Shape
from async_hfl.journal.run_directory import RUN_FILES

_LOOK_S = 0.3
_WIDTH = 6
_PER_CARD = 8


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
        """`share_folder` False: runs travel even where the actors would see the folder."""
        ray = _ray()
        self._folder = SweepFolder(folder.absolute())
        self._folder.make()
        self._asked = (processes, width)
        self._began = not ray.is_initialized()
        if self._began:
            try:
                ray.init(address, logging_level="error", log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(f"--on {address or 'ray'}: no Ray there ({error})") from error
        there = ray.cluster_resources()
        self._cores, self._cards = int(there.get("CPU", 1)), int(there.get("GPU", 0))
        self._token = f"token-{secrets.token_hex(8)}" if share_folder else ""
        if self._token:
            (self._folder.path / "claims" / self._token).touch()

    def shape(self, runs: int) -> Shape:
        processes, width = self._asked
        width = width or (_WIDTH if self._cards else 1)
        most = processes or (min(self._cores, _PER_CARD * self._cards) if self._cards else self._cores)
        return Shape(max(1, min(most, self._cores, -(-runs // width))), width)

    def hire(self, number: int, shape: Shape, inbox: Inbox) -> RayWorker:
        ray = _ray()

        cards = self._cards / shape.members if self._cards else 0
        part = min(1.0, cards) if cards < 1 else 1.0
        environment = {} if self._cards else {"env_vars": {"ASYNC_HFL_HOST_DEVICES": "1"}}
        kind = ray.remote(num_cpus=1, num_gpus=part if self._cards else 0, max_concurrency=3, runtime_env=environment)
        actor = kind(_Actor).remote(str(self._folder.path), self._token)
        return RayWorker(number, actor, self._folder, inbox)

    def close(self) -> None:
        ray = _ray()

        if self._token:
            (self._folder.path / "claims" / self._token).unlink(missing_ok=True)
        if self._began:
            ray.shutdown()


class _Actor:
    """Lives where Ray puts it."""

    def __init__(self, folder: str, token: str) -> None:
        shared = bool(token) and (Path(folder) / "claims" / token).is_file()
        self._own = None if shared else tempfile.TemporaryDirectory(prefix="async-hfl-")
        self._folder = folder_at(folder if self._own is None else self._own.name)
        self._news: list[str] = []
        self._speaking = threading.Lock()
        self._paused = threading.Event()

    def travels(self) -> bool:
        return self._own is not None

    def do(self, assignments: str, width: int) -> None:
        given = [Assignment(**one) for one in json.loads(assignments)]
        do(given, self._folder, self._tell, self._paused.is_set, width)

    def news(self) -> list[str]:
        with self._speaking:
            told, self._news = self._news, []
        return told

    def pause(self) -> None:
        self._paused.set()

    def take(self, run: str, files: dict[str, bytes]) -> None:
        """A run that was begun elsewhere."""
        write_files(self._folder.run(run), files)

    def fetch(self, run: str) -> dict[str, bytes]:
        return read_files(self._folder.run(run))

    def _tell(self, news: News) -> None:
        with self._speaking:
            self._news.append(json.dumps(asdict(news)))


class RayWorker:
    def __init__(self, number: int, actor: Any, folder: SweepFolder, inbox: Inbox) -> None:
        self._number, self._actor, self._folder, self._inbox = number, actor, folder, inbox
        self._stopped = False

    def give(self, assignments: Sequence[Assignment], width: int) -> None:
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
                travels = ray.get(self._actor.travels.remote())
                if travels:
                    assignments = self._claimed(assignments, claims)
                    self._send(assignments)
                doing = self._actor.do.remote(json.dumps([asdict(one) for one in assignments]), width)
                finished: list[Any] = []
                while not finished:
                    finished, _ = ray.wait([doing], timeout=_LOOK_S)
                    self._hear_all(travels)
                ray.get(doing)
                self._hear_all(travels)
            self._say({"idle": True})
        except Exception as error:  # whatever happened to the actor, its runs must be given to another
            self._say({"died": f"its Ray actor was lost ({type(error).__name__}: {str(error).splitlines()[0]})"})

    def _claimed(self, assignments: list[Assignment], claims: ExitStack) -> list[Assignment]:
        """The actor cannot claim them in a folder that it does not see."""
        mine = []
        for one in assignments:
            if claims.enter_context(self._folder.claimed(one.id)):
                mine.append(one)
            else:
                self._say(asdict(News(one.id, "elsewhere")))
        return mine

    def _hear_all(self, travels: bool) -> None:
        ray = _ray()
        for text in ray.get(self._actor.news.remote()):
            data = json.loads(text)
            if travels and data["what"] in ("done", "paused"):
                write_files(self._folder.run(data["run"]), ray.get(self._actor.fetch.remote(data["run"])))
            if travels and data["what"] == "failed":
                self._folder.failed(data["run"], data["reason"])
            self._say(data)

    def _send(self, assignments: list[Assignment]) -> None:
        ray = _ray()

        for one in assignments:
            if self._folder.state(one.id) == "cut" and not one.anew:
                ray.get(self._actor.take.remote(one.id, read_files(self._folder.run(one.id))))

    def _say(self, data: dict[str, Any]) -> None:
        if not self._stopped:
            self._inbox.put(Message(self._number, data))


def _ray() -> Any:
    """An extra, and heavy: only whoever asks for it needs it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError("--on ray needs Ray, which is not installed; pip install 'async-hfl[ray]'") from error


def read_files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(run.iterdir()) if file.name in RUN_FILES}


def write_files(run: Path, files: dict[str, bytes]) -> None:
    """The summary last: only then is the run done."""
    run.mkdir(parents=True, exist_ok=True)
    for name in sorted(files.keys() & RUN_FILES, key=lambda name: (name == "summary.json", name != "manifest.json")):
        beside = (run / name).with_suffix(".part")
        beside.write_bytes(files[name])
        beside.replace(run / name)
