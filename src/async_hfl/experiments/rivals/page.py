"""The page that compares one method with its best rivals on every problem: docs/results/comparison.md."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.footnotes import tuning_notes
from async_hfl.experiments.comparison.outcome import Quantity
from async_hfl.experiments.comparison.statistics import Cost, Ratio, bounded_ratio
from async_hfl.experiments.comparison.tables import ratio_cell
from async_hfl.experiments.plans.planned_run import Role
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.rivals.competitors import Competitor, Problem, problems
from async_hfl.reports.data.experiment import Comparison
from async_hfl.reports.tables.table import Cell, Column, Spread, Table, shown, without_empty

QUANTITIES: dict[str, Quantity] = {"time": "at", "bytes": "bytes_total"}
_RATIOS = (
    "Ratios: cost of the rival over that of {method}, so above 1 {method} is better; geometric mean of the ratios, "
    "paired by seed, with a 95 % interval (Student's t of the logarithms).",
    "The best rival has the least geometric mean on the seeds shown here, chosen for time and bytes separately.",
    "A run that never reached the level counts as its whole duration; the cost is marked >, a ratio that it bounds > "
    "or <. If seeds bound a ratio from both sides, it is undecided.",
)
_VARIANTS = "Variants have the tuned settings of their method, except for those that they are named after."
_RIVALS: tuple[Role, ...] = ("compared", "equipped")
_EQUIPPED = "rivals that were given light updates and, where the cloud averages, momentum"


def rivals_page(rows: Sequence[KeptRun], method: str, command: str = "") -> Comparison:
    """Return the page of these kept results."""
    found = problems(rows)
    if not any(problem.mine(method, tuned=tuned) for problem in found for tuned in (True, False)):
        methods = sorted({one.method for problem in found for one in problem.competitors})
        raise UserError(f"--method {method}: not among the kept results, which have {', '.join(methods) or 'none'}")
    tables = [_against_best(found, method)]
    for problem in found:
        tables += [_competitors(problem), *_ablation(problem)]
    summary = [text for problem in found for text in _summary(problem, method)]
    return Comparison(f"{method} and its best rivals", tuple(summary), (*tables, _order(found, rows)), command=command)


def levels(problem: Problem) -> list[float]:
    """Return the levels at which the competitors are compared: the headline, and the target of the task."""
    headline = problem.headline
    return list(dict.fromkeys([problem.target if headline is None else headline, problem.target]))


def ratio(rival: Competitor, mine: Competitor, level: float, quantity: Quantity) -> Ratio | None:
    above = rival.costs(level, quantity)
    return bounded_ratio(above, mine.costs(level, quantity), len(mine.rows))


def _against_best(found: Sequence[Problem], method: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    named: list[Competitor] = []
    for problem in found:
        tuned, packaged = (problem.mine(method, tuned=one) for one in (True, False))
        for level in levels(problem):
            for name, quantity in QUANTITIES.items():
                cells: list[Cell] = []
                named += [one for one in (tuned, packaged) if one is not None]
                for role in _RIVALS:
                    best = problem.best(method, role, level, quantity, problem.seeds(method))
                    cells.append(None if best is None else best.name)
                    named += [] if best is None else [best]
                    cells += [_ratio_cell(best, mine, level, quantity) for mine in (tuned, packaged)]
                rows.append((problem.name, name, level, *cells))
    columns = (
        Column("problem"),
        Column("cost"),
        Column("level", "number", "the highest that every method held with every seed; then the target of the task"),
        Column("best rival"),
        Column("tuned", "ratio", f"{method} with tuned settings, against the best rival"),
        Column("packaged", "ratio", f"{method} with packaged settings, against the best rival"),
        Column("best equipped rival", note=_EQUIPPED),
        Column("tuned, equipped", "ratio", "tuned, against the best equipped rival"),
        Column("packaged, equipped", "ratio", "packaged, against the best equipped rival"),
    )
    texts = (
        *(text.format(method=method) for text in _RATIOS),
        *(text for problem in found for text in _not_considered(problem, method)),
        *(f"{name}: {text}" for name, text in _tuning(named).items()),
    )
    return without_empty(Table("Against the best rival", columns, tuple(rows), texts))


def _not_considered(problem: Problem, method: str) -> list[str]:
    """Name the rivals of which results are missing: one of them might be the best."""
    seeds = set(problem.seeds(method))
    rivals = (one for one in problem.competitors if one.role in _RIVALS and one.method != method)
    names = [one.name for one in rivals if not seeds <= one.rows.keys()]
    return [f"{problem.name}: not considered, since runs of them are missing: {', '.join(names)}."] if names else []


def _ratio_cell(rival: Competitor | None, mine: Competitor | None, level: float, quantity: Quantity) -> Cell:
    if rival is None or mine is None:
        return None
    found = ratio(rival, mine, level, quantity)
    if found is not None:
        return ratio_cell(found)
    costs = (one.costs(level, quantity).values() for one in (rival, mine))
    arrived = any(cost.known for of_one in costs for cost in of_one)
    return Spread(None, text="undecided" if arrived else "neither arrives")


def _competitors(problem: Problem) -> Table:
    level = levels(problem)[0]
    shown_rows = sorted(
        (one for one in problem.competitors if one.role != "ablation"), key=lambda o: _order_at(o, level)
    )
    rows = [(one.name, _reached(one, level), *_costs(one, level), *_quality(one)) for one in shown_rows]
    columns = (
        Column("method"),
        Column("reached", note="seeds that reached the level"),
        Column("time", "seconds"),
        Column("bytes", "bytes", "in all directions, at both tiers"),
        *_QUALITY,
    )
    title = f"{problem.name}: cost to reach {level:g}"
    epochs = f"Local epochs of a device: {problem.device_epochs}."
    rule = "Over seeds: mean, minimum and maximum."
    return without_empty(Table(title, columns, tuple(rows), (rule, epochs, *_tuning(shown_rows).values())))


_QUALITY = (
    Column("final", "metric", "metric of the last model, mean over seeds"),
    Column("worst class", "metric", "accuracy of the last model on its worst class, lowest of the seeds"),
    Column("worst device", "metric", "metric of the last model on its worst device, worst of the seeds"),
    Column("left out", "count", "most devices that never took part, of those fast enough for a quarter of the run"),
    Column("class floor", "share", "least accuracy of a class in the last 20 evaluations, of its accuracy at the end"),
    Column("lost gain", "share", "largest part of its gain that the metric lost again"),
)


def _quality(one: Competitor) -> tuple[Cell, ...]:
    results = one.results
    worst_of: Callable[[list[float]], float] = min if results[0].direction == "at_least" else max
    final = [run.final for run in results if run.final is not None]
    return (
        math.fsum(final) / len(final) if final else None,
        _extreme(min, (run.worst_class for run in results)),
        _extreme(worst_of, (run.worst_device for run in results)),
        _extreme(max, (run.left_out for run in results)),
        _extreme(min, (run.class_floor for run in results)),
        _extreme(max, (run.lost_gain for run in results)),
    )


def _extreme(of: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None


def _order_at(one: Competitor, level: float) -> tuple[float, float, str]:
    costs = one.costs(level, "at").values()
    return sum(not cost.known for cost in costs), math.fsum(cost.value for cost in costs) / len(costs), one.name


def _reached(one: Competitor, level: float) -> str:
    costs = one.costs(level, "at").values()
    return f"{sum(cost.known for cost in costs)} of {len(costs)}"


def _costs(one: Competitor, level: float) -> tuple[Cell, ...]:
    return tuple(_over_seeds(list(one.costs(level, quantity).values())) for quantity in QUANTITIES.values())


def _over_seeds(costs: Sequence[Cost]) -> Spread:
    values = [cost.value for cost in costs]
    bound = "" if all(cost.known for cost in costs) else ">"
    mean = math.fsum(values) / len(values)
    return Spread(mean, bound=bound) if len(values) == 1 else Spread(mean, min(values), max(values), bound=bound)


def _ablation(problem: Problem) -> list[Table]:
    """Return the table of the parts that were removed or added, if the problem has one."""
    level = levels(problem)[0]
    rows: list[tuple[Cell, ...]] = []
    bases: list[Competitor] = []
    for one in problem.competitors:
        base = problem.competitor(one.base) if one.role == "ablation" else None
        if base is not None:
            ratios = (_ratio_cell(one, base, level, quantity) for quantity in QUANTITIES.values())
            rows.append((one.name, base.name, *ratios, *_quality(one)))
            bases.append(base)
    if not rows:
        return []
    columns = (
        Column("variant"),
        Column("of"),
        Column("time", "ratio", "cost of the variant over that of the method it is a variant of"),
        Column("bytes", "ratio"),
        *_QUALITY,
    )
    texts = (*_RATIOS[2:], _VARIANTS, *_tuning(bases).values())
    return [without_empty(Table(f"{problem.name}: ablation at {level:g}", columns, tuple(rows), texts))]


def _tuning(named: Iterable[Competitor]) -> dict[str, str]:
    """Return the notes on the tuning of these competitors, by problem."""
    return tuning_notes(row for one in named for row in one.rows.values())


def _order(found: Sequence[Problem], rows: Sequence[KeptRun]) -> Table:
    """Return the proof of order: settings were chosen before the reported runs, and each run was made once."""
    times: dict[str, set[str]] = {}
    for row in rows:
        times.setdefault(row.digest, set()).add(row.made)
    cells = []
    for problem in found:
        runs = [row for one in problem.competitors for row in one.rows.values()]
        tuned = [row.tuned for row in runs if row.tuned is not None]
        cells.append(
            (
                problem.name,
                ", ".join(map(str, sorted({row.seed for row in runs}))),
                len({row.digest for row in runs}),
                sum(len(times[digest]) > 1 for digest in {row.digest for row in runs}),
                _date(max(one.made for one in tuned)) if tuned else None,
                sum(row.tuned is not None and _time(row.made) < _time(row.tuned.made) for row in runs),
                _date(min(row.made for row in runs)),
                _date(max(row.made for row in runs)),
                ", ".join(sorted({one.digest for one in tuned})) or None,
            )
        )
    columns = (
        Column("problem"),
        Column("seeds"),
        Column("runs", "count"),
        Column("made twice", "count", "runs with the same settings digest that the rows have from different times"),
        Column("settings chosen", note="the last choice of the tuning (UTC)"),
        Column("made before", "count", "runs with tuned settings that began before these were chosen"),
        Column("first run", note="the time at which it began (UTC)"),
        Column("last run"),
        Column("tuning file", note="digest of its content"),
    )
    text = "Each row of the files has the time at which its run began and the digest of its settings."
    return without_empty(Table("Order of tuning and runs", columns, tuple(cells), (text,)))


def _date(time: str) -> str:
    return time[:19].replace("T", " ")


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _summary(problem: Problem, method: str) -> list[str]:
    mine = problem.mine(method, tuned=True) or problem.mine(method, tuned=False)
    if mine is None:
        return []
    level, texts = levels(problem)[0], []
    for name, quantity in QUANTITIES.items():
        best = problem.best(method, "compared", level, quantity, mine.rows)
        found = None if best is None else ratio(best, mine, level, quantity)
        if best is not None and found is not None:
            texts.append(f"{name} {shown(ratio_cell(found), 'ratio')} ({best.name})")
    if not texts:
        return []
    return [f"{problem.name}, to {level:g}: cost of the best rival over that of {mine.name}: {'; '.join(texts)}."]
