"""Ahead-of-time compilation of one function for several devices."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.learning.engine import runtime
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.trainer import Precision

Program: TypeAlias = Callable[..., Any]

_MOST_PROGRAMS = 200
_programs: list[int] = []
"""Numbers of programs compiled since the last garbage collection."""
_counting = Lock()

_ALGORITHMS = {"float32": "highest", "tf32": "TF32_TF32_F32", "bf16": "BF16_BF16_F32"}


def compile_for(
    devices: Sequence[Any], function: Program, arguments: Sequence[Any], precision: Precision = "float32"
) -> list[Program]:
    """Return one program for each device, for arguments of these shapes. Programs return before their work is done."""
    jitted: Any = jax.jit(function)
    on_cpu = devices[0].platform == "cpu"
    lowered = []
    for device in devices:
        place = jax.sharding.SingleDeviceSharding(device)
        shapes = jax.tree.map(lambda part, at=place: like(*part.shape, dtype=part.dtype, sharding=at), tuple(arguments))
        # CPUs have one way to multiply; naming it would only change the program's key in the cache.
        with jax.default_matmul_precision(None if on_cpu else _ALGORITHMS[precision]):
            lowered.append(jitted.lower(*shapes))
    options = runtime.compiler_options() if on_cpu else {}
    _collect_garbage(len(lowered))
    # The compiler does not hold Python's lock: programs for many cores take hardly longer than one.
    with runtime.quiet_cache(), ThreadPoolExecutor(len(lowered)) as threads:
        return list(threads.map(lambda one: one.compile(compiler_options=options), lowered))


def like(*shape: int, dtype: npt.DTypeLike = np.float32, sharding: Any = None) -> Any:
    """Return a placeholder of this shape, to compile for."""
    array: Any = jax.ShapeDtypeStruct
    return array(shape, dtype, sharding=sharding)


def _collect_garbage(more: int) -> None:
    """Collect garbage after every `_MOST_PROGRAMS` programs. A program on a CPU takes some 85 memory mappings, of which
    a process has 65,530, and the programs of finished runs are part of reference cycles."""
    with _counting:
        _programs.append(more)
        due = sum(_programs) > _MOST_PROGRAMS
        if due:
            _programs.clear()
    if due:
        gc.collect()
