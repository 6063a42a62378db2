"""Policies from the user's file: they are called, their answers are checked, and errors are helpful."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from decision_problems import association_problem, selection_problem

from async_hfl.core.errors import PolicyError
from async_hfl.core.policies import Association, AssociationProblem, Selection, SelectionProblem
from async_hfl.decisions.association.user_policy import OwnAssociation
from async_hfl.decisions.selection.user_policy import OwnSelection

PROBLEM = selection_problem(np.array([1.0, 2.0, 3.0]), 4.0)
NETWORK = association_problem([1.0, 2.0, 3.0], [1.0, 1.0], [(0, 0), (0, 1), (1, 1)], [0.5, 0.5, 0.5])


def choosing(answer: object) -> OwnSelection:
    return OwnSelection(lambda _: answer, "mine.py:choose")


def placing(answer: object) -> OwnAssociation:
    return OwnAssociation(lambda _: answer, "mine.py:solve")


@pytest.mark.parametrize(
    "answer", [[10, 14], (10, 14), np.array([10, 14]), np.array([10, 14], np.int32), [np.int64(10), np.uint8(14)]]
)
def test_device_numbers_in_any_container(answer: object) -> None:
    assert choosing(answer).choose(PROBLEM) == Selection((10, 14))


def test_a_generator_and_a_set_are_read() -> None:
    def lazily(problem: SelectionProblem) -> Iterator[int]:
        yield int(problem.candidates[2])

    assert OwnSelection(lazily, "mine.py").choose(PROBLEM).devices == (14,)
    assert choosing({12}).choose(PROBLEM).devices == (12,)


def test_a_whole_selection_keeps_what_it_says() -> None:
    answer = Selection((np.int64(12),), 0.5, 0.7, {"rounds": 3})  # type: ignore[arg-type]
    selection = choosing(answer).choose(PROBLEM)
    assert selection == Selection((12,), 0.5, 0.7, {"rounds": 3})
    assert type(selection.devices[0]) is int


def test_an_empty_selection_is_valid() -> None:
    assert choosing([]).choose(PROBLEM) == Selection(())
    assert choosing([]).choose(selection_problem(np.array([1.0]), -2.0)) == Selection(())


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "returned None; return device numbers out of problem.candidates"),
        ("10", "returned a str"),
        ({10: 1}, "returned a dict"),
        (10, "returned a int"),
        ([11], "chose device 11, which is not a candidate"),
        ([10, 10], "chose device 10 twice"),
        ([12, 14], "chose 2 devices that need 5 bytes per second where 4 are free"),
        ([10.0], "returned 10.0, which is not a whole number"),
        (np.array([10.0]), "returned 10.0, which is not a whole number"),
        (["10"], "returned '10', which is not a whole number"),
        (np.array([True, False, True]), "returned a mask of booleans"),
        ([True], "returned True among its numbers"),
        (np.array([[10]]), r"returned an array of shape \(1, 1\)"),
        (Selection((99,)), "chose device 99"),
        (Selection((), memory=[1]), "its memory is a list"),  # type: ignore[arg-type]
        (Selection((), memory={"model": object()}), "its memory cannot be stored"),
    ],
)
def test_wrong_selections(answer: object, what: str) -> None:
    with pytest.raises(PolicyError, match=f"^selection policy mine.py:choose at gateway 3: {what}"):
        choosing(answer).choose(PROBLEM)


def test_rounding_in_the_users_sum_is_tolerated() -> None:
    """0.1 + 0.2 + 0.3 in one order is 0.6, in another 0.6000000000000001."""
    problem = selection_problem(np.array([0.1, 0.2, 0.3]), 0.6 * (1.0 - 1e-15))
    assert len(choosing([10, 12, 14]).choose(problem).devices) == 3


def fails(problem: SelectionProblem) -> list[int]:
    return [int(problem.candidates[0]) // 0]


def fails_in_numpy(problem: SelectionProblem) -> object:
    return np.reshape(problem.candidates, (2, 2))


def fails_late(problem: SelectionProblem) -> Iterator[int]:
    yield int(problem.candidates[0])
    raise KeyError("loss")


@pytest.mark.parametrize(
    ("function", "what"),
    [(fails, "ZeroDivisionError"), (fails_in_numpy, "ValueError"), (fails_late, "KeyError: 'loss'")],
)
def test_an_exception_is_reported_with_its_line_in_the_users_file(
    function: Callable[[SelectionProblem], object], what: str
) -> None:
    with pytest.raises(PolicyError, match=r"^selection policy mine\.py at gateway 3: raised") as raised:
        OwnSelection(function, "mine.py").choose(PROBLEM)
    assert what in str(raised.value)
    last_line = function.__code__.co_firstlineno + (2 if function is fails_late else 1)
    assert f"(line {last_line} of {__file__})" in str(raised.value)
    assert raised.value.__cause__ is not None


class Needy:
    """A callable object may declare its needs as well as a function."""

    def __init__(self, needs: object) -> None:
        self.needs = needs

    def __call__(self, problem: object) -> object:
        return []


def test_needs_are_honoured() -> None:
    assert choosing([]).needs == frozenset()
    assert OwnSelection(Needy({"utility"}), "mine.py").needs == {"utility"}
    assert OwnAssociation(Needy(["utility", "gradients"]), "mine.py").needs == {"utility", "gradients"}


@pytest.mark.parametrize(
    ("needs", "what"), [("utility", "write a set"), (3, "write a set"), ({"losses"}, "'losses', which is not one of")]
)
def test_wrong_needs_are_reported_before_the_run(needs: object, what: str) -> None:
    with pytest.raises(PolicyError, match=f"selection policy mine.py: .*{what}"):
        OwnSelection(Needy(needs), "mine.py")
    with pytest.raises(PolicyError, match=f"association policy mine.py: .*{what}"):
        OwnAssociation(Needy(needs), "mine.py")


@pytest.mark.parametrize("answer", [[0, 1, -1], np.array([0, 1, -1]), {0: 0, 1: 1}, {np.int64(0): np.int64(0), 1: 1}])
def test_gateways_in_any_container(answer: object) -> None:
    association = placing(answer).solve(NETWORK)
    assert association.gateway_of.tolist() == [0, 1, -1]
    assert association.gateway_of.dtype == np.int64
    # By hand: the least utility is that of gateway 0, 1.0; both loads are 0.5.
    assert association.objective == pytest.approx(1.0 - 0.1 * 0.5)
    assert association.bound == math.inf


def test_a_whole_association_keeps_bound_and_memory_but_not_its_objective() -> None:
    answer = Association(np.array([0, 1, -1]), 1e6, 2.0, {"rounds": 3})
    association = placing(answer).solve(NETWORK)
    assert association.objective == pytest.approx(0.95)
    assert (association.bound, association.memory) == (2.0, {"rounds": 3})


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "returned None; return the gateway number of each device, -1 for none"),
        ([0, 1], "returned 2 gateways for 3 devices"),
        ([0.5, 1, -1], "returned 0.5, which is not a whole number"),
        ([0, 0, -1], "puts device 1 at gateway 0, to which it has no link"),
        ([0, 1, 1], "puts device 2 at gateway 1, to which it has no link"),
        ([7, 1, -1], "puts device 0 at gateway 7, to which it has no link"),
        ([-2, 1, -1], "puts device 0 at gateway -2, to which it has no link"),
        ([2**70, 1, -1], "returned a gateway number beyond"),
        ([0, -1, -1], "gives device 1 no gateway although it has a link"),
        ({0: 0}, "gives device 1 no gateway although it has a link"),
        ({0: 0, 1: 1, 5: 0}, "names device 5, which is not one of 0..2"),
        ({"a": 0}, "returned 'a', which is not a whole number; return device numbers as keys"),
        ({0: None}, "returned None, which is not a whole number; return gateway numbers as values"),
        (np.zeros((3, 2), int), r"returned an array of shape \(3, 2\)"),
        (Association(np.array([0, 1, -1]), 0.0, 0.5), "claims a bound of 0.5, but its association has an objective"),
        (Association(np.array([0, 1, -1]), 0.0, math.nan), "claims a bound of nan"),
    ],
)
def test_wrong_associations(answer: object, what: str) -> None:
    with pytest.raises(PolicyError, match=f"^association policy mine.py:solve: {what}"):
        placing(answer).solve(NETWORK)


def test_a_device_may_be_left_out_where_the_problem_allows() -> None:
    free = association_problem([1.0, 2.0], [1.0], [(0, 0), (1, 0)], [0.5, 0.5], every_device=False)
    assert placing({0: 0}).solve(free).gateway_of.tolist() == [0, -1]


def test_an_exception_in_an_association_is_reported() -> None:
    def broken(problem: AssociationProblem) -> object:
        return problem.learning_utility["gateway"]  # type: ignore[call-overload]

    with pytest.raises(PolicyError, match=r"^association policy mine\.py: raised IndexError: .*\(line"):
        OwnAssociation(broken, "mine.py").solve(NETWORK)
