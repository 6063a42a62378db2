"""Peak rate of matrix products on this machine, by JAX."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from async_hfl.learning.engine.backend import jax, jnp
from async_hfl.learning.engine.compilation import compile_for
from async_hfl.learning.engine.trainer import Precision

_CPU_SIDE = 1024
_GPU_SIDE = 8192
_IN_A_ROW = 4


def matmul_peak(seconds: float) -> dict[str, float]:
    """Return FLOP/s by name: one_core and all_cores, or the precisions on an accelerator."""
    devices = jax.local_devices()
    if devices[0].platform == "cpu":
        return {
            "one_core": _rate(devices[:1], _CPU_SIDE, "float32", seconds),
            "all_cores": _rate(devices, _CPU_SIDE, "float32", seconds),
        }
    precisions: tuple[Precision, ...] = ("float32", "tf32", "bf16")
    return {precision: _rate(devices, _GPU_SIDE, precision, seconds) for precision in precisions}


def _rate(devices: list[Any], side: int, precision: Precision, seconds: float) -> float:
    def several(left: Any, right: Any) -> Any:
        for _ in range(_IN_A_ROW):
            left = jnp.matmul(left, right)
        return left

    # Scaled so that products of products neither vanish nor overflow.
    matrix = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32) / np.float32(side**0.5)
    programs = compile_for(devices, several, (matrix, matrix), precision)
    placed = [jax.device_put(matrix, device) for device in devices]

    def call() -> float:
        began = time.perf_counter()
        jax.block_until_ready([program(own, own) for program, own in zip(programs, placed, strict=True)])
        return time.perf_counter() - began

    call()
    began, best = time.perf_counter(), float("inf")
    while time.perf_counter() - began < seconds:
        best = min(best, call())
    return len(devices) * _IN_A_ROW * 2 * side**3 / best
