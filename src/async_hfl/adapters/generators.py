"""Seeding of the generators that client code draws from: those of `random`, NumPy and PyTorch."""

from __future__ import annotations

import random
import sys

import numpy as np


def seed_generators(seed: int) -> None:
    """Seed them, and keep PyTorch on one thread. PyTorch is not imported for it: a client that has not done so yet is
    seeded at its next call."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what client code draws from)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.manual_seed(seed % 2**63)
