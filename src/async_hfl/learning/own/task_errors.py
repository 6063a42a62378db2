"""Errors of a user's task: each names the task, the attribute, the problem and, for an exception, the line."""

from __future__ import annotations

import os
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
    """FILE.py:NAME, or the name of a task made in Python, as the user wrote it: the beginning of every message."""

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
        """Describe an exception by its type, its message and the last line of the user's code in its traceback."""
        file = Path(self.task.rpartition(":")[0])
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if file.suffix == ".py" and Path(frame.filename).resolve() == file.resolve()]
        where = f" (line {own[-1].lineno} of {file})" if own else ""
        if not file.name:  # made in Python: in a cell, or in any file that is not a library's
            cells = [frame for frame in frames if not _in_library(frame.filename)]
            where = f" (line {cells[-1].lineno} of {cells[-1].name})" if cells else ""
        message = str(error).strip().partition("\n")[0]
        if len(message) > _MAX_MESSAGE:
            message = message[:_MAX_MESSAGE] + " ..."
        return f"raised {type(error).__name__}: {message}{where}"


def _in_library(file: str) -> bool:
    """True for the files of Python, of installed packages and of this one."""
    libraries = (Path(os.__file__).parent, Path(__file__).parents[2])
    return "site-packages" in file or any(Path(file).is_relative_to(folder) for folder in libraries)
