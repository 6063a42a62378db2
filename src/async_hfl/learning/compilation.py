"""Ahead-of-time compilation: one program for each host device, from one traced function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from async_hfl.learning import runtime
from async_hfl.learning.backend import jax

Program: TypeAlias = Callable[..., Any]


def compile_for(devices: Sequence[Any], function: Program, arguments: Sequence[Any]) -> list[Program]:
    """Compiled programs that take arrays shaped like these. They return before their work is done."""
    jitted: Any = jax.jit(function)
    shape: Any = jax.ShapeDtypeStruct
    lowered = []
    for device in devices:
        place = jax.sharding.SingleDeviceSharding(device)
        lowered.append(jitted.lower(*(shape(part.shape, part.dtype, sharding=place) for part in arguments)))
    options = runtime.compiler_options()
    # Compiling leaves Python, so the programs of many cores take hardly longer than one.
    with runtime.quiet_cache(), ThreadPoolExecutor(len(lowered)) as threads:
        return list(threads.map(lambda one: one.compile(compiler_options=options), lowered))
