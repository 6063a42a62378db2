"""Records which async_hfl functions every process enters, and when; Python imports this at start-up.

Used by benchmarks/structure.py, which puts this folder on PYTHONPATH and a folder for the results into
ASYNC_HFL_TRACE. Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_MARKS = {"JobRecord": "job", "Solve": "solve", "AssociationRecord": "association"}
"""Values whose making marks a point in time. A selection is marked when a selection policy is asked to choose."""
_PACKAGE = f"{os.sep}async_hfl{os.sep}"

_calls: list[tuple[int, CodeType]] = []
_marks: list[tuple[int, str]] = []


def _entered(frame: FrameType, event: str, _: Any) -> None:
    if event != "call":
        return
    code = frame.f_code
    if code.co_name == "__init__":
        mark = _MARKS.get(type(frame.f_locals.get("self")).__name__)
        if mark is not None and not _is_warmup(frame):
            _marks.append((time.monotonic_ns(), mark))
    if _PACKAGE not in code.co_filename:
        return
    if code.co_name == "choose" and "selection" in code.co_filename:
        _marks.append((time.monotonic_ns(), "selection"))
    _calls.append((time.monotonic_ns(), code))


def _is_warmup(frame: FrameType) -> bool:
    return "warmup" in frame.f_locals.values()


def _properties() -> set[CodeType]:
    found: set[CodeType] = set()
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("async_hfl"):
            for kind in (value for value in vars(module).values() if inspect.isclass(value)):
                for value in vars(kind).values():
                    accessors = (getattr(value, name, None) for name in ("fget", "fset", "func"))
                    found.update(accessor.__code__ for accessor in accessors if inspect.isfunction(accessor))
    return found


def _save() -> None:
    sys.setprofile(None)
    properties = _properties()
    names: dict[CodeType, str] = {}
    for _, code in _calls:
        counted = not code.co_name.startswith(("__", "<")) and code not in properties
        where = code.co_filename.rpartition(_PACKAGE)[2]
        names[code] = f"{where}:{code.co_qualname}" if counted else ""
    calls = [(at, names[code]) for at, code in _calls if names[code]]
    file = Path(os.environ["ASYNC_HFL_TRACE"]) / f"{os.getpid()}.trace.json"
    file.write_text(json.dumps({"marks": _marks, "calls": calls}))


if "ASYNC_HFL_TRACE" in os.environ:
    atexit.register(_save)
    threading.setprofile(_entered)
    sys.setprofile(_entered)
