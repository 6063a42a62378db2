"""Other solvers on the same problem, in one process each, because highspy and ortools cannot be imported together.

    python benchmarks/decision_rivals.py highs|ortools|gurobi selection KIND N SEED LIMIT_S
    python benchmarks/decision_rivals.py highs|ortools|gurobi association KIND N G SEED LIMIT_S

prints {"objective", "bound", "seconds"}, or {"missing": reason}. One thread each; building the model is not timed.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np

from async_hfl.core.policies import AssociationProblem, association_objective
from decision_instances import association, selection

_GRID = 1_000_000
"""CP-SAT has integers only: values and rates are rounded to this many steps of the largest one."""
Answer = dict[str, Any]


def highs_selection(values: Any, rates: Any, capacity: float, limit: float) -> Answer:
    return _highs(
        gain=values,
        lower=np.zeros(len(values)),
        upper=np.ones(len(values)),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([capacity]),
        start=np.arange(len(values) + 1),
        index=np.zeros(len(values)),
        entry=rates,
        integer=np.ones(len(values)),
        limit=limit,
    )


def highs_association(problem: AssociationProblem, limit: float) -> Answer:
    from async_hfl.decisions.association.balanced_utility import assignment_problem
    from async_hfl.decisions.solvers.relaxation import programme

    balance = assignment_problem(problem)[0]
    model = programme(balance)
    integer = np.append(np.ones(len(balance.device)), [0.0, 0.0])
    answer = _highs(
        gain=model.gain,
        lower=model.lower,
        upper=model.upper,
        row_lower=model.row_lower,
        row_upper=model.row_upper,
        start=model.column_start,
        index=model.row_index,
        entry=model.entry,
        integer=integer,
        limit=limit,
    )
    unit = balance.utility_unit() / float(model.gain[-2])
    return {
        key: None if value is None else value * (1.0 if key == "seconds" else unit) for key, value in answer.items()
    }


def _highs(
    *,
    gain: Any,
    lower: Any,
    upper: Any,
    row_lower: Any,
    row_upper: Any,
    start: Any,
    index: Any,
    entry: Any,
    integer: Any,
    limit: float,
) -> Answer:
    import highspy

    solver = highspy.Highs()
    for name, value in {"output_flag": False, "threads": 1, "parallel": "off", "time_limit": limit}.items():
        solver.setOptionValue(name, value)
    whole = [array.astype(np.int32) for array in (start, index, integer)]
    solver.passModel(
        len(gain),
        len(row_lower),
        len(entry),
        1,
        -1,
        0.0,
        gain,
        lower,
        upper,
        row_lower,
        row_upper,
        whole[0],
        whole[1],
        entry,
        whole[2],
    )
    started = time.process_time()
    solver.run()
    seconds, info = time.process_time() - started, solver.getInfo()
    found = info.primal_solution_status == 2
    bound = info.mip_dual_bound
    return {
        "objective": info.objective_function_value if found else None,
        "bound": bound if math.isfinite(bound) else None,
        "seconds": seconds,
    }


def ortools_selection(values: Any, rates: Any, capacity: float, limit: float) -> Answer:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in values]
    value_unit, rate_unit = values.max() / _GRID, rates.max() / _GRID
    weight = np.ceil(rates / rate_unit).astype(int).tolist()
    worth = np.round(values / value_unit).astype(int).tolist()
    model.add(sum(w * x for w, x in zip(weight, taken, strict=True)) <= int(capacity / rate_unit))
    model.maximize(sum(v * x for v, x in zip(worth, taken, strict=True)))
    solver = _cp_sat(limit)
    started = time.process_time()
    status = solver.solve(model)
    seconds = time.process_time() - started
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {"objective": None, "bound": None, "seconds": seconds}
    chosen = np.array([bool(solver.value(x)) for x in taken])
    return {
        "objective": float(values[chosen].sum()),
        "bound": solver.best_objective_bound * float(value_unit),
        "seconds": seconds,
    }


def ortools_association(problem: AssociationProblem, limit: float) -> Answer:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    used = [model.new_bool_var("") for _ in problem.link_device]
    unit = float(problem.learning_utility.max()) / _GRID
    utility = np.round(problem.learning_utility[problem.link_device] / unit).astype(int).tolist()
    load = problem.load_penalty * problem.link_data_rate / problem.bandwidth[problem.link_gateway] / unit
    loads = np.round(load).astype(int).tolist()
    most = int(sum(abs(u) for u in utility))
    least_utility, most_load = (
        model.new_int_var(-most, most, ""),
        model.new_int_var(0, int(load.sum()) + len(loads), ""),
    )
    for device in range(len(problem.learning_utility)):
        model.add_exactly_one(used[k] for k in np.flatnonzero(problem.link_device == device))
    for gateway in range(len(problem.bandwidth)):
        own = np.flatnonzero(problem.link_gateway == gateway).tolist()
        model.add(sum(utility[k] * used[k] for k in own) >= least_utility)
        model.add(sum(loads[k] * used[k] for k in own) <= most_load)
    model.maximize(least_utility - most_load)
    solver = _cp_sat(limit)
    started = time.process_time()
    status = solver.solve(model)
    seconds = time.process_time() - started
    bound = solver.best_objective_bound * unit
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {"objective": None, "bound": bound, "seconds": seconds}
    gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
    chosen = np.flatnonzero([solver.value(x) for x in used])
    gateway_of[problem.link_device[chosen]] = problem.link_gateway[chosen]
    return {"objective": association_objective(problem, gateway_of), "bound": bound, "seconds": seconds}


def _cp_sat(limit: float) -> Any:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = limit
    return solver


def gurobi_selection(values: Any, rates: Any, capacity: float, limit: float) -> Answer:
    import gurobipy

    model = _gurobi(limit)
    taken = model.addMVar(len(values), vtype="B")
    model.addConstr(rates @ taken <= capacity)
    model.setObjective(values @ taken, gurobipy.GRB.MAXIMIZE)
    return _gurobi_answer(model)


def gurobi_association(problem: AssociationProblem, limit: float) -> Answer:
    import gurobipy

    model = _gurobi(limit)
    used = model.addMVar(len(problem.link_device), vtype="B")
    slack = model.addMVar(2, lb=-gurobipy.GRB.INFINITY)
    utility = problem.learning_utility[problem.link_device]
    load = problem.link_data_rate / problem.bandwidth[problem.link_gateway]
    for device in range(len(problem.learning_utility)):
        model.addConstr(used[np.flatnonzero(problem.link_device == device)].sum() == 1)
    for gateway in range(len(problem.bandwidth)):
        own = np.flatnonzero(problem.link_gateway == gateway)
        model.addConstr(utility[own] @ used[own] >= slack[0])
        model.addConstr(load[own] @ used[own] <= slack[1])
    model.setObjective(slack[0] - problem.load_penalty * slack[1], gurobipy.GRB.MAXIMIZE)
    return _gurobi_answer(model)


def _gurobi(limit: float) -> Any:
    import gurobipy

    model = gurobipy.Model(env=gurobipy.Env(params={"OutputFlag": 0}))
    model.Params.Threads = 1
    model.Params.TimeLimit = limit
    return model


def _gurobi_answer(model: Any) -> Answer:
    started = time.process_time()
    model.optimize()
    seconds = time.process_time() - started
    return {"objective": model.ObjVal if model.SolCount else None, "bound": model.ObjBound, "seconds": seconds}


def main() -> None:
    rival, what, kind, *numbers = sys.argv[1:]
    try:
        if what == "selection":
            count, seed, limit = int(numbers[0]), int(numbers[1]), float(numbers[2])
            answer = globals()[f"{rival}_selection"](*selection(kind, count, seed), limit)
        else:
            devices, gateways, seed, limit = int(numbers[0]), int(numbers[1]), int(numbers[2]), float(numbers[3])
            answer = globals()[f"{rival}_association"](association(kind, devices, gateways, seed), limit)
    except ImportError:
        answer = {"missing": "not installed"}
    except Exception as error:
        answer = {"missing": "licence" if "size-limited" in str(error) else f"{type(error).__name__}: {error}"[:80]}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
