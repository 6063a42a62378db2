"""A network as a picture for a talk or a paper: association, quality of the links, round times."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.reports.data.network_view import NetworkView
from async_hfl.reports.figures.colours import AROUND, GRID, INK, LAND, QUALITY, SOFT, gateway_colours
from async_hfl.reports.figures.delays import draw_delays
from async_hfl.reports.figures.pictures import new_figure
from async_hfl.reports.tables.formatting import size

_NUMBERED = 40
"""The most gateways that are labelled with their numbers."""
_WIDTHS = (1.3, 1.0, 0.8, 0.6)
_LEGEND = {"framealpha": 0.92, "edgecolor": GRID, "labelcolor": INK}


def draw_network(view: NetworkView, path: Path) -> None:
    network_figure(view).savefig(path, dpi=150)


def network_figure(view: NetworkView) -> Any:
    """Return association, quality of the links and round times as a figure of matplotlib."""
    figure = new_figure(figsize=(13.33, 7.5))
    figure.patch.set_facecolor("white")
    margins = {"left": 0.045, "right": 0.985, "top": 0.865, "bottom": 0.125, "wspace": 0.12, "hspace": 0.36}
    grid = figure.add_gridspec(2, 2, width_ratios=(1.45, 1), height_ratios=(1.3, 1), **margins)
    main, quality, delays = (figure.add_subplot(part) for part in (grid[:, 0], grid[0, 1], grid[1, 1]))
    _ground(main, view, "association of devices with gateways", labels=True)
    _association(main, view)
    _ground(quality, view, "links by round-trip time of a model", labels=False)
    _quality(quality, view)
    draw_delays(delays, view)
    figure.text(0.02, 0.96, view.name, fontsize=19, fontweight="bold", color=INK, va="center")
    figure.text(0.02, 0.918, view.headline, fontsize=11, color=SOFT, va="center")
    notes = "\n".join(textwrap.wrap("; ".join(view.notes), 150)[:3])
    figure.text(0.02, 0.035, notes, fontsize=8, color=SOFT, va="center", linespacing=1.4)
    figure.text(0.985, 0.035, view.credit, fontsize=8, color=SOFT, va="center", ha="right")
    return figure


def _ground(axes: Any, view: NetworkView, title: str, *, labels: bool) -> None:
    """Draw the background: land, graticule with labels, scale bar."""
    left, right, low, high = _extent(view, axes)
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_aspect("equal", adjustable="box")
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=6)
    axes.tick_params(length=0, labelsize=8, labelcolor=SOFT, pad=2)
    for spine in axes.spines.values():
        spine.set_color(GRID)
    if view.schematic:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    if view.frame is None:
        step = _nice((right - left) / 6)
        for axis, first, last in ((axes.xaxis, left, right), (axes.yaxis, low, high)):
            ticks = np.arange(math.ceil(first / step), math.floor(last / step) + 1) * step
            axis.set_ticks(ticks, [f"{tick / 1000:g} km" for tick in ticks])
    else:
        _graticule(axes, view, left, right, low, high)
    if view.outline and view.frame is not None:
        axes.set_facecolor(AROUND)  # not blue: part of the surroundings is New Jersey, not water
        for longitude, latitude in view.outline:
            axes.fill(*view.frame.to_metres(longitude, latitude), facecolor=LAND, edgecolor="#B5C2CB", linewidth=0.5)
    axes.grid(color=GRID, linewidth=0.5, linestyle=(0, (4, 4)))
    axes.set_axisbelow(not view.outline)
    if not labels:
        axes.set_xticklabels([])
        axes.set_yticklabels([])
    _scale_bar(axes, right - left)


def _extent(view: NetworkView, axes: Any) -> tuple[float, float, float, float]:
    """Return the bounds of everything that is drawn, widened to the aspect ratio of the panel."""
    x = np.concatenate((view.device_x, view.gateway_x))
    y = np.concatenate((view.device_y, view.gateway_y))
    box = axes.get_window_extent()
    shape = box.width / box.height
    width, height = max(float(np.ptp(x)), 1.0) * 1.1, max(float(np.ptp(y)), 1.0) * 1.1
    width, height = max(width, height * shape), max(height, width / shape)
    middle_x, middle_y = (x.min() + x.max()) / 2, (y.min() + y.max()) / 2
    return middle_x - width / 2, middle_x + width / 2, middle_y - height / 2, middle_y + height / 2


def _graticule(axes: Any, view: NetworkView, left: float, right: float, low: float, high: float) -> None:
    frame = view.frame
    assert frame is not None
    inset = 0.03 * (high - low)  # a label at the very edge would overlap the title
    corners_x, corners_y = frame.to_degrees(np.array([left, right]), np.array([low + inset, high - inset]))
    step = _nice(float(corners_x[1] - corners_x[0]) / 5)
    longitudes = np.arange(math.ceil(corners_x[0] / step), math.floor(corners_x[1] / step) + 1) * step
    latitudes = np.arange(math.ceil(corners_y[0] / step), math.floor(corners_y[1] / step) + 1) * step
    x, _ = frame.to_metres(longitudes, np.zeros(len(longitudes)))
    _, y = frame.to_metres(np.zeros(len(latitudes)), latitudes)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    axes.set_xticks(x, [f"{abs(v):.{decimals}f}° {'W' if v < 0 else 'E'}" for v in longitudes])
    axes.set_yticks(y, [f"{abs(v):.{decimals}f}° {'S' if v < 0 else 'N'}" for v in latitudes], rotation=90, va="center")


def _scale_bar(axes: Any, width: float) -> None:
    length = _nice(width / 5)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    x, y = 0.965 - length / width, 0.035
    style = {"transform": axes.transAxes, "color": INK, "zorder": 9}
    axes.plot([x, x + length / width], [y, y], linewidth=2.2, solid_capstyle="butt", **style)
    axes.text(x + length / width / 2, y + 0.012, text, fontsize=8.5, ha="center", va="bottom", **style)


def _association(axes: Any, view: NetworkView) -> None:
    colours = gateway_colours(view.gateway_x, view.gateway_y)
    dot = float(np.clip(1600 / max(len(view.drawn), 1), 2.0, 26.0))
    thin = float(np.clip(60 / math.sqrt(max(len(view.drawn), 1)), 0.25, 1.0))
    own = view.gateway_of >= 0
    devices = np.flatnonzero(own)
    _segments(axes, view, devices, view.gateway_of[devices], [colours[j] for j in view.gateway_of[devices]], thin, 0.45)
    style = {"c": [colours[j] for j in view.gateway_of[own]], "linewidths": 0.35 if dot > 6 else 0}
    axes.scatter(view.device_x[own], view.device_y[own], s=dot, edgecolors="white", zorder=4, **style)
    axes.scatter(view.device_x[~own], view.device_y[~own], s=dot, c="#999999", marker="x", linewidths=0.8, zorder=4)
    few = len(view.gateway_x) <= _NUMBERED
    mark = {"s": 170, "marker": "D", "linewidths": 1.3} if few else {"s": 14, "marker": "s", "linewidths": 0.4}
    axes.scatter(view.gateway_x, view.gateway_y, c=list(colours), edgecolors="white", zorder=6, **mark)
    if few:
        text = {"ha": "center", "va": "center_baseline", "fontsize": 7.5, "fontweight": "bold", "color": "white"}
        for number, (x, y) in enumerate(zip(view.gateway_x, view.gateway_y, strict=True)):
            axes.text(x, y, str(number), zorder=7, **text)
    _association_legend(axes, view, colours, few)


def _association_legend(axes: Any, view: NetworkView, colours: tuple[str, ...], few: bool) -> None:
    from matplotlib.lines import Line2D

    def mark(marker: str, colour: str, label: str, large: float) -> Any:
        style: Any = {"marker": marker, "color": colour, "markersize": large, "markeredgecolor": "white"}
        return Line2D([], [], linestyle="", label=label, **style)

    if len(colours) <= 12:
        handles = [
            mark("D", colour, f"{_gateway_name(view, number)}: {count:,} device{'s' if count != 1 else ''}", 7)
            for number, (colour, count) in enumerate(zip(colours, view.load.tolist(), strict=True))
        ]
    else:
        text = "device, in the colour of its gateway"
        handles = [mark("D" if few else "s", INK, "gateway", 7), mark("o", SOFT, text, 6)]
    if (view.gateway_of < 0).any():
        handles.append(Line2D([], [], linestyle="", marker="x", color="#999999", label="device without a gateway"))
    corner = _free_corner(view, axes, 0.3, 0.27)
    axes.legend(handles=handles, loc=corner, fontsize=8.5, borderpad=0.7, **_LEGEND).set_zorder(10)


def _gateway_name(view: NetworkView, number: int) -> str:
    return f"{number} {view.gateway_names[number]}" if view.gateway_names else f"gateway {number}"


def _quality(axes: Any, view: NetworkView) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    dense = float(np.clip(30 / math.sqrt(max(len(view.link_device), 1)), 0.3, 1.0))
    for quality in reversed(range(len(QUALITY))):  # slow links first, so that fast ones are drawn on top
        rows = np.flatnonzero(view.link_class == quality)
        if len(rows):
            ends, width = (view.link_device[rows], view.link_gateway[rows]), _WIDTHS[quality] * dense + 0.2
            _segments(axes, view, *ends, QUALITY[quality], width, 0.75)
            low, high = view.class_edges[quality : quality + 2]
            label = f"{_seconds(low)} to {_seconds(high)}" if high > low else _seconds(low)
            handles.insert(0, Line2D([], [], color=QUALITY[quality], linewidth=2, label=label))
    axes.scatter(view.device_x, view.device_y, s=2.5, c=INK, linewidths=0, zorder=4)
    axes.scatter(view.gateway_x, view.gateway_y, s=26, c="white", marker="D", edgecolors=INK, linewidths=1.0, zorder=5)
    corner, title = _free_corner(view, axes, 0.36, 0.4), f"{size(view.model_bytes)} down and up"
    box = axes.legend(handles=handles, loc=corner, fontsize=8, title=title, title_fontsize=8, **_LEGEND)
    box.get_title().set_color(SOFT)
    box.set_zorder(10)


def _free_corner(view: NetworkView, axes: Any, wide: float, high: float) -> str:
    """Return the corner in which a legend of this size hides the fewest sites; the scale bar is at the lower right."""
    x = np.concatenate((view.device_x, np.repeat(view.gateway_x, 5)))
    y = np.concatenate((view.device_y, np.repeat(view.gateway_y, 5)))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    across, up = (x - left) / (right - left), (y - bottom) / (top - bottom)
    hidden = {
        "upper left": (across < wide) & (up > 1 - high),
        "upper right": (across > 1 - wide) & (up > 1 - high),
        "lower left": (across < wide) & (up < high),
    }
    return min(hidden, key=lambda corner: int(hidden[corner].sum()))


def _segments(
    axes: Any, view: NetworkView, devices: Any, gateways: Any, colours: Any, width: float, alpha: float
) -> None:
    from matplotlib.collections import LineCollection

    starts = np.stack((view.device_x[devices], view.device_y[devices]), axis=1)
    ends = np.stack((view.gateway_x[gateways], view.gateway_y[gateways]), axis=1)
    lines = list(np.stack((starts, ends), axis=1))
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=width, alpha=alpha, zorder=3), autolim=False)


def _nice(value: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return float(max(step for step in (1, 2, 5, 10) if step * power <= value * 1.0001) * power)


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value:.2g} s"
    if value < 600:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 36_000 else f"{value / 3600:.3g} h"
