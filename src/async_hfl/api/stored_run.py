"""A run directory as an object: its result, its records, its tables and its figure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.experiment import RunGroup
from async_hfl.reports.figures.learning_curves import groups_figure
from async_hfl.reports.output import writing
from async_hfl.reports.terminal.notebook import as_html
from async_hfl.reports.terminal.run_summary import headline, summary_table

_MANIFEST_FIELDS = ("task", "method", "network", "preset", "seed", "settings", "start_from", "user_files", "versions")
RESULT_FIELDS = (
    *("run", "method", "task", "network", "seed", "target_reached", "time_to_target_s", "bytes_to_target"),
    *("final_metric", "cloud_epochs", "device_updates", "updates_dropped"),
    *("virtual_s", "wall_s", "digest", "order_digest"),
)
"""The part of a run's summary that `--json` prints."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run directory, complete or not. At a prompt it prints itself in a line, in a notebook as a table."""

    directory: RunDirectory

    def __repr__(self) -> str:
        return f"<Run {self.path}: {headline(self.manifest, self.directory.read_summary())}>"

    def _repr_html_(self) -> str:
        found = self.directory.read_summary()
        return as_html(Text(repr(self)) if found is None else summary_table(self.manifest, {**found, "run": self.path}))

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def manifest(self) -> dict[str, Any]:
        return self.directory.read_manifest()

    @property
    def complete(self) -> bool:
        """True if the run is over and its journal has all its bytes."""
        return self.directory.summary.is_file() and self.directory.damage() is None

    @property
    def summary(self) -> dict[str, Any]:
        """The result of a run that is over, even if its journal has lost data since."""
        found = self.directory.read_summary()
        if found is None:
            raise RunDirectoryError(f"{self.path}: not complete; `async-hfl resume {self.path}` continues it")
        return {**found, "run": str(self.path)}  # the directory may have been moved

    @property
    def epochs(self) -> list[dict[str, float]]:
        """One row per evaluated cloud epoch."""
        return list(self.directory.read_epochs())

    def events(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Iterate over the records as (kind, fields)."""
        return self.directory.read_events(*kinds)

    def frame(self, table: str) -> Any:
        """Return a table as a pandas data frame (needs async-hfl[frames]): epochs, classes, jobs, uploads, selections,
        associations, moves, life, messages, devices or settings."""
        from async_hfl.reports.export.table_formats import data_frame

        return data_frame(self.directory, table)

    def epochs_frame(self) -> Any:
        """One row per evaluated cloud epoch."""
        return self.frame("epochs")

    def jobs_frame(self) -> Any:
        """One row per finished job: device, times, staleness, reason of its end."""
        return self.frame("jobs")

    def uploads_frame(self) -> Any:
        """One row per model that a gateway sent to the cloud."""
        return self.frame("uploads")

    def selections_frame(self) -> Any:
        """One row per selection at a gateway."""
        return self.frame("selections")

    def messages_frame(self) -> Any:
        """One row per message, with its bytes by kind."""
        return self.frame("messages")

    def devices_frame(self) -> Any:
        """One row per device: times, energy, metric of the final model on its own data."""
        return self.frame("devices")

    @property
    def model(self) -> Path:
        """The newest global model as a safetensors file."""
        if not self.directory.model.is_file():
            raise RunDirectoryError(f"{self.path}: no model yet; the first checkpoint writes it")
        return self.directory.model

    def save_model(self, out: str | Path) -> Path:
        """Copy the newest global model to a file, OUT.safetensors (`async-hfl model`)."""
        source, file = self.model, Path(out)
        if file.suffix != ".safetensors":
            raise UserError(f"{file}: the name of the file must end in .safetensors")
        with writing(file, create_directory=False):
            shutil.copyfile(source, file)
        return file

    def figure(self) -> Any:
        """Return the learning curves against time and bytes as a figure of matplotlib (needs async-hfl[plots])."""
        group = RunGroup(str(self.manifest["method"]), (self.path,))
        return groups_figure([group], headline(self.manifest, self.directory.read_summary()))


def load_run(path: str | Path) -> Run:
    """Open a run directory, complete or not."""
    found = Run(RunDirectory.open(Path(path)))
    missing = [key for key in _MANIFEST_FIELDS if key not in found.manifest]
    if missing:
        raise RunDirectoryError(
            f"{found.directory.manifest}: has no {missing[0]!r}, so it was not written by async-hfl"
        )
    return found
