"""Sending questions to ns-3, which runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError

NOT_INSTALLED = 3
"""Exit code of the probe if ns-3 cannot be imported."""
_HANG_GUARD_S = 3600
_PROBE = Path(__file__).with_name("probe.py")


def ask(request: dict[str, Any], python: Path | None = None) -> dict[str, Any]:
    """Run `probe.py` with the given Python (default: the running one) and return its answer."""
    program = str(python or sys.executable)
    try:
        done = subprocess.run(
            [program, str(_PROBE)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_HANG_GUARD_S,
            check=False,
        )
    except OSError as error:
        raise UserError(
            f"{program}: cannot be started ({error.strerror or error}); name a Python that has ns3"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"ns-3 has not answered within {_HANG_GUARD_S} s; ask for less (--quick)") from error
    if done.returncode == NOT_INSTALLED:
        raise UserError(
            f"ns-3 is not installed for {program}: pip install 'async-hfl[ns3]' (Linux, 520 MB, GPL), "
            "or name another Python that has it with --python PATH"
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"ns-3 failed (exit code {done.returncode}): {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
