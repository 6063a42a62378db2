"""Mix on arrival at the cloud (Algorithm 1, lines 5-9): w <- (1 - weight) w + weight w_j, weight = alpha s(h - tau)."""

from __future__ import annotations

from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.protocol import messages as m
from async_hfl.nodes.cloud.aggregation.rule import Cloud, CloudAggregation, Next


class MixUploads(CloudAggregation):
    def received(self, cloud: Cloud, upload: m.Upload, staleness: int, at: float) -> Next:
        config = cloud.config
        if staleness > config.max_staleness:
            return Next(decided=((upload, m.Outcome(False, staleness, 0.0)),))
        weight = config.mixing_weight * config.staleness(staleness)
        model = mix(cloud.state.weights, plain_vector(upload.weights), weight)
        return Next(model, ((upload, m.Outcome(True, staleness, weight)),))
