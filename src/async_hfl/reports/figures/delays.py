"""The tail distribution of round times on two logarithmic axes, where a long tail falls slowly."""

from __future__ import annotations

from typing import Any

from async_hfl.reports.data.curves import tail_distribution
from async_hfl.reports.data.network_view import NetworkView
from async_hfl.reports.figures.colours import GRID, INK, SOFT

_THIS, _REFERENCE = "#0072B2", "#D55E00"
_LEAST_SHARE = 5e-4
_TICKS = {0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min"}
_TICKS |= {3600: "1 h", 36_000: "10 h", 360_000: "100 h"}


def draw_delays(axes: Any, view: NetworkView) -> None:
    axes.set_title("share of rounds that take longer", loc="left", fontsize=11, color=INK, pad=24)
    curves = []
    for delays, colour in ((view.delays, _THIS), *(((view.reference, _REFERENCE),) if view.reference else ())):
        for values, style, label in ((delays.rounds, "-", delays.name), (delays.transfers, ":", None)):
            seconds, share = tail_distribution(values)
            axes.plot(seconds, share, color=colour, linestyle=style, linewidth=1.9, label=label)
            curves.append(values)
    axes.plot([], [], color=SOFT, linestyle=":", linewidth=1.9, label="transfers alone")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(_LEAST_SHARE, 1.3)
    axes.set_yticks([1, 0.1, 0.01, 0.001], ["100 %", "10 %", "1 %", "0.1 %"])
    axes.minorticks_off()
    low, high = max(0.01, 0.7 * min(curve[0] for curve in curves)), 1.6 * max(curve[-1] for curve in curves)
    ticks = {at: text for at, text in _TICKS.items() if low <= at <= high}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(low, high)
    axes.tick_params(labelsize=8.5, labelcolor=SOFT, length=2, color=GRID)
    axes.grid(color=GRID, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    looks = {"fontsize": 8.5, "frameon": False, "labelcolor": INK, "columnspacing": 1.6, "handlelength": 1.9}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.015, 0.985), ncols=3, **looks)
