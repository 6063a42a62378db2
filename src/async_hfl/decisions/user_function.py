"""Calls of functions from the user's file.

An exception or an invalid answer becomes an error that names the function, the place of the call, the problem and, for
an exception, the line in the user's file.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import numpy as np

from async_hfl.core.errors import PolicyError, UserError
from async_hfl.core.policies import Need
from async_hfl.core.serialization import to_plain

Problem = TypeVar("Problem")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class UserCall:
    """The function that is called, and the place of the call: the beginning of every error message."""

    function_name: str
    place: str
    kind: type[UserError] = PolicyError

    def error(self, problem: str) -> UserError:
        return self.kind(f"{self.function_name}{self.place}: {problem}")

    def call(self, function: Callable[[Problem], object], problem: Problem) -> object:
        """Return the function's answer. A generator is consumed here, so that its exceptions are caught as well."""
        try:
            answer = function(problem)
            if isinstance(answer, Iterable) and not isinstance(answer, (str, bytes, Mapping, np.ndarray)):
                answer = list(answer)
        except (Exception, SystemExit) as error:  # SystemExit too: a user's function must not end the program
            raise self.error(_describe(error)) from error
        return answer

    def whole_numbers(self, answer: object, what: str) -> list[int]:
        """Return the answer as a list of int; `what` describes the expected answer for the error message."""
        if isinstance(answer, np.ndarray):
            if answer.ndim != 1:
                raise self.error(f"returned an array of shape {answer.shape}; return {what} in one dimension")
            if answer.dtype == np.bool_:
                raise self.error(f"returned a mask of booleans; return {what}")
            answer = answer.tolist()
        if not isinstance(answer, (list, tuple)):
            raise self.error(f"returned {_kind(answer)}; return {what}")
        return [self.whole_number(entry, what) for entry in answer]

    def whole_number(self, entry: object, what: str) -> int:
        if isinstance(entry, (bool, np.bool_)):
            raise self.error(f"returned {entry} among its numbers; return {what}")
        try:
            return operator.index(entry)  # type: ignore[arg-type]  # may raise, that is the test
        except TypeError:
            raise self.error(f"returned {entry!r}, which is not a whole number; return {what}") from None

    def memory(self, memory: object) -> Mapping[str, Any]:
        """Return the memory if it is a mapping that can be stored with the run."""
        if not isinstance(memory, Mapping):
            raise self.error(f"its memory is {_kind(memory)}; make it a dict")
        try:
            to_plain(memory)
        except TypeError as error:
            remedy = "use numbers, strings, arrays, lists and dicts"
            raise self.error(f"its memory cannot be stored ({error}); {remedy}") from error
        return memory


def declared_needs(function: object, policy: str) -> frozenset[Need]:
    """Return the `needs` attribute of the function; empty if it has none."""
    declared = getattr(function, "needs", ())
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise PolicyError(f"{policy}: its needs are {declared!r}; write a set, such as {{'utility'}}")
    needs = frozenset(declared)
    known = get_args(Need)
    unknown = sorted(str(need) for need in needs if need not in known)
    if unknown:
        raise PolicyError(f"{policy}: it needs {unknown[0]!r}, which is not one of {', '.join(known)}")
    return needs


def _describe(error: BaseException) -> str:
    """Describe an exception by its type, its message and the last line of the user's file in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"raised {type(error).__name__}: {error}{where}"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
