"""Mix on arrival at the cloud (Algorithm 1, lines 5-9): w <- (1 - weight) w + weight w_j, weight = alpha s(h - tau)."""

from __future__ import annotations

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import Plain
from async_hfl.nodes.cloud.node import CloudNode


class MixUploads:
    """Needs no memory of its own: an upload is mixed, or dropped, the moment it arrives."""

    def snapshot(self) -> Plain:
        return None

    def restore(self, data: Plain) -> None:
        return

    def lost(self, node: CloudNode, gateway: int, at: float) -> None:
        return

    def changed(self, node: CloudNode, at: float) -> None:
        return

    def received(self, node: CloudNode, upload: m.Upload, at: float) -> None:
        state, config = node.state, node.config
        staleness = state.epoch + 1 - upload.base_epoch
        if staleness < 1:
            raise InvariantViolation(f"upload {upload.upload} has staleness {staleness}")
        if staleness > config.max_staleness:
            node.close_upload(upload, m.Outcome(False, staleness, 0.0), at)
            return
        weight = config.mixing_weight * config.staleness(staleness)
        node.set_global(mix(state.weights, upload.weights, weight), upload.updates)
        node.close_upload(upload, m.Outcome(True, staleness, weight), at)
        node.epoch_made(at, upload.upload.gateway)
