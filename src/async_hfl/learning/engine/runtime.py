"""Prepares JAX before it starts: host devices, compilation cache, silence.

* One host device per core, each running single-threaded programs: client after client on every core beats one client
  on all cores, and a thread pool inside a small model only adds waiting.
* Everything goes through JAX's configuration, not through XLA_FLAGS: an unknown flag there aborts the process, and
  environment variables would leak into child processes that want another number of devices.
* What the user has set (XLA_FLAGS, JAX_PLATFORMS, JAX_COMPILATION_CACHE_DIR, ...) is left as it is.

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
"""Host devices asked of JAX; None until `prepare` has run."""


def prepare(host_devices: int | None = None) -> None:
    """Configure JAX; the first call decides, later ones without an argument do nothing.

    `host_devices`, else the variable ASYNC_HFL_HOST_DEVICES, else the number of usable cores.
    """
    global _prepared
    if _prepared is not None:
        if host_devices not in (None, _prepared):
            raise InternalError(f"JAX was prepared with {_prepared} host devices, {host_devices} came too late")
        return
    wanted = _host_devices(host_devices)
    # Warnings and errors of the C++ side repeat what comes as an exception, or complain of a cache entry.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    config: Any = jax.config
    if not config.jax_platforms and not accelerator_installed():
        # JAX would look for other platforms first, and say so.
        config.update("jax_platforms", "cpu")
    if _DEVICE_COUNT_FLAG not in os.environ.get("XLA_FLAGS", ""):
        try:
            config.update("jax_num_cpu_devices", wanted)
        except RuntimeError as problem:
            # The caller's program has started JAX already: its devices serve as well, unless a number was asked for.
            if host_devices is not None:
                raise InternalError("JAX has started: the number of host devices cannot change any more") from problem
    if not config.jax_compilation_cache_dir:
        _use_cache(config)
    _prepared = wanted


def accelerator_installed() -> bool:
    """Is there a JAX plugin for a GPU or a TPU? They live in one namespace package."""
    try:
        return importlib.util.find_spec("jax_plugins") is not None
    except (ImportError, ValueError):
        return False


def platform_and_devices() -> tuple[str, int]:
    """What trains here: ("cpu", cores) or ("gpu", cards). JAX starts only where there may be an accelerator."""
    if not accelerator_installed():
        return "cpu", usable_cores()
    prepare()
    import jax

    devices = jax.local_devices()
    return ("cpu", usable_cores()) if devices[0].platform == "cpu" else (devices[0].platform, len(devices))


def compiler_options() -> dict[str, bool]:
    """Options of every program compiled for the CPU: no threads inside an operation."""
    return {} if _INTRA_OP_FLAG in os.environ.get("XLA_FLAGS", "") else {_INTRA_OP_FLAG: False}


@contextmanager
def quiet_cache() -> Iterator[None]:
    """A cache that cannot be read or written costs time, never a run; so it is not worth a warning either."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
        yield


def cache_directory() -> Path | None:
    """Where compiled programs are kept; None when there is no place to write.

    One folder per kind of processor: compiled code must not travel to another one with a home directory that several
    machines share.
    """
    root = cache_root()
    if root is None:
        return None
    directory = root / "compiled" / _processor()
    try:
        # Whoever can write here can have code run: so nobody but the user.
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
        # The default of one second would leave out every program of a small model.
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
    """Cores this process may use, which a container or taskset may have made fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """A short name of this kind of processor with its instruction sets."""
    facts = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            wanted = ("model name", "flags", "Features", "CPU part")
            facts += sorted({line for line in file if line.startswith(wanted)})
    except OSError:
        pass  # not Linux: the two facts above must do
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
