"""Data sets on this machine, and the distribution of a task's data over devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from async_hfl.api.arguments import Task
from async_hfl.api.centralised import data_distribution
from async_hfl.assembly.settings.overrides import Overrides, override_texts
from async_hfl.core.data_distribution import DataDistribution
from async_hfl.learning.datasets.files.catalogue import PUBLISHED, published_set
from async_hfl.learning.datasets.files.fetching import fetch, list_sets, verify
from async_hfl.reports.export.optional_imports import needed
from async_hfl.reports.figures.data_distribution import distribution_figure, distribution_lines
from async_hfl.reports.terminal.downloads import DownloadView
from async_hfl.reports.terminal.notebook import as_html


@dataclass(frozen=True, slots=True, repr=False)
class ShownData:
    """The distribution of a task's data over the devices. In a notebook it prints its summary."""

    held: DataDistribution

    def __repr__(self) -> str:
        return f"<Data {'; '.join(distribution_lines(self.held))}>"

    def _repr_html_(self) -> str:
        return as_html(*(Text(line) for line in distribution_lines(self.held)))

    def frame(self) -> Any:
        """Return samples by device (rows) and class (columns) as a pandas data frame (needs async-hfl[frames])."""
        pandas = needed("pandas", "frames", "a data frame")
        columns = list(self.held.class_names) or ["samples"]
        frame = pandas.DataFrame(self.held.counts, columns=columns)
        return frame.rename_axis(index="device")

    def figure(self) -> Any:
        """Return the heat map as a figure of matplotlib (needs async-hfl[plots])."""
        return distribution_figure(self.held)


def show_data(
    *, task: Task | None = None, devices: int | None = None, seed: int | None = None, overrides: Overrides = ()
) -> ShownData:
    """Return the data of a task as it is dealt to the devices (`async-hfl data show`).

    >>> async_hfl.show_data(task="digits", devices=12).frame().shape
    (12, 10)
    """
    texts = [*override_texts(overrides), *([] if devices is None else [f"task.devices={devices}"])]
    return ShownData(data_distribution(task=task, seed=seed, overrides=texts))


def list_data() -> list[dict[str, Any]]:
    """Return all data sets and where they are on this machine (`async-hfl data list`)."""
    return [asdict(row) for row in list_sets()]


def fetch_data(*names: str, progress: bool = False) -> list[dict[str, Any]]:
    """Download data sets, or copy them from $ASYNC_HFL_DATA; without names all (`async-hfl data fetch`)."""
    with DownloadView(quiet=not progress) as view:
        return [asdict(fetch(published_set(name), view.progress)) for name in names or PUBLISHED]


def verify_data(*names: str) -> list[dict[str, Any]]:
    """Compare the checksums of files with the published ones (`async-hfl data verify`): a row for each file, with its
    `problem` if there is one. Without names, the data sets on this machine are verified."""
    rows: list[Any] = []
    for published in _sets(names):
        files = verify(published)
        if names or any(file.path for file in files):
            rows += files
    return [asdict(row) for row in rows]


def _sets(names: Iterable[str]) -> list[Any]:
    return [published_set(name) for name in names] or list(PUBLISHED.values())
