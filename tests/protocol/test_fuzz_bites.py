"""The fault simulation is worth something only if it finds faults: break the protocol in five ways; it must tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import async_hfl

SOURCE = Path(async_hfl.__file__).parent
SEEDS = 12
BREAKAGES = {
    "count an upload twice": (
        "nodes/cloud.py",
        "        if known is not None:\n            self._answer(upload, known)\n            return\n",
        "",
    ),
    "forget a release": (
        "nodes/rights.py",
        "    node.emit(Send(CLOUD, m.Released(grant, roster.knowledge(slot), warmup)))\n",
        "",
    ),
    "lose a timer": (
        "nodes/recovery.py",
        "        timers = [SetTimer(key, at) for key, at in self.timers.items()]\n",
        "        timers: list[SetTimer] = []\n        self.timers = {}\n",
    ),
    "restart staleness": (
        "nodes/gateway_mixing.py",
        "        state.base_epoch = epoch\n",
        "        state.base_epoch = epoch\n        state.gateway_epoch = 0\n",
    ),
    "drop a held update": (
        "nodes/gateway_mixing.py",
        "            held = self.state.held.pop(0)\n"
        "            self._mix(node, held.number, held.flight, held.update, at)\n",
        "            self.state.held.pop(0)\n",
    ),
}
PROGRAM = f"""
from async_hfl.assembly.fuzzing import fuzz
from async_hfl.core.errors import InvariantViolation
for seed in range({SEEDS}):
    try:
        fuzz(seed)
    except InvariantViolation as violation:
        raise SystemExit(f"caught at seed {{seed}}: {{violation}}")
"""


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_protocol_is_caught(name: str, tmp_path: Path) -> None:
    file, whole, broken = BREAKAGES[name]
    shutil.copytree(SOURCE, tmp_path / "async_hfl", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "async_hfl" / file
    text = path.read_text()
    assert text.count(whole) == 1, f"{file} has changed: break it anew"
    path.write_text(text.replace(whole, broken))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert "caught at seed" in done.stderr, done.stderr[-500:]
