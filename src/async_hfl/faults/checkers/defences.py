"""The second computation of robust and private aggregation, for the checkers of rules that make models.

It keeps the changes of a gateway's devices itself, from the messages, sorts whole columns, and draws the noise again
from its named stream. It shares no code with the gateway but the streams of random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.protocol.records import JobRecord
from async_hfl.core.randomness import stream
from async_hfl.nodes.gateway.node import GatewayNode

Pair = tuple[Floats, Floats]
"""The model that a device returned, and the one that it was sent."""


class Defences:
    def __init__(self) -> None:
        self._incarnation = 0
        self._latest: list[tuple[int, Pair]] = []
        """Device and its latest models, oldest first."""

    def models(self, gateway: GatewayNode, records: Sequence[JobRecord], pairs: Sequence[Pair]) -> list[Floats]:
        """Return the models that a gateway must aggregate of these updates, which are aggregated together."""
        config = gateway.config
        if config.privacy.clip < math.inf:
            return [sent + _shortened(new - sent, config.privacy.clip) for new, sent in pairs]
        if config.robust.rule == "none":
            return [new for new, _ in pairs]
        known = self._noted(gateway, records, pairs)
        size = config.gradient_size
        if config.robust.rule == "clip":
            limits = [_middle_length([(new - sent)[part] for new, sent in known]) for part in _parts(size)]
            return [
                np.concatenate(
                    [
                        sent[part] + _shortened((new - sent)[part], c)
                        for part, c in zip(_parts(size), limits, strict=True)
                    ]
                )
                for new, sent in pairs
            ]
        columns = np.sort([np.concatenate([(new - sent)[:size], new[size:]]) for new, sent in known], axis=0)
        left_out = math.ceil(round(config.robust.trim * len(columns), 6))
        if config.robust.rule == "median" or 2 * left_out >= len(columns):
            low, high = (len(columns) - 1) // 2, len(columns) // 2
            common = (columns[low] + columns[high]) / 2
        else:
            common = np.mean(columns[left_out : len(columns) - left_out], axis=0)
        return [np.concatenate([sent[:size] + common[:size], common[size:]]) for _, sent in pairs]

    def noise(self, gateway: GatewayNode, records: Sequence[JobRecord], epoch: int) -> Floats | float:
        """Return the noise that makes this gateway epoch of these updates."""
        privacy, state = gateway.config.privacy, gateway.state
        if privacy.noise == 0.0:
            return 0.0
        most = max(sum(other.weight for other in records if other.device == one.device) for one in records)
        job = records[0].job
        rng = stream(privacy.seed, state.noise_secret, "noise", job.gateway, job.incarnation, epoch)
        assert state.weights is not None
        return privacy.noise * privacy.clip * most * rng.standard_normal(len(state.weights))

    def _noted(self, gateway: GatewayNode, records: Sequence[JobRecord], pairs: Sequence[Pair]) -> list[Pair]:
        """Return the models of the devices that are compared, and remember those of the window."""
        if self._incarnation != records[0].job.incarnation:
            self._incarnation, self._latest = records[0].job.incarnation, []
        arriving = {record.device for record in records}
        for record, pair in zip(records, pairs, strict=True):
            self._latest = [(device, known) for device, known in self._latest if device != record.device]
            self._latest.append((record.device, pair))
        window = gateway.config.robust.window
        compared = [pair for _, pair in self._latest[-max(window, len(arriving)) :]]
        self._latest = self._latest[-window:]
        return compared


def _parts(size: int) -> tuple[slice, slice]:
    return slice(None, size), slice(size, None)


def _shortened(change: Floats, most: float) -> Floats:
    length = float(np.linalg.norm(change))
    return change if length <= most else change * (most / length)


def _middle_length(changes: Sequence[Floats]) -> float:
    return float(np.sort([np.linalg.norm(change) for change in changes])[(len(changes) - 1) // 2])
