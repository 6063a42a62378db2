"""Mixing on arrival (Algorithm 1, lines 8 and 21, generalised by `drag`), and the averages of the other families.

The paper's rule w <- (1 - b) w + b w_i is, with w_s the model the device started from,

    w + b (w_i - w_s) + drag * b (w_s - w),        drag = 1.

The last term pulls the aggregate back towards an old model; drag 0 is pure delta mixing.

Averages are weighted by samples n_i: sum n_i w_i / sum n_i (FedAvg), and of what training changed,
w + sum n_i s_i (w_i - w_sent) / sum n_i, s_i <= 1 a discount for age (FedBuff). Sums are taken in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from async_hfl.core.device_vector import blend_on_device, here
from async_hfl.core.weights import Weights, frozen


def mix(current: Weights, received: Weights, weight: float) -> Weights:
    """(1 - weight) current + weight received: the paper's rule."""
    afar = blend_on_device(current, (received,), (weight,))
    if afar is not None:
        return afar
    # One new array, changed in place: for a large model getting memory costs more than adding.
    step = here(received) - here(current)
    step *= np.float32(weight)
    step += here(current)
    return frozen(step)


def mix_with_drag(current: Weights, received: Weights, sent: Weights, weight: float, drag: float) -> Weights:
    """current + weight (received - sent) + drag * weight (sent - current); the coefficients always sum to 1."""
    if drag == 1.0:
        return mix(current, received, weight)
    afar = blend_on_device(current, (received, sent), (weight, (drag - 1.0) * weight))
    if afar is not None:
        return afar
    step = here(received) - here(sent)
    if drag != 0.0:
        pull = here(sent) - here(current)
        pull *= np.float32(drag)
        step += pull
    step *= np.float32(weight)
    step += here(current)
    return frozen(step)


def shares(samples: Sequence[int]) -> list[float]:
    """n_i / sum n_i; equal shares where nobody has a sample."""
    total = sum(samples)
    return [count / total for count in samples] if total else [1.0 / len(samples)] * len(samples)


def average(models: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """sum weight_i w_i; the weights sum to 1."""
    afar = blend_on_device(models[0], models[1:], weights[1:])
    if afar is not None:
        return afar
    total = np.zeros(len(models[0]))
    for model, weight in zip(models, weights, strict=True):
        total += weight * here(model).astype(np.float64)
    return frozen(total.astype(np.float32))


def add_changes(
    current: Weights, received: Sequence[Weights], sent: Sequence[Weights], weights: Sequence[float]
) -> Weights:
    """current + sum weight_i (received_i - sent_i)."""
    afar = blend_on_device(current, (*received, *sent), (*weights, *(-weight for weight in weights)))
    if afar is not None:
        return afar
    total = here(current).astype(np.float64)
    for new, old, weight in zip(received, sent, weights, strict=True):
        total += weight * (here(new).astype(np.float64) - here(old))
    return frozen(total.astype(np.float32))
