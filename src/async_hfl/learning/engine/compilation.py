"""Ahead-of-time compilation: one program for each device, from one traced function."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
"""Compiled since circles were last looked for."""
_counting = Lock()

_ALGORITHMS = {"float32": "highest", "tf32": "TF32_TF32_F32", "bf16": "BF16_BF16_F32"}


def compile_for(
    devices: Sequence[Any], function: Program, arguments: Sequence[Any], precision: Precision = "float32"
) -> list[Program]:
    """Compiled programs that take arrays shaped like these. They return before their work is done."""
    jitted: Any = jax.jit(function)
    on_cpu = devices[0].platform == "cpu"
    lowered = []
    for device in devices:
        place = jax.sharding.SingleDeviceSharding(device)
        # Processors have one way to multiply; naming it would only change the program's name in the cache.
        with jax.default_matmul_precision(None if on_cpu else _ALGORITHMS[precision]):
            lowered.append(jitted.lower(*jax.tree.map(partial(_like, place), tuple(arguments))))
    options = runtime.compiler_options() if on_cpu else {}
    _clear_away(len(lowered))
    # Compiling leaves Python, so the programs of many cores take hardly longer than one.
    with runtime.quiet_cache(), ThreadPoolExecutor(len(lowered)) as threads:
        return list(threads.map(lambda one: one.compile(compiler_options=options), lowered))


def like(*shape: int, dtype: npt.DTypeLike = np.float32) -> Any:
    """An argument of this shape, to compile for."""
    array: Any = jax.ShapeDtypeStruct
    return array(shape, dtype)


def _clear_away(more: int) -> None:
    """A program on a processor takes some 85 mappings of memory, of which a process has 65,530. Those of runs that have
    ended are part of circles of references, which go only when somebody looks for them: after so many programs."""
    with _counting:
        _programs.append(more)
        due = sum(_programs) > _MOST_PROGRAMS
        if due:
            _programs.clear()
    if due:
        gc.collect()


def _like(place: Any, part: Any) -> Any:
    shape: Any = jax.ShapeDtypeStruct
    return shape(part.shape, part.dtype, sharding=place)
