"""Saying what is wrong with the user's task in the user's terms: the file, the attribute, what and where."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from async_hfl.core.errors import AsyncHflError, TaskError

_LONGEST = 300
"""Letters of a raised message: JAX adds a page of advice to some."""


@dataclass(frozen=True, slots=True)
class Blame:
    task: str
    """FILE.py:NAME, as the user wrote it: the beginning of every message."""

    def wrong(self, attribute: str, what: str) -> TaskError:
        return TaskError(f"{self.task}: {attribute}: {what}")

    @contextmanager
    def calling(self, attribute: str) -> Iterator[None]:
        """Whatever the user's code raises is the user's to mend; our own errors pass."""
        try:
            yield
        except AsyncHflError:
            raise
        except (Exception, SystemExit) as error:  # a task must not end the program either
            raise self.wrong(attribute, self._told(error)) from error

    def _told(self, error: BaseException) -> str:
        """What was raised, and the last line of the user's file that led to it."""
        file = Path(self.task.rpartition(":")[0])
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if file.suffix == ".py" and Path(frame.filename).resolve() == file.resolve()
        ]
        said = str(error).strip().partition("\n")[0]
        if len(said) > _LONGEST:
            said = said[:_LONGEST] + " ..."
        return f"raised {type(error).__name__}: {said}" + (f" (line {lines[-1]} of {file})" if lines else "")
