"""The distribution of data as a heat map: a column per device, a row per class, the number of samples as colour.

The margins show sums: samples per device above, per class at the right. Unlike stacked bars, a heat map stays readable
with hundreds of devices and eighty classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.data_distribution import DataDistribution
from async_hfl.reports.figures.pictures import new_figure

_GREY, _INK = "#9FB6C8", "#333333"
_SHADES = ("#F3F7FA", "#BFD7EA", "#6BAED6", "#2171B5", "#08306B")
_NUMBERS_FIT = 20
"""The most devices for which counts are written into the cells."""
_MOST_CLASS_LABELS = 80


def distribution_lines(held: DataDistribution) -> list[str]:
    """Return a summary in words."""
    sizes = held.by_device
    lines = [
        f"{held.task} over {len(sizes)} devices, {held.partition}, seed {held.seed}",
        f"{_range(sizes)} samples per device, {sizes.sum():,} in total; "
        f"{held.held:,} of the {held.samples:,} training samples are on a device",
    ]
    if held.class_names:
        owners = np.count_nonzero(held.counts, axis=0)
        lines.append(
            f"{_range(held.classes_by_device)} of {len(owners)} classes per device, {_range(owners)} devices per class"
        )
    return lines


def draw_distribution(held: DataDistribution, path: Path) -> None:
    distribution_figure(held).savefig(path, dpi=150, bbox_inches="tight", pad_inches=0.15)


def distribution_figure(held: DataDistribution) -> Any:
    """Return the heat map with its margins as a figure of matplotlib."""
    devices, classes = held.counts.shape
    width = float(np.clip(4.5 + 0.05 * devices, 7.5, 14))
    lines = distribution_lines(held)
    if held.class_names:
        body = float(np.clip(0.26 * classes, 1.6, 8))
        figure = new_figure(figsize=(width, body + 2.9), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(0.8, body), width_ratios=(width - 2, 1.15))
        field = figure.add_subplot(grid[1, 0])
        _draw_cells(figure, field, held)
        above = figure.add_subplot(grid[0, 0], sharex=field)
        _draw_classes(figure.add_subplot(grid[1, 1], sharey=field), held)
        above.tick_params(labelbottom=False)
    else:
        figure = new_figure(figsize=(width, 4.2), layout="constrained")
        above = figure.subplots()
        above.set_xlabel("device", fontsize=9)
    _draw_sizes(above, held)
    figure.suptitle(lines[0], x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    figure.text(0.01, 0.0, "\n".join(lines[1:]), fontsize=8.5, color="#666666", va="top", ha="left")
    return figure


def _draw_cells(figure: Any, axes: Any, held: DataDistribution) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize

    devices, classes = held.counts.shape
    shown = np.ma.masked_equal(held.counts.T, 0)
    least, most = int(shown.min()), int(shown.max())
    # Real data spans orders of magnitude; a linear scale would show only the largest cell.
    norm = LogNorm(least, most) if most > 50 * least else Normalize(0, most)
    colours = LinearSegmentedColormap.from_list("samples", _SHADES)
    picture = axes.pcolormesh(
        np.arange(devices + 1) - 0.5,
        np.arange(classes + 1) - 0.5,
        shown,
        cmap=colours,
        norm=norm,
        edgecolors="white",
        linewidth=0.4 if max(devices, classes) <= 100 else 0.15,
    )
    axes.set_ylim(classes - 0.5, -0.5)
    axes.set_xlim(-0.5, devices - 0.5)
    axes.set_xlabel("device", fontsize=9)
    axes.set_ylabel("class", fontsize=9)
    step = -(-classes // _MOST_CLASS_LABELS)
    axes.set_yticks(range(0, classes, step), [_visible(held.class_names[label]) for label in range(0, classes, step)])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.tick_params(length=0, labelsize=8)
    axes.tick_params(axis="y", labelsize=8 if classes <= 30 else 5.5)
    for spine in axes.spines.values():
        spine.set_color(_GREY)
    if devices <= _NUMBERS_FIT and classes <= 12:
        for device, label in np.argwhere(held.counts):
            count = int(held.counts[device, label])
            dark = norm(count) > 0.55
            axes.text(device, label, f"{count}", ha="center", va="center", fontsize=7, color="white" if dark else _INK)
    bar = figure.colorbar(picture, ax=axes, location="bottom", aspect=60, pad=0.02, fraction=0.05)
    bar.set_label("samples of a class on a device (white: none)", fontsize=8)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)


def _draw_sizes(axes: Any, held: DataDistribution) -> None:
    sizes = held.by_device
    axes.bar(np.arange(len(sizes)), sizes, width=1.0 if len(sizes) > 60 else 0.9, color=_GREY, linewidth=0)
    median = float(np.median(sizes))
    if sizes.max() > 1.05 * sizes.min():
        axes.axhline(median, color=_INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"median {median:,.0f}", (1.005, median), xycoords=("axes fraction", "data"), fontsize=7, va="center"
        )
    axes.set_ylabel("samples")
    axes.set_ylim(bottom=0)
    axes.yaxis.get_major_locator().set_params(nbins=3 if held.class_names else 6)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    _bare(axes)


def _draw_classes(axes: Any, held: DataDistribution) -> None:
    """Draw the right margin: samples of each class, and the number of devices that have some."""
    totals, owners = held.counts.sum(axis=0), np.count_nonzero(held.counts, axis=0)
    axes.barh(np.arange(len(totals)), totals, height=0.8, color=_GREY, linewidth=0)
    axes.set_xlabel("samples", fontsize=8)
    axes.tick_params(labelleft=False)
    axes.set_xlim(left=0)
    if len(totals) <= 20:
        for label, number in enumerate(owners.tolist()):
            text = f"{number} device{'s' if number != 1 else ''}" if number else "no device"
            axes.annotate(text, (0, label), (3, 0), textcoords="offset points", fontsize=7, va="center", color=_INK)
    axes.xaxis.get_major_locator().set_params(nbins=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    _bare(axes)


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=2)
    axes.yaxis.label.set_fontsize(8)


def _range(values: Any) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _visible(name: str) -> str:
    """Make white space visible, for tasks whose classes are characters."""
    return {" ": "␣", "\n": "\\n", "$": r"\$"}.get(name, name)
