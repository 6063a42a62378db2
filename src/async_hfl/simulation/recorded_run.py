"""A simulated run that is recorded in a run directory: its journal, its checkpoints, its result.

A run that was killed at any moment can be resumed from its last checkpoint, and ends as if it had not been killed.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.core.learner import Accelerated
from async_hfl.core.maths.milestones import Reached
from async_hfl.core.protocol.records import EpochRecord, JobRecord, Record
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.journal import checkpoint
from async_hfl.journal.events_file import EventsWriter, truncate
from async_hfl.journal.model_file import save_model
from async_hfl.journal.run_directory import EpochsWriter, RunDirectory
from async_hfl.simulation.accounting.byte_counts import Spent
from async_hfl.simulation.accounting.device_times import energy
from async_hfl.simulation.accounting.result import RunTotals, Tally, divergence, result_of
from async_hfl.simulation.pausing import PauseRequest
from async_hfl.simulation.simulator import Simulator
from async_hfl.simulation.world import World

EPOCHS, UPDATES_PER_DEVICE = 10, 10
"""Least distance between checkpoints, unless a setting gives another. A checkpoint holds every device; waiting for some
updates of each keeps its cost at O(1) per update at any scale."""


class _GarbageCollection:
    """Garbage collection during runs. The collector is one for the whole process, and so is the instance below.

    A run creates millions of small objects and hardly any cycle. The default, a search for cycles after every 700 new
    objects and through every device of the network, would take longer than the events themselves.

    The nodes of a run refer to each other, so only a full collection frees their models and data. It is made before a
    run, if earlier ones have taken long enough for its cost not to matter."""

    _WORTH_S = 2.0

    def __init__(self) -> None:
        self._ran_s = 0.0
        """Duration of the runs since the last collection."""

    @contextmanager
    def rare(self) -> Iterator[None]:
        if self._ran_s >= self._WORTH_S:
            self._ran_s = 0.0
            gc.collect()
        began, thresholds = time.perf_counter(), gc.get_threshold()
        gc.freeze()
        gc.set_threshold(200_000, 20, 20)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            self._ran_s += time.perf_counter() - began


_garbage_collection = _GarbageCollection()


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run after a cloud epoch, for display."""

    at: float
    epoch: int
    metric: float
    updates: int
    """Device updates so far, as in the summary."""
    bytes_total: int
    updates_per_s: float
    target_reached: bool
    loss: float
    bytes_models_up: int


class RecordedRun:
    """A simulator and the run directory that it is recorded in. Implements `Journal` for the simulator."""

    def __init__(
        self,
        world: World,
        directory: RunDirectory,
        *,
        checkpoint_epochs: int | None = None,
        checkpoint_updates: int = UPDATES_PER_DEVICE,
        ladder: tuple[float, ...] = (),
    ) -> None:
        """Begin a run, or resume it if the directory has a checkpoint.

        `checkpoint_epochs`: epochs between checkpoints; None: ten, and `checkpoint_updates` of each device. `ladder`:
        the targets that the summary looks up."""
        self.world = world
        self.directory = directory
        self.checkpoint_epochs = checkpoint_epochs
        self.checkpoint_updates = checkpoint_updates
        self.ladder = ladder
        self.tally = Tally()
        self._resumed = directory.checkpoint.is_file()
        saved: dict[str, list[Plain]] = {}
        known = ""
        if self._resumed:
            learner = world.learner
            to_device = learner.to_device if isinstance(learner, Accelerated) else None
            saved = checkpoint.load(directory.checkpoint, to_device)
            (recorded,) = saved["recorded_run"]
            truncate(directory.events, recorded["events_bytes"])
            truncate(directory.epochs, recorded["epochs_bytes"])
            known = recorded["digest"]
            self.tally = from_plain(recorded["tally"])
            if world.decision_times is not None:
                world.decision_times.restore(recorded["decision_times"])
        else:
            # A new run, or one that was killed before its first checkpoint.
            directory.events.unlink(missing_ok=True)
            directory.epochs.unlink(missing_ok=True)
        self.events = EventsWriter(directory.events)
        self.epochs = EpochsWriter(directory.epochs)
        self.write_sent: Callable[..., None] = self.events.write_sent
        self.simulator = Simulator(world, self)
        if self._resumed:
            if self.events.digests()[0] != known:
                self.close()
                raise RunDirectoryError(f"{directory.events}: changed since its checkpoint; the run cannot be resumed")
            self.simulator.restore(saved)
        self._pausing = False
        self._pause: Callable[[], bool] | None = None
        self._on_epoch: Callable[[Progress], None] | None = None
        self._began = 0.0
        self._began_updates = 0

    def close(self) -> None:
        self.events.close()
        self.epochs.close()

    # The journal -------------------------------------------------------------------------------------------------

    def write(self, record: Record) -> None:
        self.events.write(record)
        self.tally.note(record, self.simulator.spent)
        if isinstance(record, JobRecord) and math.isinf(self.world.cloud.config.time_limit):
            # Without a time limit it would never end; with one it is a result, which costs the whole time.
            told = divergence(self.tally, len(self.world.devices))
            if told is not None:
                raise UserError(told)

    def note_epoch(self, record: EpochRecord, spent: Spent) -> None:
        tally, updates = self.tally, self.tally.device_updates
        at, epoch, metric, loss, reached = record.at, record.epoch, record.metric, record.loss, record.target_reached
        self.epochs.write((at, epoch, updates, metric, loss, reached, spent.total, spent.models_up))
        tally.note_epoch(record)
        epochs, since = epoch - tally.checkpoint_epoch, updates - tally.checkpoint_updates
        if self.checkpoint_epochs is not None:
            due = epochs >= self.checkpoint_epochs
        else:
            due = epochs >= EPOCHS and since >= self.checkpoint_updates * len(self.world.devices)
        if due:
            self.request_checkpoint()
        if self._on_epoch is not None:
            speed = (updates - self._began_updates) / max(time.perf_counter() - self._began, 1e-9)
            self._on_epoch(Progress(at, epoch, metric, updates, spent.total, speed, reached, loss, spent.models_up))
        if self._pause is not None and self._pause():
            self._pausing = True
            self.request_checkpoint()

    # Running -----------------------------------------------------------------------------------------------------

    def run(
        self, on_epoch: Callable[[Progress], None] | None = None, pause: Callable[[], bool] | None = None
    ) -> dict[str, Any] | None:
        """Run to the end and return the result for the summary file, to which the caller adds.

        `pause` is called after every evaluation; if it returns true, a checkpoint is saved and None returned. A
        `PauseRequest` is looked at before every event, and a wait for training is given up for it.
        """
        self._on_epoch, self._pause = on_epoch, pause
        request = pause if isinstance(pause, PauseRequest) else None
        if request is not None:
            self.simulator.pool.waiting = request.waiting
        self._began, self._began_updates = time.perf_counter(), self.tally.device_updates
        wall_before = self.tally.wall_s
        if not self._resumed:
            self.simulator.start()
        with _garbage_collection.rare():
            while True:
                over = self.simulator.run(request)
                self.tally.wall_s = wall_before + time.perf_counter() - self._began
                if over:
                    break
                requested = request is not None and request()
                self._save(train=not requested)
                if requested or self._pausing:
                    return None
        digest, order_digest = self.events.digests()
        self.events.sync()
        self.epochs.sync()
        self.close()
        save_model(self.directory.model, self.world.learner.layout, self.world.cloud.state.weights)
        if self.world.decision_times is not None:
            decisions = self.world.decision_times.summary()
            self.directory.write_timings({"decisions": decisions, "wall_s": self.tally.wall_s})
        result = {**result_of(self._totals(), self.tally), **self._energy()}
        journal = self.directory.journal_records(digest)
        diverged = divergence(self.tally, len(self.world.devices))
        return {**result, "diverged": diverged, "digest": digest, "order_digest": order_digest, "journal": journal}

    def _totals(self) -> RunTotals:
        simulator, pool, cloud = self.simulator, self.simulator.pool.counts, self.world.cloud
        finished, spent = simulator.finished_at, simulator.byte_counts.spent()
        assert finished is not None
        return RunTotals(
            simulator.byte_counts,
            self.directory.track(Reached(finished, *spent, self.tally.device_updates)),
            cloud.config.target,
            self.ladder,
            cloud.state.epoch,
            simulator.finished_at,
            pool.calls,
            pool.trained,
            pool.wasted,
            pool.largest,
            self.world.codec,
        )

    def _energy(self) -> dict[str, Any]:
        """Write the times and the energy of each device to its file, and return the totals for the summary."""
        if self.world.fleet is None:
            return {}
        times = self.simulator.times
        joules, short = energy(times, self.world.fleet)
        table = np.column_stack([*times.columns(), joules])
        self.directory.write_devices(row.tolist() for row in table)
        return {"energy": short}

    def request_checkpoint(self) -> None:
        """Save a checkpoint before the next event."""
        self.simulator.pause = True

    def _save(self, *, train: bool) -> None:
        self.simulator.pause = False
        tally = self.tally
        if tally.last is not None:
            tally.checkpoint_epoch, tally.checkpoint_updates = tally.last.epoch, tally.device_updates
        recorded = {
            "tally": to_plain(tally),
            "events_bytes": self.events.sync(),
            "digest": self.events.digests()[0],
            "epochs_bytes": self.epochs.sync(),
            "decision_times": None if self.world.decision_times is None else self.world.decision_times.snapshot(),
        }
        checkpoint.save(
            self.directory.checkpoint, chain([("recorded_run", recorded)], self.simulator.snapshot(train=train))
        )
        save_model(self.directory.model, self.world.learner.layout, self.world.cloud.state.weights)
