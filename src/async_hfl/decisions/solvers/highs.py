"""Linear and integer programmes, solved by HiGHS. No other module calls an external solver.

The module that builds a programme documents its meaning. The solver uses one thread and limits on iterations and nodes,
not on seconds, so that the same programme has the same answer on every machine and no call can hang. highspy is
imported on first use, because most runs never need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import SolverError

_SIMPLEX_ENTRIES = 20_000
"""Number of matrix entries up to which the dual simplex is faster. Beyond it, the interior point method is (10,000
devices with 5 links each: 0.9 s against 4 s). Both end in a vertex, which rounding needs.
"""
_ITERATIONS_PER_LINE = 50
"""Simplex iterations allowed per row and column, about fifty times as many as were observed."""
_INTERIOR_ITERATIONS = 1_000


@dataclass(frozen=True, slots=True)
class LinearProgramme:
    """maximise gain . x subject to row_lower <= A x <= row_upper, lower <= x <= upper.

    A is stored by columns: the entries of column k are column_start[k] .. column_start[k + 1]. Infinite limits are
    np.inf.
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
    """With the solver's signs (for a maximisation)."""


@dataclass(frozen=True, slots=True)
class IntegerSolution:
    columns: Floats
    proven: bool
    """True if the solver has proven optimality within its tolerances and did not stop at a limit."""


def load_solver() -> None:
    """Import the library in advance, for measurements: it takes a tenth of a second, once."""
    import highspy  # noqa: F401


class LinearSolver:
    """One programme that is solved repeatedly with other lower limits, each time from the last solution."""

    def __init__(self, programme: LinearProgramme) -> None:
        self._programme = programme
        self._solver = _loaded(programme, None)
        self._columns = np.arange(len(programme.gain), dtype=np.int32)

    def solve(self, lower: Floats | None = None) -> LinearSolution | None:
        """Return an optimal vertex, or None if the limits are infeasible. Any other outcome is an error."""
        import highspy

        solver = self._solver
        if lower is not None:
            solver.changeColsBounds(len(self._columns), self._columns, lower, self._programme.upper)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"the solver ended a linear programme with {solver.modelStatusToString(status)!r}")
        solution = solver.getSolution()
        return LinearSolution(np.array(solution.col_value), np.array(solution.row_dual))


def solve_linear(programme: LinearProgramme) -> LinearSolution:
    """Return an optimal vertex of a programme that has one."""
    solution = LinearSolver(programme).solve()
    if solution is None:
        raise SolverError("the solver ended a linear programme with 'Infeasible'")
    return solution


def solve_integer(
    programme: LinearProgramme, integer: Bools, *, node_limit: int, start: Floats | None = None
) -> IntegerSolution | None:
    """Return the best solution found within the node limit in which these columns are integral; None if there is none.

    `start` is a feasible solution to begin with."""
    import highspy

    solver = _loaded(programme, integer)
    for name, setting in {
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "mip_max_nodes": node_limit,
        "mip_feasibility_tolerance": 1e-9,
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
    }.items():
        solver.setOptionValue(name, setting)
    if start is not None:
        solver.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)
    solver.run()
    if solver.getInfo().primal_solution_status != 2:  # 2: feasible
        return None
    proven = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return IntegerSolution(np.array(solver.getSolution().col_value), proven)


def _loaded(programme: LinearProgramme, integer: Bools | None) -> Any:
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its stubs stop at the constructor
    columns, rows = len(programme.gain), len(programme.row_lower)
    options: dict[str, bool | int | str] = {
        "output_flag": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": 0,
        "run_crossover": "on",
        "simplex_iteration_limit": _ITERATIONS_PER_LINE * (columns + rows),
        "ipm_iteration_limit": _INTERIOR_ITERATIONS,
    }
    if integer is None:
        options["solver"] = "simplex" if len(programme.entry) <= _SIMPLEX_ENTRIES else "ipm"
    for name, setting in options.items():
        solver.setOptionValue(name, setting)
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
        np.zeros(columns, np.int32) if integer is None else integer.astype(np.int32),
    )
    if passed == highspy.HighsStatus.kError:
        raise SolverError(f"the solver refused a programme of {columns} columns and {rows} rows")
    return solver
