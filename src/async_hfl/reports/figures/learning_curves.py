"""Learning curves and figures of an experiment as PNG, SVG or PDF, chosen by the ending of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import UserError
from async_hfl.reports.data.curves import evenly_spaced
from async_hfl.reports.data.experiment import Figure, RunGroup
from async_hfl.reports.data.group_data import ComparedRun, read_panels
from async_hfl.reports.figures.colours import FEW
from async_hfl.reports.figures.pictures import new_figure
from async_hfl.reports.output import writing
from async_hfl.reports.tables.run_names import clock_name

COLOURS = (*FEW, "#000000")
PICTURES = (".png", ".svg", ".pdf")
_DASHES = ("-", "--", ":", "-.")
_POINTS = 400
_FAR = 6
_MOST_INSIDE = 12
"""The most lines whose legend has room inside the axes."""
_SCALES = {"seconds": (3600.0, "hours"), "bytes": (1e6, "MB"), "joules": (1e3, "kJ")}


def draw_groups(groups: Sequence[RunGroup], path: Path, title: str) -> None:
    save(groups_figure(groups, title), path)


def groups_figure(groups: Sequence[RunGroup], title: str) -> Any:
    """Draw mean and range over seeds against time and against bytes, with one row of axes per panel."""
    panels = read_panels(groups)
    names = list(dict.fromkeys(group.name for group in groups))
    figure = _figure(10, 4.2 * max(1, len(panels)) + 0.4)
    axes = figure.subplots(max(1, len(panels)), 2, sharey="row", squeeze=False)
    for row, (name, parts) in zip(axes, panels.items(), strict=False):
        for group, members in parts:
            _draw_group(row, members, group.name, names.index(group.name))
        every = [run for _, members in parts for run in members]
        _finish_row(row, name, every)
        ends = sorted(float(run.curve.time[-1]) for run in every if len(run.curve))
        # One very slow method would squeeze all others against the axis.
        if len(ends) > 1 and ends[-1] > _FAR * ends[len(ends) // 2]:
            row[0].set_xlim(auto=True)
            row[0].set_xscale("log")
    figure.suptitle(_plain(title), fontsize=11)
    return figure


def _draw_group(row: Any, members: list[ComparedRun], name: str, number: int) -> None:
    known = [run for run in members if len(run.curve)]
    if not known:
        return
    style = {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)]}
    for axes, key, unit in ((row[0], "time", 3600.0), (row[1], "bytes", 1e6)):
        x, values = on_one_axis(known, key)
        axes.step(x / unit, values.mean(axis=0), where="post", label=_plain(name), linewidth=1.6, **style)
        if len(known) > 1:
            axes.fill_between(
                x / unit, values.min(axis=0), values.max(axis=0), step="post", alpha=0.15, color=style["color"], lw=0
            )
        for run in known:
            if run.held is not None:
                at = (run.held.at if key == "time" else run.held.bytes_total) / unit
                axes.plot([at], [run.target.threshold], "o", color=style["color"], markersize=4)


def on_one_axis(runs: Sequence[ComparedRun], key: str) -> tuple[Floats, Floats]:
    """Resample runs on a common axis, one row each; a run that has ended keeps its last value."""
    axes: list[Floats] = [getattr(run.curve, key) for run in runs]
    # Points are taken from the evaluations, so they suit linear and logarithmic axes alike.
    x: Floats = np.unique(np.concatenate(axes))
    x = x[x >= max(one[0] for one in axes)]
    x = x[evenly_spaced(len(x), _POINTS)]
    rows = [
        run.curve.metric[np.searchsorted(one, x, side="right").clip(1) - 1] for run, one in zip(runs, axes, strict=True)
    ]
    return x, np.stack(rows)


def _finish_row(row: Any, name: str, runs: list[ComparedRun]) -> None:
    clock = clock_name([run.manifest for run in runs])
    for axes, label in ((row[0], f"{clock} (hours)"), (row[1], "bytes sent over all links (MB)")):
        for target in {run.target.threshold for run in runs}:
            axes.axhline(target, color="#888888", linewidth=0.8, linestyle=":")
        axes.set_xlabel(label)
        axes.grid(alpha=0.25)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
    if runs:
        row[0].set_ylabel(_plain(f"{runs[0].target.metric} on the test set"))
        if any(len(run.curve) for run in runs):
            row[1].legend(loc="lower right", frameon=False, fontsize=8)
    if name:
        row[0].set_title(_plain(name), loc="left", fontsize=10)


def draw_figure(figure: Figure, path: Path) -> None:
    """Draw lines against numbers, or grouped bars for categories."""
    crowded = len(figure.lines) > _MOST_INSIDE
    made = _figure(10.0, max(4.2, 0.16 * len(figure.lines))) if crowded else _figure(6.4, 4.2)
    axes = made.subplots()
    unit, unit_name = _SCALES.get(figure.kind, (1.0, ""))
    categories = list(dict.fromkeys(x for line in figure.lines for x in line.x))
    bars = figure.bars or any(isinstance(x, str) for x in categories)
    for number, line in enumerate(figure.lines):
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "label": _plain(line.name)}
        known = [place for place, value in enumerate(line.y) if value is not None]
        y = np.array([line.y[place] for place in known], np.float64) / unit
        spread = None
        if line.low and line.high:
            ends = [(line.low[place], line.high[place]) for place in known]
            # An unknown end is drawn as the value itself.
            spread = np.array(
                [
                    [value - (value if end is None else end / unit) for value, (end, _) in zip(y, ends, strict=True)],
                    [(value if end is None else end / unit) - value for value, (_, end) in zip(y, ends, strict=True)],
                ]
            ).clip(0)
        if bars:
            wide = 0.8 / len(figure.lines)
            x = np.array([categories.index(line.x[place]) for place in known]) + (number + 0.5) * wide - 0.4
            axes.bar(x, y, wide * 0.92, yerr=spread, capsize=3, **style)
        else:
            if crowded:
                style |= {"linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)], "markersize": 2, "linewidth": 1}
            axes.errorbar([line.x[place] for place in known], y, yerr=spread, marker="o", capsize=3, **style)
    if bars:
        axes.set_xticks(range(len(categories)), [_plain(str(x)) for x in categories])
    elif figure.log_x:
        axes.set_xscale("log")
    axes.set_xlabel(_plain(figure.x_name))
    axes.set_ylabel(_plain(f"{figure.y_name} ({unit_name})" if unit_name else figure.y_name))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if crowded:
        made.legend(loc="outside right upper", frameon=False, fontsize=7)
    elif len(figure.lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.set_title(_plain(figure.title), loc="left", fontsize=11)
    save(made, path)


def _figure(width: float, height: float) -> Any:
    return new_figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    if path.suffix not in PICTURES:
        raise UserError(f"{path}: the name of a picture must end in {', '.join(PICTURES)}")
    # No dates and no random ids in the file, so that the same runs give the same bytes.
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with writing(path), rc_context({"svg.hashsalt": "async-hfl"}):
        figure.savefig(path, dpi=150, metadata=undated)


def _plain(text: str) -> str:
    """Escape dollar signs, which start mathematics in matplotlib."""
    return text.replace("$", r"\$")
