"""An experiment as plain data: groups of runs, tables and figures. Pages and pictures are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from async_hfl.reports.tables.table import Kind, Table


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that differ only in their seeds: one line of the curves."""

    name: str
    runs: tuple[Path, ...]
    panel: str = ""
    """The part of the page that the group belongs to, such as a task on a network."""
    target: float | None = None
    """None: the target that the runs had."""


@dataclass(frozen=True, slots=True)
class FigureLine:
    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Values against a setting. Text values of x are categories, drawn as bars."""

    title: str
    x_name: str
    y_name: str
    lines: tuple[FigureLine, ...]
    bars: bool = False
    log_x: bool = False
    kind: Kind = "number"
    """The kind of the values, which decides how they are formatted."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The texts, tables and figures of a page that compares runs."""

    title: str
    summary: tuple[str, ...] = ()
    """Sentences below the title."""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    command: str = ""
    """The command that makes this comparison again."""
    reference: str = ""
    """The group that is drawn with the thickest line."""
