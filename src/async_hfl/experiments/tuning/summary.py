"""The outcome of a tuning, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from async_hfl.experiments.tuning.campaign import Tuning
from async_hfl.experiments.tuning.ranking import Score
from async_hfl.experiments.tuning.search import Point
from async_hfl.experiments.tuning.tuned import setting_texts
from async_hfl.reports.tables.table import Cell, Column, Spread, Table

_COLUMNS = (
    Column("method"),
    Column("points", "count", "number of points that were measured"),
    Column("level", "metric", "the highest level of the metric that was held; points are compared at it"),
    Column("packaged", "seconds", "time to it with the packaged settings; >: not reached with every seed"),
    Column("tuned", "seconds", "the same with the chosen settings"),
)


def tuning_table(tunings: Sequence[Tuning]) -> Table:
    rows = [
        (
            one.contender.name,
            len(one.results),
            one.level,
            _time(one.score(one.packaged)),
            _time(one.score(_best(one))),
        )
        for one in tunings
    ]
    chosen = [f"{one.contender.name}: {', '.join(setting_texts(one.settings(_best(one))))}" for one in tunings]
    return Table("chosen settings", _COLUMNS, tuple(rows), tuple(chosen))


def as_json(tuning: Tuning) -> dict[str, Any]:
    """Return the choice with all points that were measured."""
    points = []
    for point in tuning.results:
        found = tuning.score(point)
        outcome = None if found is None else {"reached": found.reached, "time_s": found.time}
        points.append({"settings": tuning.settings(point), **(outcome or {})})
    return {**msgspec.to_builtins(tuning.choice()), "measured": points}


def _best(tuning: Tuning) -> Point:
    assert tuning.best is not None
    return tuning.best


def _time(score: Score | None) -> Cell:
    if score is None:
        return None
    return Spread(score.time, bound="" if score.reached == len(score.outcomes) else ">")
