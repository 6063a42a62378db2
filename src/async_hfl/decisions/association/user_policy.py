"""Association by a function from the user's file, with the same contract as the built-in policies.

    def solve(problem):                                   # a core.policies.AssociationProblem
        gateway_of = {}
        for device, gateway in zip(problem.link_device, problem.link_gateway):
            gateway_of.setdefault(device, gateway)        # the first gateway it can reach
        return gateway_of

It returns a gateway number per device (-1 for none), a mapping from device to gateway (no gateway for missing devices),
or a whole `Association`. The objective is always computed here, so that methods are comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.decisions.user_function import UserCall, declared_needs

_WHAT = "the gateway number of each device, -1 for none"


@dataclass(frozen=True, slots=True)
class OwnAssociation:
    """Calls `function(problem)` for the gateway of each device and checks the answer."""

    function: Callable[[AssociationProblem], object]
    name: str
    """The file and function as the user named them, for error messages."""
    revisits: ClassVar[bool] = True
    needs: frozenset[Need] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", declared_needs(self.function, self._title()))

    def solve(self, problem: AssociationProblem) -> Association:
        call = UserCall(self._title(), "")
        answer = call.call(self.function, problem)
        bound, memory = math.inf, dict[str, Any]()
        if isinstance(answer, Association):
            bound, memory, answer = answer.bound, dict(call.memory(answer.memory)), answer.gateway_of
        gateway_of = _gateways(call, problem, answer)
        _check(call, problem, gateway_of)
        objective = association_objective(problem, gateway_of)
        if not bound >= objective - 1e-9 * abs(objective):
            raise call.error(f"claims a bound of {bound:g}, but its association has an objective of {objective:g}")
        return Association(gateway_of, objective, max(bound, objective), memory)

    def _title(self) -> str:
        return f"association policy {self.name}"


def _gateways(call: UserCall, problem: AssociationProblem, answer: object) -> Ints:
    """Return the answer as one gateway number per device."""
    devices = len(problem.learning_utility)
    if not isinstance(answer, Mapping):
        numbers = call.whole_numbers(answer, _WHAT)
        if len(numbers) != devices:
            raise call.error(f"returned {len(numbers)} gateways for {devices} devices; return {_WHAT}")
        return _numbered(call, numbers)
    named = {}
    for key, gateway in answer.items():
        device = call.whole_number(key, "device numbers as keys")
        if not 0 <= device < devices:
            raise call.error(f"names device {device}, which is not one of 0..{devices - 1}")
        named[device] = call.whole_number(gateway, "gateway numbers as values")
    return _numbered(call, [named.get(device, -1) for device in range(devices)])


def _numbered(call: UserCall, gateways: list[int]) -> Ints:
    try:
        return np.array(gateways, np.int64)
    except OverflowError:
        raise call.error("returned a gateway number beyond any integer of 64 bits") from None


def _check(call: UserCall, problem: AssociationProblem, gateway_of: Ints) -> None:
    """Check that every link is feasible and, with `every_device`, that each device with a link has a gateway."""
    linked = np.zeros(len(gateway_of), bool)
    linked[problem.link_device] = True
    reached = np.zeros(len(gateway_of), bool)
    reached[problem.link_device[gateway_of[problem.link_device] == problem.link_gateway]] = True
    astray = np.flatnonzero(~reached & (gateway_of != -1))
    if len(astray):
        device = int(astray[0])
        raise call.error(f"puts device {device} at gateway {gateway_of[device]}, to which it has no link")
    left_out = np.flatnonzero(linked & ~reached)
    if problem.every_device and len(left_out):
        raise call.error(
            f"gives device {left_out[0]} no gateway although it has a link; "
            "give it one, or set association.every_device to false"
        )
