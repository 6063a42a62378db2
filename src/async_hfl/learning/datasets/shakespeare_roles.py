"""The speeches of every role in Project Gutenberg's complete works of 1994.

A work begins at the line `by William Shakespeare`; its title is the line of text before. In a play a speech begins with
two blanks, the role's name, a full stop and a blank; its further lines have four blanks or more. *The Comedy of Errors*
is set differently: no blanks before a name, one before further lines. World Library's notice recurs everywhere and is
not a speech. These are the rules by which LEAF (Caldas et al., arXiv:1812.01097) and before it McMahan et al. (AISTATS
2017) split the text; as there, stage directions within a speech are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from async_hfl.core.errors import DataError

_AUTHOR = "by William Shakespeare"
_OTHER_LAYOUT = "THE COMEDY OF ERRORS"
_NOT_PLAYS = {"THE SONNETS", "A LOVER'S COMPLAINT"}
_NAME = r"([a-zA-Z][a-zA-Z ]*)\. (.*)"
_SPEECH, _CONTINUATION = re.compile(f"  {_NAME}"), re.compile(r"    (.*)")
_OTHER_SPEECH, _OTHER_CONTINUATION = re.compile(_NAME), re.compile(r" (.*)")
_BLANKS = re.compile(r"\s+")

Role = tuple[str, str]
"""Play and name."""


def speeches(text: str) -> Mapping[Role, str]:
    """Return each role's speeches as one text with single blanks; roles are in the order of their first speech."""
    lines = text.split("\n")
    said: dict[Role, list[str]] = {}
    for title, first, last in _works(lines):
        if title not in _NOT_PLAYS:
            _read_play(title, lines[first:last], said)
    if not said:
        raise DataError("there is no play in the text: not one line starts a speech")
    return {role: _BLANKS.sub(" ", " ".join(parts)).strip() for role, parts in said.items()}


def _works(lines: list[str]) -> list[tuple[str, int, int]]:
    """Yield title, first line and end of each work."""
    starts = [number for number, line in enumerate(lines) if line.strip() == _AUTHOR]
    works = []
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=False):
        title = next((line.strip() for line in reversed(lines[:start]) if line.strip()), "")
        works.append((title, start + 1, stop))
    return works


def _read_play(title: str, lines: list[str], said: dict[Role, list[str]]) -> None:
    speech, continuation = (_OTHER_SPEECH, _OTHER_CONTINUATION) if title == _OTHER_LAYOUT else (_SPEECH, _CONTINUATION)
    current: list[str] | None = None
    in_notice = False
    for line in lines:
        if in_notice or line.lstrip().startswith("<<"):
            in_notice = ">>" not in line
        elif match := speech.match(line):
            # One role is written both HAMLET and Hamlet.
            name = match[1].upper()
            is_heading = name.startswith("ACT ")
            current = None if is_heading else said.setdefault((title, name), [])
            if current is not None:
                current.append(match[2])
        elif current is not None and (match := continuation.match(line)):
            current.append(match[1])
