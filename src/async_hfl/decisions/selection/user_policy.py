"""Selection by a function from the user's file, with the same contract as the built-in policies.

    def choose(problem):                                  # a core.policies.SelectionProblem
        fastest = problem.round_latency.argsort()
        room = problem.data_rate[fastest].cumsum() <= problem.capacity
        return problem.candidates[fastest[room]]

    choose.needs = {"utility"}                            # optional

`needs` requests learning utilities (or gradients) from the nodes. They cost bytes and time and are not kept otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.user_function import UserCall, declared_needs

_ROUNDING = 1e-9
"""Tolerance: the user may have added the rates in any order."""
_WHAT = "device numbers out of problem.candidates"


@dataclass(frozen=True, slots=True)
class OwnSelection:
    """Calls `function(problem)` for device numbers, or for a whole `Selection`, and checks the answer."""

    function: Callable[[SelectionProblem], object]
    name: str
    """The file and function as the user named them, for error messages."""
    needs: frozenset[Need] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", declared_needs(self.function, self._title()))

    def choose(self, problem: SelectionProblem) -> Selection:
        call = UserCall(self._title(), f" at gateway {problem.gateway}")
        answer = call.call(self.function, problem)
        if not isinstance(answer, Selection):
            return Selection(_checked(call, problem, answer))
        if answer.memory is not None:
            call.memory(answer.memory)
        return replace(answer, devices=_checked(call, problem, answer.devices))

    def _title(self) -> str:
        return f"selection policy {self.name}"


def _checked(call: UserCall, problem: SelectionProblem, answer: object) -> tuple[int, ...]:
    devices = call.whole_numbers(answer, _WHAT)
    position = {device: place for place, device in enumerate(problem.candidates.tolist())}
    seen: set[int] = set()
    for device in devices:
        if device not in position:
            raise call.error(f"chose device {device}, which is not a candidate; return {_WHAT}")
        if device in seen:
            raise call.error(f"chose device {device} twice")
        seen.add(device)
    rates = problem.data_rate[np.array([position[device] for device in devices], np.int64)]
    total = math.fsum(rates.tolist())
    if devices and total > problem.capacity + _ROUNDING * abs(problem.capacity):
        raise call.error(
            f"chose {len(devices)} devices that need {total:g} bytes per second where {problem.capacity:g} are free; "
            "keep the sum of problem.data_rate within problem.capacity"
        )
    return tuple(devices)
