"""Configuration of JAX before it starts: host devices, compilation cache, log messages.

* One host device per core, each running single-threaded programs: one job per core is faster than one job on all cores,
  and a thread pool inside a small model only adds waiting.
* Options are set through JAX's configuration, not through XLA_FLAGS: an unknown flag there aborts the process, and
  environment variables would leak into child processes that need another number of devices.
* Variables that the user has set (XLA_FLAGS, JAX_PLATFORMS, JAX_COMPILATION_CACHE_DIR, ...) are respected.

This module imports JAX only inside `prepare`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from async_hfl.core.errors import InternalError, SettingsError
from async_hfl.learning.cache import CACHE_VARIABLE as CACHE_VARIABLE
from async_hfl.learning.cache import cache_root

HOST_DEVICES_VARIABLE = "ASYNC_HFL_HOST_DEVICES"

_DEVICE_COUNT_FLAG = "xla_force_host_platform_device_count"
_INTRA_OP_FLAG = "xla_cpu_multi_thread_eigen"

_prepared: int | None = None
"""Number of host devices requested from JAX; None until `prepare` has run."""


def prepare(host_devices: int | None = None) -> None:
    """Configure JAX. The first call decides; later calls without an argument do nothing.

    The number of host devices is the argument, else the variable ASYNC_HFL_HOST_DEVICES, else that of usable cores.
    """
    global _prepared
    if _prepared is not None:
        if host_devices not in (None, _prepared):
            raise InternalError(f"JAX has {_prepared} host devices: it is too late to ask for {host_devices}")
        return
    wanted = _host_devices(host_devices)
    # Log messages of the C++ code repeat exceptions or complain about a cache entry.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    config: Any = jax.config
    if not config.jax_platforms and not accelerator_installed():
        # JAX would look for other platforms first, and log it.
        config.update("jax_platforms", "cpu")
    if _DEVICE_COUNT_FLAG not in os.environ.get("XLA_FLAGS", ""):
        try:
            config.update("jax_num_cpu_devices", wanted)
        except RuntimeError as problem:
            # The caller's program has started JAX already. Its devices will do, unless a number was requested.
            if host_devices is not None:
                raise InternalError("JAX has started: it is too late to change the number of host devices") from problem
    if not config.jax_compilation_cache_dir:
        _use_cache(config)
    _prepared = wanted


def accelerator_installed() -> bool:
    """True if there is a JAX plugin for a GPU or a TPU; all plugins are in one namespace package."""
    try:
        return importlib.util.find_spec("jax_plugins") is not None
    except (ImportError, ValueError):
        return False


def platform_and_devices() -> tuple[str, int]:
    """Return ("cpu", cores) or ("gpu", devices). Starts JAX only if there may be an accelerator."""
    if not accelerator_installed():
        return "cpu", usable_cores()
    prepare()
    import jax

    devices = jax.local_devices()
    return ("cpu", usable_cores()) if devices[0].platform == "cpu" else (devices[0].platform, len(devices))


def compiler_options() -> dict[str, bool]:
    """Return the options of every program compiled for a CPU: no threads inside an operation."""
    return {} if _INTRA_OP_FLAG in os.environ.get("XLA_FLAGS", "") else {_INTRA_OP_FLAG: False}


@contextmanager
def quiet_cache() -> Iterator[None]:
    """Suppress warnings of a cache that cannot be read or written: it costs time, but no run fails."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
        yield


def cache_directory() -> Path | None:
    """Return the directory of compiled programs, or None if it cannot be written.

    There is one directory per kind of processor: several machines may share a home directory, but not compiled code.
    """
    root = cache_root()
    if root is None:
        return None
    directory = root / "compiled" / _processor()
    try:
        # Write access here allows code execution: only for the user.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def _use_cache(config: Any) -> None:
    directory = cache_directory()
    if directory is None:
        return
    config.update("jax_compilation_cache_dir", str(directory))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # The default of one second would exclude every program of a small model.
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _host_devices(asked: int | None) -> int:
    if asked is not None:
        number, origin = asked, "host_devices"
    elif text := os.environ.get(HOST_DEVICES_VARIABLE, ""):
        origin = HOST_DEVICES_VARIABLE
        try:
            number = int(text)
        except ValueError:
            raise SettingsError(f"{origin}={text!r} is not a whole number") from None
    else:
        return usable_cores()
    if number < 1:
        raise SettingsError(f"{origin}={number} must be at least 1")
    return number


def usable_cores() -> int:
    """Return the number of cores that this process may use; a container or taskset may limit them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return a short identifier of this kind of processor and its instruction sets."""
    facts = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            wanted = ("model name", "flags", "Features", "CPU part")
            facts += sorted({line for line in file if line.startswith(wanted)})
    except OSError:
        pass  # not Linux: the two facts above must suffice
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
