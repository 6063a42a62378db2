"""Peak rate of matrix products on this machine, by PyTorch."""

from __future__ import annotations

import time

import torch

_SIDE = 1024
_IN_A_ROW = 4
_SECONDS = 0.3


def matmul_peak() -> dict[str, float]:
    """Return FLOP/s on one thread and on all; nothing on an accelerator, where JAX measures it."""
    if torch.cuda.is_available():
        return {}
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = _rate()
    finally:
        torch.set_num_threads(threads)
    return {"one_core": one, "all_cores": _rate()}


def _rate() -> float:
    matrix = torch.randn(_SIDE, _SIDE)
    result = torch.empty_like(matrix)
    began, best = time.perf_counter(), float("inf")
    while time.perf_counter() - began < _SECONDS:
        start = time.perf_counter()
        for _ in range(_IN_A_ROW):
            torch.matmul(matrix, matrix, out=result)
        best = min(best, time.perf_counter() - start)
    return _IN_A_ROW * 2 * _SIDE**3 / best
