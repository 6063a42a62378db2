"""Linear programmes and the one place that calls a solver (HiGHS).

A programme is data; what it means is said by whoever builds it. One thread and no wall-clock limit: the same programme
has the same answer on every machine. highspy is imported when first needed, because most runs of most methods never do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.errors import SolverError
from async_hfl.core.policies import Floats, Ints

_SIMPLEX_ENTRIES = 20_000
"""Up to so many matrix entries the dual simplex is quicker; beyond, the interior point method by far (10,000 devices
with 5 links each: 0.9 s against 4 s). Both end in a vertex, which is what rounding wants."""


@dataclass(frozen=True, slots=True)
class LinearProgramme:
    """maximise gain . x  subject to  row_lower <= A x <= row_upper,  lower <= x <= upper.

    A is stored by columns: entries of column k are column_start[k] .. column_start[k + 1]. Infinite limits are np.inf.
    """

    gain: Floats
    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats
    column_start: Ints
    row_index: Ints
    entry: Floats


@dataclass(frozen=True, slots=True)
class LinearSolution:
    columns: Floats
    row_duals: Floats
    """Signs are the solver's (of a maximisation)."""
    objective: float


def solve_linear(programme: LinearProgramme) -> LinearSolution:
    """An optimal vertex. A programme without one is an error: ours are always feasible and bounded."""
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its stubs stop at the constructor
    options: dict[str, bool | int | str] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "solver": "simplex" if len(programme.entry) <= _SIMPLEX_ENTRIES else "ipm",
        "run_crossover": "on",
    }
    for name, setting in options.items():
        solver.setOptionValue(name, setting)
    columns, rows = len(programme.gain), len(programme.row_lower)
    by_columns, maximise, offset = 1, -1, 0.0
    passed = solver.passModel(
        columns,
        rows,
        len(programme.entry),
        by_columns,
        maximise,
        offset,
        programme.gain,
        programme.lower,
        programme.upper,
        programme.row_lower,
        programme.row_upper,
        programme.column_start.astype(np.int32),
        programme.row_index.astype(np.int32),
        programme.entry,
        np.zeros(columns, np.int32),
    )
    if passed == highspy.HighsStatus.kError:
        raise SolverError(f"the solver refused a linear programme of {columns} columns and {rows} rows")
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"the solver ended a linear programme with {solver.modelStatusToString(status)!r}")
    solution = solver.getSolution()
    return LinearSolution(
        np.array(solution.col_value), np.array(solution.row_dual), float(solver.getInfo().objective_function_value)
    )
