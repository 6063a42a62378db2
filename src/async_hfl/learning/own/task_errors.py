"""Errors of a user's task: each names the file, the attribute, the problem and, for an exception, the line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from async_hfl.core.errors import AsyncHflError, TaskError

_MAX_MESSAGE = 300
"""Characters kept of an exception's message: JAX adds a page of advice to some."""


@dataclass(frozen=True, slots=True)
class TaskErrors:
    """Makes the errors of one task."""

    task: str
    """FILE.py:NAME, as the user wrote it: the beginning of every message."""

    def invalid(self, attribute: str, problem: str) -> TaskError:
        return TaskError(f"{self.task}: {attribute}: {problem}")

    @contextmanager
    def during(self, attribute: str) -> Iterator[None]:
        """Turn any exception of the user's code into a TaskError. Errors of this package pass unchanged."""
        try:
            yield
        except AsyncHflError:
            raise
        except (Exception, SystemExit) as error:  # SystemExit too: a task must not end the program
            raise self.invalid(attribute, self._describe(error)) from error

    def _describe(self, error: BaseException) -> str:
        """Describe an exception by its type, its message and the last line of the user's file in its traceback."""
        file = Path(self.task.rpartition(":")[0])
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if file.suffix == ".py" and Path(frame.filename).resolve() == file.resolve()
        ]
        message = str(error).strip().partition("\n")[0]
        if len(message) > _MAX_MESSAGE:
            message = message[:_MAX_MESSAGE] + " ..."
        return f"raised {type(error).__name__}: {message}" + (f" (line {lines[-1]} of {file})" if lines else "")
