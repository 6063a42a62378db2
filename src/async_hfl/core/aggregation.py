"""Mixing on arrival: Algorithm 1, lines 8 and 21, generalised by `drag`.

The paper's rule w <- (1 - b) w + b w_i is, with w_s the model the device started from,

    w + b (w_i - w_s) + drag * b (w_s - w),        drag = 1.

The last term pulls the aggregate back towards an old model; drag 0 is pure delta mixing.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.weights import Weights, frozen


def mix(current: Weights, received: Weights, weight: float) -> Weights:
    """(1 - weight) current + weight received: the paper's rule."""
    # One new array, changed in place: for a large model getting memory costs more than adding.
    step = received - current
    step *= np.float32(weight)
    step += current
    return frozen(step)


def mix_with_drag(current: Weights, received: Weights, sent: Weights, weight: float, drag: float) -> Weights:
    """current + weight (received - sent) + drag * weight (sent - current); the coefficients always sum to 1."""
    if drag == 1.0:
        return mix(current, received, weight)
    step = received - sent
    if drag != 0.0:
        pull = sent - current
        pull *= np.float32(drag)
        step += pull
    step *= np.float32(weight)
    step += current
    return frozen(step)
