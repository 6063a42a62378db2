"""The generators that client code draws from: those of `random`, NumPy and PyTorch."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def own_generators() -> Iterator[None]:
    """Restore the generators of `random` and NumPy after client code: a task made in a notebook runs in the notebook's
    process. Those of PyTorch are restored by `ThisProcess`."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (what client code draws from)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def seed_generators(seed: int) -> None:
    """Seed them, and keep PyTorch on one thread. PyTorch is not imported for it: a client that has not done so yet is
    seeded at its next call."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.manual_seed(seed % 2**63)
