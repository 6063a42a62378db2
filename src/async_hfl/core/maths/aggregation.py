"""Aggregation rules: mixing on arrival (Algorithm 1, lines 8 and 21, generalised by `drag`) and weighted averages.

The paper's rule w <- (1 - b) w + b w_i is, with w_s the model from which the device started,

    w + b (w_i - w_s) + drag * b (w_s - w),        drag = 1.

The last term pulls the model back towards the old model w_s; with drag 0 only the change made by training is added.

The cloud may give the step from one average to the next momentum, as a heavy ball has: m <- mu m + (W' - W),
W <- W + m, with W' the average of the uploads. Since m is W minus the model before it, that model is all there is to
remember.

Averages are weighted by the numbers of samples n_i: sum n_i w_i / sum n_i (FedAvg), or, for changes made by training,
w + sum n_i s_i (w_i - w_sent) / sum n_i, where s_i <= 1 is a discount for staleness (FedBuff). These sums are computed
in double precision.

The last numbers of a model may be running statistics s of normalisation layers. They are not moved by changes, which
could make a variance negative, but averaged with the same weights c_i:

    s + sum c_i (s_i - s),        c_i >= 0, sum c_i <= 1.

Where this makes a difference, `trained` is how many numbers come before the statistics (`config.gradient_size`); None:
there are no statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from async_hfl.core.vectors import DeviceVector, blend_on_device, to_host
from async_hfl.core.weights import Weights, frozen


def mix(current: Weights, received: Weights, weight: float) -> Weights:
    """Return (1 - weight) current + weight received: the paper's rule."""
    if isinstance(current, DeviceVector) or isinstance(received, DeviceVector):
        return blend_on_device(current, (received,), (weight,))
    # One new array, changed in place: for a large model, allocating memory costs more than adding.
    step = received - current
    step *= np.float32(weight)
    step += current
    return frozen(step)


def mix_with_drag(
    current: Weights, received: Weights, sent: Weights, weight: float, drag: float, *, trained: int | None = None
) -> Weights:
    """Return current + weight (received - sent) + drag * weight (sent - current); statistics always have drag 1."""
    if drag == 1.0:
        return mix(current, received, weight)
    if isinstance(current, DeviceVector) or isinstance(received, DeviceVector) or isinstance(sent, DeviceVector):
        model = blend_on_device(current, (received, sent), (weight, (drag - 1.0) * weight))
        return model.with_tail(trained, mix(current, received, weight)) if _has_statistics(trained, model) else model
    step = received - sent
    if drag != 0.0:
        pull = sent - current
        pull *= np.float32(drag)
        step += pull
    if _has_statistics(trained, current):
        step[trained:] = received[trained:] - current[trained:]
    step *= np.float32(weight)
    step += current
    return frozen(step)


def with_momentum(
    averaged: Weights, current: Weights, previous: Weights, momentum: float, *, trained: int | None = None
) -> Weights:
    """Return averaged + momentum (current - previous); statistics are those of `averaged`.

    With m = current - previous, the last step, this is current + momentum m + (averaged - current): the heavy ball."""
    if any(isinstance(model, DeviceVector) for model in (averaged, current, previous)):
        model = blend_on_device(averaged, (current, previous), (momentum, -momentum))
        return model.with_tail(trained, averaged) if _has_statistics(trained, model) else model
    total = np.array(averaged, np.float64)
    total[:trained] += momentum * (np.asarray(current, np.float64) - np.asarray(previous))[:trained]
    return frozen(total.astype(np.float32))


def carried_over(adopted: Weights, current: Weights, uploaded: Weights, *, trained: int | None = None) -> Weights:
    """Return adopted + (current - uploaded): an adopted model, with the changes made since the upload that it answers.

    Statistics are the mean of `adopted` and `current`."""
    if any(isinstance(model, DeviceVector) for model in (adopted, current, uploaded)):
        model = blend_on_device(adopted, (current, uploaded), (1.0, -1.0))
        halves = (0.5, 0.5)
        return (
            model.with_tail(trained, average((adopted, current), halves)) if _has_statistics(trained, model) else model
        )
    total = np.asarray(adopted, np.float64) + (np.asarray(current, np.float64) - np.asarray(uploaded))
    if _has_statistics(trained, current):
        total[trained:] = (np.asarray(adopted, np.float64)[trained:] + np.asarray(current)[trained:]) / 2
    return frozen(total.astype(np.float32))


def shares(samples: Sequence[int]) -> list[float]:
    """Return n_i / sum n_i, or equal shares if there are no samples at all."""
    total = sum(samples)
    return [count / total for count in samples] if total else [1.0 / len(samples)] * len(samples)


def average(models: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """Return sum weight_i w_i; the weights sum to 1."""
    if any(isinstance(model, DeviceVector) for model in models):
        return blend_on_device(models[0], models[1:], weights[1:])
    total = np.zeros(len(models[0]))
    for model, weight in zip(models, weights, strict=True):
        total += weight * np.asarray(model, np.float64)
    return frozen(total.astype(np.float32))


def add_changes(
    current: Weights,
    received: Sequence[Weights],
    sent: Sequence[Weights],
    weights: Sequence[float],
    *,
    trained: int | None = None,
) -> Weights:
    """Return current + sum weight_i (received_i - sent_i); statistics are averaged.

    Weights that sum to more than 1 are scaled down for the statistics."""
    if any(isinstance(model, DeviceVector) for model in (current, *received, *sent)):
        model = blend_on_device(current, (*received, *sent), (*weights, *(-weight for weight in weights)))
        return (
            model.with_tail(trained, _averaged(current, received, weights))
            if _has_statistics(trained, model)
            else model
        )
    total = np.array(current, np.float64)
    for new, old, weight in zip(received, sent, weights, strict=True):
        total += weight * (np.asarray(new, np.float64) - np.asarray(old))
    if _has_statistics(trained, current):
        total[trained:] = _averaged(to_host(current)[trained:], [to_host(new)[trained:] for new in received], weights)
    return frozen(total.astype(np.float32))


def _has_statistics(trained: int | None, model: Weights) -> TypeGuard[int]:
    """True if the model has statistics after its trained part."""
    return trained is not None and trained < len(model)


def _averaged(current: Weights, received: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """Return current + sum weight_i (received_i - current), so computed that rounding makes no variance negative."""
    scale = max(1.0, sum(weights))
    parts = [weight / scale for weight in weights]
    return average([*received, current], [*parts, max(0.0, 1.0 - sum(parts))])
