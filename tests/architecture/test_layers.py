"""The import contracts of pyproject.toml, checked by import-linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANG_GUARD_S = 300


def test_import_contracts_are_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Layers: downward only, siblings do not see each other KEPT" in done.stdout
    assert ", 0 broken" in done.stdout
