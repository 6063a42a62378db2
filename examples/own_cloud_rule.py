"""An aggregation rule for the cloud: server momentum (FedAvgM, Hsu et al. 2019) on the change that each upload brings.

Run it from the directory above:

    async-hfl run --method async-hfl --seed 1 --set cloud.aggregation=examples/own_cloud_rule.py:Momentum

`async_hfl.nodes.cloud.aggregation.rule` describes the interface; `async-hfl fuzz-faults --cloud-rule` tests a rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.protocol.messages import Outcome, Upload
from async_hfl.core.serialization import plain
from async_hfl.nodes.cloud.aggregation.rule import Cloud, CloudAggregation, Next


@plain
@dataclass
class MomentumState:
    velocity: np.ndarray | None = None


class Momentum(CloudAggregation):
    state_type = MomentumState

    def received(self, cloud: Cloud, upload: Upload, staleness: int, at: float) -> Next:
        model = np.asarray(cloud.state.weights)
        weight = cloud.config.mixing_weight * cloud.config.staleness(staleness)
        step = weight * (np.asarray(upload.weights) - model)
        self.state.velocity = step if self.state.velocity is None else 0.3 * self.state.velocity + step
        moved, trained = model + self.state.velocity, cloud.config.gradient_size
        # Running statistics have no momentum, which could make a variance negative.
        moved[trained:] = model[trained:] + step[trained:]
        return Next(moved, ((upload, Outcome(True, staleness, weight)),))
