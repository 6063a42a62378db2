"""Who worked the numbers out: replay is exact to the bit only on the same versions and the same kind of processor."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np


def this_maker() -> dict[str, str]:
    return {
        "async_hfl": version("async-hfl"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
