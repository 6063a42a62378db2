"""benchmarks/codec.py sees differences, and prints its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import codec
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "codec.py"
HANG_GUARD_S = 300


def test_one_line_of_json() -> None:
    arguments = [sys.executable, str(SCRIPT), "--quick", "--cases", "3", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["compared"]["cases"] == 3
    assert [(row["kind"], row["size"]) for row in found["speeds"]] == [(kind, 72_710) for kind in codec.KINDS]
    assert all(row[name] > 0 for row in found["speeds"] for name in ("encode", "encode_change", "decode"))


def test_other_random_numbers_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ops, encode, change = DeviceOps(jax.local_devices()[0]), codec.encode, codec.encode_change
    weights, base = (frozen(np.random.default_rng(seed).standard_normal(63).astype(np.float32)) for seed in (1, 2))
    for kind in codec.KINDS:
        assert codec.compare(kind, (weights, base, None), 63, 5, ops) == []
    monkeypatch.setattr(codec, "encode", lambda *arguments: encode(*arguments[:-1], 6))
    monkeypatch.setattr(codec, "encode_change", lambda *arguments: change(*arguments[:-1], 6))
    seen = ["memory", "vector: bytes", "vector: decoded", "change: bytes", "change: decoded"]
    for kind in codec.KINDS:
        assert codec.compare(kind, (weights, base, None), 63, 5, ops) == seen
    with pytest.raises(SystemExit, match=r"case \d of seed 1, .*bytes"):
        codec.check(9, 1, ops)


def test_bits_are_compared() -> None:
    def floats(*bits: int) -> codec.HostVector:
        return np.array(bits, np.uint32).view(np.float32)

    assert codec.same(floats(0x3F800000, 0x7FC00000), floats(0x3F800000, 0xFF800001)), "both NaN"
    assert not codec.same(floats(0), floats(0x80000000)), "zeros of different signs"
    assert not codec.same(floats(0x3F800000), floats(0x3F800001))
    assert not codec.same(floats(1), floats(0)), "a subnormal number"
    assert not codec.same(floats(0x7F800000), floats(0x7FC00000)), "infinity and NaN"
