"""The log output of a node: lines of text for people, or one JSON object per line for log collectors.

A peer can cause lines, so lines of one kind are limited: a disk full of refusals would end the node.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]
_MINUTE_S = 60.0
_MOST_WARNINGS, _MOST_LINES = 30, 600
"""Lines of one kind a minute."""
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """Formats a record as {"time", "level", "logger", "role", "node", "message"}, and "error" with its traceback."""

    def __init__(self, role: str, node: str) -> None:
        super().__init__()
        self._node = {"role": role, "node": node}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class LimitRepeats(logging.Filter):
    """Lets pass so many lines of one kind (one text before its values are filled in) a minute.

    The first line of the next minute says how many were left out."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._minutes: dict[tuple[str, str], list[float]] = {}
        """For each kind: the beginning of its minute, and the number of lines since."""

    def filter(self, record: logging.LogRecord) -> bool:
        most = _MOST_WARNINGS if record.levelno >= logging.WARNING else _MOST_LINES
        now = self._monotonic()
        minute = self._minutes.setdefault((record.name, str(record.msg)), [now, 0])
        if now - minute[0] >= _MINUTE_S:
            left_out = int(minute[1]) - most
            minute[:] = [now, 0]
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} more like this were not logged)"
                record.args = ()
        minute[1] += 1
        return minute[1] <= most


def set_up_logs(level: str, form: LogFormat, role: str, node: str, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(LimitRepeats())
    handler.setFormatter(JsonLines(role, node) if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("jax").setLevel(logging.WARNING)
