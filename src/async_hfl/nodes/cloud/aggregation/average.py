"""Average at the cloud once all gateways have uploaded, with momentum:

    W' = sum_j n_j w_j / sum_j n_j,    m <- mu m + (W' - W),    W <- W + m        over the uploads of a round.

mu is `cloud.momentum`; with 0, the default, W' is the next model. With `cloud.optimiser = "adam"`, W' - W is the
gradient of Adam instead (`core.maths.server_adam`). Running statistics are those of W'. n_j is the number of samples in
the upload of gateway j. The round waits for the live gateways with an associated device that they can reach; uploads
of other gateways are averaged too. A gateway that is lost meanwhile is left out. An upload that started from an older
epoch is late: it is dropped and answered, so that its gateway continues from the newest model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.maths.aggregation import average, shares, with_momentum
from async_hfl.core.maths.server_adam import Moments, adam_average
from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import plain
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.aggregation.rule import Cloud, CloudAggregation, Next


@plain
@dataclass(slots=True)
class AveragingState:
    held: dict[int, m.Upload] = field(default_factory=dict)
    """Uploads to be averaged, at most one per gateway."""
    previous: Weights | None = None
    """The global model before the current one: m = W - previous. Only with momentum; None before the first average."""
    mean_step: Weights | None = None
    """m of Adam, in single precision; None before the first average."""
    squared_step: Weights | None = None
    """v of Adam."""


class AverageUploads(CloudAggregation):
    state_type = AveragingState
    state: AveragingState

    def received(self, cloud: Cloud, upload: m.Upload, staleness: int, at: float) -> Next:
        if staleness > 1:
            return Next(decided=((upload, m.Outcome(False, staleness, 0.0)),))
        self.state.held[upload.upload.gateway] = upload
        after = self.changed(cloud, at)
        return after if after.decided else Next(held=(upload,), wake=after.wake)

    def gateway_lost(self, cloud: Cloud, gateway: int, at: float) -> Next:
        self.state.held.pop(gateway, None)
        return self.changed(cloud, at)

    def changed(self, cloud: Cloud, at: float) -> Next:
        held, awaited = self.state.held, awaited_gateways(cloud)
        # A gateway that had no device to trigger has missed epochs and needs the newest model to start from.
        members, epoch = cloud.state.members, cloud.state.epoch
        wake = tuple(gateway for gateway in sorted(awaited - held.keys()) if members[gateway].newest_sent < epoch)
        if not held or not awaited <= held.keys() or cloud.is_last_epoch():
            return Next(wake=wake)
        uploads = [held[gateway] for gateway in sorted(held)]
        self.state.held = {}
        weights = shares([upload.samples for upload in uploads])
        return Next(
            self._moved(cloud, [plain_vector(upload.weights) for upload in uploads], weights),
            tuple((upload, m.Outcome(True, 1, weight)) for upload, weight in zip(uploads, weights, strict=True)),
            wake=wake,
        )

    def _moved(self, cloud: Cloud, models: Sequence[Weights], weights: Sequence[float]) -> Weights:
        """Return the next global model: the average, with the momentum of the step before, or the step of Adam."""
        config, current, state = cloud.config, cloud.state.weights, self.state
        if config.adam is not None:
            before = None
            if state.mean_step is not None and state.squared_step is not None:
                before = Moments(to_host(state.mean_step), to_host(state.squared_step))
            model, after = adam_average(config.adam, current, before, models, weights, config.gradient_size)
            state.mean_step, state.squared_step = after.mean, after.square
            return model
        averaged = average(models, weights)
        if config.momentum == 0.0:
            return averaged
        previous, state.previous = state.previous, current
        if previous is None:
            return averaged
        return with_momentum(averaged, current, previous, config.momentum, trained=config.gradient_size)


def awaited_gateways(cloud: Cloud) -> set[int]:
    """Return the live gateways that have started and can reach an associated device."""
    state, links = cloud.state, cloud.links
    used = cloud.usable_links() & (state.association.gateway_of[links.link_device] == links.link_gateway)
    return {gateway for gateway in np.unique(links.link_gateway[used]).tolist() if state.members[gateway].begun}
