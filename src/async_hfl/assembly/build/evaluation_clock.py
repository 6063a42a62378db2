"""The times at which a run's model is evaluated, and the window over which a target has to be held.

In a simulation both follow from the network: the window is three times the median, over all devices, of the expected
round on a device's best link, and the grid is a tenth of the window. Rounds are those of float32 models, so that
all methods have the same clock on the same network, whatever they send.

A deployment has no expected rounds when its cloud starts, and one evaluation takes little of its time. Therefore every
model of the cloud is evaluated there, and the mean of three evaluations counts, unless the settings give seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.topology import FeasibleLinks
from async_hfl.simulation.accounting.stability import quickest_rounds

ROUNDS_PER_WINDOW, GRID_SHARE = 3.0, 0.1


@dataclass(frozen=True, slots=True)
class EvaluationClock:
    grid_s: float | None
    """None: the model is evaluated after every cloud epoch."""
    window_s: float | None
    """None: the mean of three evaluations has to pass the target."""

    def manifest(self) -> dict[str, Any]:
        return {"grid_s": self.grid_s, "window_s": self.window_s}


def simulated_clock(settings: Settings, links: FeasibleLinks) -> EvaluationClock:
    """Return the clock of a simulation; `links` have the rounds of float32 models."""
    rounds = quickest_rounds(links)
    window = ROUNDS_PER_WINDOW * float(np.median(rounds[np.isfinite(rounds)]))
    return _clock(settings, grid=GRID_SHARE * window, window=window)


def deployed_clock(settings: Settings) -> EvaluationClock:
    return _clock(settings, grid=None, window=None)


def _clock(settings: Settings, *, grid: float | None, window: float | None) -> EvaluationClock:
    """Return the clock that the settings ask for; `grid` and `window` stand for "auto"."""
    chosen = settings.evaluation
    return EvaluationClock(
        {"auto": grid, "aggregations": None}[chosen.grid] if isinstance(chosen.grid, str) else chosen.grid,
        {"auto": window, "evaluations": None}[chosen.window] if isinstance(chosen.window, str) else chosen.window,
    )
