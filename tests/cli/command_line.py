"""Helpers to call the command line, in this process or in a separate one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANG_GUARD_S = 300
"""Seconds after which a command is taken to hang; generous for slow machines."""
PROGRAM = str(Path(sys.executable).with_name("async-hfl"))
SMALL = ("--task", "null", "--network", "uniform", "--set", "task.devices=20", "--set", "cloud.epochs=3")
"""A run of a few milliseconds."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of stdout, which is the result with `--json`."""
        return json.loads(self.out.splitlines()[-1])

    def told(self) -> str:
        """Return the message of a failed command, after checking its form."""
        lines = self.err.splitlines()
        assert 1 <= len(lines) <= 6, self.err
        assert "Traceback" not in self.err
        assert lines[-1].startswith("async-hfl"), self.err
        assert ": error: " in lines[-1], self.err
        return lines[-1]


Call = Callable[..., Outcome]


def command(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `async-hfl` in a new process."""
    done = subprocess.run(
        [PROGRAM, *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD_S,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
