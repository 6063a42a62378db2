"""Calling a function from the user's file, and saying what is wrong with it in the user's terms.

Whatever goes wrong inside is the user's to mend, so it becomes a `PolicyError` that names the policy, where it was
asked, what is wrong and, for an exception, the line.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import numpy as np

from async_hfl.core.errors import PolicyError
from async_hfl.core.policies import Need
from async_hfl.core.serialization import to_plain

Problem = TypeVar("Problem")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which policy was asked, and where: the beginning of every message."""

    policy: str
    place: str

    def wrong(self, what: str) -> PolicyError:
        return PolicyError(f"{self.policy}{self.place}: {what}")

    def call(self, function: Callable[[Problem], object], problem: Problem) -> object:
        """The function's answer; a lazy one (a generator) is read here, so that it too fails here."""
        try:
            answer = function(problem)
            if isinstance(answer, Iterable) and not isinstance(answer, (str, bytes, Mapping, np.ndarray)):
                answer = list(answer)
        except (Exception, SystemExit) as error:  # a policy must not end the program either
            raise self.wrong(_told(error)) from error
        return answer

    def whole_numbers(self, answer: object, what: str) -> list[int]:
        """The answer as a list of int; `what` says what it should hold."""
        if isinstance(answer, np.ndarray):
            if answer.ndim != 1:
                raise self.wrong(f"returned an array of shape {answer.shape}; return {what} in one dimension")
            if answer.dtype == np.bool_:
                raise self.wrong(f"returned a mask of booleans; return {what}")
            answer = answer.tolist()
        if not isinstance(answer, (list, tuple)):
            raise self.wrong(f"returned {_kind(answer)}; return {what}")
        return [self.whole_number(entry, what) for entry in answer]

    def whole_number(self, entry: object, what: str) -> int:
        if isinstance(entry, (bool, np.bool_)):
            raise self.wrong(f"returned {entry} among its numbers; return {what}")
        try:
            return operator.index(entry)  # type: ignore[arg-type]  # that it may not be an index is the question
        except TypeError:
            raise self.wrong(f"returned {entry!r}, which is not a whole number; return {what}") from None

    def memory(self, memory: object) -> Mapping[str, Any]:
        """The memory, if it is a mapping that can be stored with the run."""
        if not isinstance(memory, Mapping):
            raise self.wrong(f"its memory is {_kind(memory)}; make it a dict")
        try:
            to_plain(memory)
        except TypeError as error:
            remedy = "keep numbers, strings, arrays, lists and dicts"
            raise self.wrong(f"its memory cannot be stored ({error}); {remedy}") from error
        return memory


def declared_needs(function: object, policy: str) -> frozenset[Need]:
    """The `needs` attribute of the function, if it has one."""
    declared = getattr(function, "needs", ())
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise PolicyError(f"{policy}: its needs are {declared!r}; write a set, such as {{'utility'}}")
    needs = frozenset(declared)
    known = get_args(Need)
    unknown = sorted(str(need) for need in needs if need not in known)
    if unknown:
        raise PolicyError(f"{policy}: it needs {unknown[0]!r}, which is not one of {', '.join(known)}")
    return needs


def _told(error: BaseException) -> str:
    """What was raised, and the last line of the user's own file that led to it."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"raised {type(error).__name__}: {error}{where}"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
