"""Errors of the user's client code: each names the task, the call, the device and the line of the user's code."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from async_hfl.core.errors import AsyncHflError, TaskError

_MAX_MESSAGE = 300
_KEYS = "; if the strategy or pyproject.toml gives it in Flower, give it as config= or run_config= to the adapter"
_HERE = Path(__file__).parents[1]
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


@dataclass(frozen=True, slots=True)
class ClientErrors:
    task: str
    """FILE.py:NAME, as the user wrote it."""

    def invalid(self, where: str, problem: str) -> TaskError:
        return TaskError(f"{self.task}: {where}: {problem}")

    @contextlib.contextmanager
    def during(self, where: str) -> Iterator[None]:
        """Turn an exception of the user's code into a TaskError. What it prints goes to the standard error, since the
        standard output belongs to the command."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except AsyncHflError as error:
            if str(error).startswith(self.task):
                raise
            raise self.invalid(where, str(error)) from error
        except (Exception, SystemExit) as error:  # SystemExit too: a client must not end the program
            message = (str(error).strip().splitlines() or [""])[0][:_MAX_MESSAGE]
            advice = _KEYS if isinstance(error, KeyError) else ""
            raise self.invalid(where, f"raised {type(error).__name__}: {message}{_line(error)}{advice}") from error


def _line(error: BaseException) -> str:
    """Return the last line of the traceback that is neither of this package nor of a library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_HERE) or frame.filename.startswith((*_LIBRARIES, "<")):
            continue
        return f" (line {frame.lineno} of {path.name})"
    return ""
