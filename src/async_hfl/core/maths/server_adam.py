"""Adam on the averages of the cloud: FedAdam, algorithm 2 of Reddi et al., Adaptive Federated Optimization, ICLR 2021.

With W' = sum_j c_j w_j the average of the uploads and W the global model, Delta = W' - W takes the place of a gradient:

    m <- beta_1 m + (1 - beta_1) Delta
    v <- beta_2 v + (1 - beta_2) Delta^2
    W <- W + eta m / (sqrt(v) + tau)

In the beginning m = 0 and v = tau^2, and no bias is corrected, as in the paper. Sums are computed in double precision.
Running statistics, which come after the first `trained` numbers of a model, are those of W'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from async_hfl.core.vectors import HostVector, to_host
from async_hfl.core.weights import Weights, frozen


@dataclass(frozen=True, slots=True)
class ServerAdam:
    """The hyperparameters."""

    rate: float
    """eta."""
    beta1: float
    beta2: float
    epsilon: float
    """tau."""


@dataclass(frozen=True, slots=True)
class Moments:
    """m and v, of the trained numbers."""

    mean: HostVector
    square: HostVector


def adam_average(
    adam: ServerAdam,
    current: Weights,
    moments: Moments | None,
    models: Sequence[Weights],
    shares: Sequence[float],
    trained: int,
) -> tuple[Weights, Moments]:
    """Return the next global model, on the host, and the moments. `moments` is None before the first average.

    The uploads are averaged here: for numbers that hardly change, rounding W' would be amplified by 1 / tau."""
    averaged = np.zeros(len(current))
    for model, share in zip(models, shares, strict=True):
        averaged += share * to_host(model).astype(np.float64)
    before = to_host(current)[:trained].astype(np.float64)
    step = averaged[:trained] - before
    if moments is None:
        mean, square = np.zeros(trained), np.full(trained, adam.epsilon**2)
    else:
        mean, square = moments.mean.astype(np.float64), moments.square.astype(np.float64)
    mean = adam.beta1 * mean + (1 - adam.beta1) * step
    square = adam.beta2 * square + (1 - adam.beta2) * step * step
    averaged[:trained] = before + adam.rate * mean / (np.sqrt(square) + adam.epsilon)
    after = Moments(frozen(mean.astype(np.float32)), frozen(square.astype(np.float32)))
    return frozen(averaged.astype(np.float32)), after
