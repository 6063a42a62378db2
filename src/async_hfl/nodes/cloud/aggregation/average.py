"""Average at the cloud when all have reported: w <- sum_j n_j w_j / sum_j n_j over the gateways of a round.

n_j are the samples that took part at gateway j. "All" are the live gateways that have an associated device within
reach; one that is lost meanwhile is left out, one that reports without being waited for counts too. A model that began
from an older epoch is late: dropped, recorded and answered, so that its gateway goes on from the newest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.maths.aggregation import average, shares
from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.nodes.cloud.node import CloudNode


@plain
@dataclass(slots=True)
class AveragingState:
    held: dict[int, m.Upload] = field(default_factory=dict)
    """By gateway: what will be averaged. A gateway waits for the answer before it sends another."""


class AverageUploads:
    def __init__(self) -> None:
        self.state = AveragingState()

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def received(self, node: CloudNode, upload: m.Upload, at: float) -> None:
        staleness = node.state.epoch + 1 - upload.base_epoch
        if staleness < 1:
            raise InvariantViolation(f"upload {upload.upload} has staleness {staleness}")
        if staleness > 1:
            node.close_upload(upload, m.Outcome(False, staleness, 0.0), at)
            return
        self.state.held[upload.upload.gateway] = upload
        self.changed(node, at)
        if upload.upload.gateway in self.state.held:
            node.hold_upload(upload)

    def lost(self, node: CloudNode, gateway: int, at: float) -> None:
        self.state.held.pop(gateway, None)
        self.changed(node, at)

    def changed(self, node: CloudNode, at: float) -> None:
        awaited = awaited_gateways(node)
        self._wake(node, awaited)
        if self.state.held and awaited <= self.state.held.keys() and not node.enough():
            self._average(node, at)

    def _wake(self, node: CloudNode, awaited: set[int]) -> None:
        """A gateway that had nobody to ask slept through some epochs: give it the newest model to begin from."""
        for gateway in sorted(awaited - self.state.held.keys()):
            if node.state.members[gateway].newest_sent < node.state.epoch:
                node.send_global(gateway)

    def _average(self, node: CloudNode, at: float) -> None:
        uploads = [self.state.held[gateway] for gateway in sorted(self.state.held)]
        self.state.held = {}
        weights = shares([upload.samples for upload in uploads])
        node.set_global(
            average([upload.weights for upload in uploads], weights), sum(upload.updates for upload in uploads)
        )
        for upload, weight in zip(uploads, weights, strict=True):
            node.close_upload(upload, m.Outcome(True, 1, weight), at)
        node.epoch_made(at, *(upload.upload.gateway for upload in uploads))


def awaited_gateways(node: CloudNode) -> set[int]:
    """Live gateways at work that have an associated device within reach."""
    state, links = node.state, node.registry.links
    used = node.registry.usable(state.directory, state.members) & (
        state.directory.gateway_of[links.link_device] == links.link_gateway
    )
    return {gateway for gateway in np.unique(links.link_gateway[used]).tolist() if state.members[gateway].begun}
