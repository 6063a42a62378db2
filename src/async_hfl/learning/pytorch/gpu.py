"""The device that PyTorch trains on, and arithmetic on a GPU that repeats and stays close to a processor's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from async_hfl.core.errors import SettingsError
from async_hfl.learning.engine.trainer import TorchDevice

PROCESSES = 4
"""Processes that share a GPU. With a small model one process spends most of its time in Python, so several keep the GPU
busier. But each has a CUDA context, some hundred megabytes of the GPU and more of the host, and a copy of the data; and
kernels of different processes take turns."""
_EXPECTED = (
    "RNN module weights are not part of single contiguous chunk",  # but of the flat vector
    "Please use the new API settings to control",  # which older releases do not have
    ".*does not have a deterministic implementation",  # of max pooling, for example: docs/own-task.md says so
)
"""Beginnings of warnings that are not shown."""


def torch_device(torch: Any, wanted: TorchDevice) -> Any:
    """Return the device: the first GPU that PyTorch sees, or the processor. Raises SettingsError if there is no GPU and
    it must be one."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "sees no GPU" if torch.version.cuda or torch.version.hip else "is built for processors only"
        raise SettingsError(
            f"engine.torch_device: is cuda, but PyTorch {torch.__version__} {reason}; check with `nvidia-smi` and "
            "CUDA_VISIBLE_DEVICES, install PyTorch for CUDA, or use auto"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, matrix products may not repeat
    for beginning in _EXPECTED:
        warnings.filterwarnings("ignore", message=beginning, category=UserWarning)
    return torch.device("cuda")


@contextmanager
def exact(torch: Any, device: Any, *, cudnn: bool = True) -> Iterator[None]:
    """On a GPU, compute in float32 without TF32, and by operations that repeat to the bit where PyTorch has them. The
    process's own settings come back at the end."""
    if device.type == "cpu":
        yield
        return
    memory = torch.utils.deterministic
    matmul, filled = torch.get_float32_matmul_precision(), memory.fill_uninitialized_memory
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.backends.cudnn.flags(enabled=cudnn, benchmark=False, deterministic=True, allow_tf32=False):
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False  # it takes time and changes no result of correct operations
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(matmul)
            torch.use_deterministic_algorithms(strict, warn_only=warns)
            memory.fill_uninitialized_memory = filled
