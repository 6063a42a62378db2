"""First weights as PyTorch draws them by default, so that a learning curve can be laid beside one of PyTorch's."""

from __future__ import annotations

from math import sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Drawn: TypeAlias = npt.NDArray[np.float64]


def uniform(random: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Drawn:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): He et al. 2015 with a = sqrt(5), for weights and for biases.

    `fan_in` is what one output is summed from; for the weights of an LSTM PyTorch takes the hidden size instead.
    """
    bound = 1 / sqrt(fan_in)
    return random.uniform(-bound, bound, shape)
