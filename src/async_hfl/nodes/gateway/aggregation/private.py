"""Differential privacy of single devices: clipped changes and Gaussian noise, both by the gateway.

With C = `privacy.clip`, z = `privacy.noise`, and c_i the weights with which an aggregation adds the changes D_i,

    w <- what the rule makes of   w_sent_i + D_i min(1, C / |D_i|)
       + N(0, (z S)^2),           S = C max_k (sum of the c_i of device k),   over the devices in this aggregation.

Protected are the values of one device's changes. The aggregation with and without them (they are replaced by zero, all
else equal) differs by at most S, whatever the rule and the number of samples: each c_i, which depends on samples,
arrival and age alone, is known when S is computed. So every aggregation in which a device takes part is one Gaussian
mechanism with the noise multiplier z, and all that leaves the gateway (to devices, to the cloud) is computed from its
results. The largest c_i of each rule: mix, beta s(x); buffer, s(x) / K; rounds and periods, the device's share of the
samples that have arrived; periods with weighting = share, g times its share of its gateway's samples.

Not protected: that a device takes part, when, how often and how fast; its number of samples; that its training has
diverged. Trusted: the gateway that the device sends to, which sees its changes, and its noise.

The noise is drawn from a stream that is named by gateway, incarnation and gateway epoch, so that a replay and a gateway
that is restored draw it again. Its seed is the run's and, in a deployment, a secret of the gateway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from async_hfl.core.maths.robust import clip_factor, moved_by, norm
from async_hfl.core.randomness import stream
from async_hfl.core.vectors import HostVector, to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.nodes.gateway.aggregation.rule import Gateway, HeldUpdate


def clipped(gateway: Gateway, held: HeldUpdate) -> HostVector:
    """Return the model that a device may return at most: its change, clipped."""
    new, sent = to_host(held.weights), to_host(held.in_flight.sent)
    return moved_by(sent, new, clip_factor(norm(new - sent), gateway.config.privacy.clip))


def noisy(gateway: Gateway, model: Weights, arrived: Sequence[HeldUpdate], weights: Sequence[float]) -> HostVector:
    """Return the model of the gateway's next epoch, into which these updates went with these weights, with noise."""
    state, config, privacy = gateway.state, gateway.config, gateway.config.privacy
    by_device: dict[int, float] = {}
    for held, weight in zip(arrived, weights, strict=True):
        by_device[held.in_flight.slot] = by_device.get(held.in_flight.slot, 0.0) + weight
    deviation = privacy.noise * privacy.clip * max(by_device.values())
    name = ("noise", config.number, state.incarnation, state.gateway_epoch + 1)
    noise = stream(privacy.seed, state.noise_secret, *name).standard_normal(len(model))
    return frozen((np.asarray(model, np.float64) + deviation * noise).astype(np.float32))
