"""The context shared by the parts of the cloud and its aggregation rule: configuration, state and effects.

`CloudNode` handles an event by calling parts (warm-up, membership, association, device evaluation) and the rule with a
`Cloud`. They read and change its state and emit effects, but never call the node.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Bools, Ints
from async_hfl.core.compression.model_codec import Model
from async_hfl.core.identifiers import GATEWAY_TIER, Address
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Send
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights
from async_hfl.nodes.cloud.state import AssociationState, CloudState, Membership
from async_hfl.nodes.config import CloudConfig


class Cloud:
    def __init__(
        self, config: CloudConfig, links: FeasibleLinks, samples: Ints, weights: Weights, incarnation: int
    ) -> None:
        self.config = config
        self.initial_links = links
        gradients = None if config.gradient == "none" else config.gradient_table(links.devices)
        if gradients is not None:
            gradients.counted[:] = True
        association = AssociationState.empty(links, samples, gradients, config.sketch)
        self.state = CloudState(weights, [Membership(incarnation) for _ in range(config.gateways)], association)
        self.effects: list[Effect] = []

    @property
    def links(self) -> FeasibleLinks:
        """The feasible links. They change only if devices join at run time."""
        return self.initial_links if self.state.links is None else self.state.links

    def usable_links(self) -> Bools:
        """Return a mask of the links that work and lead to a live gateway."""
        live = np.array([member.live for member in self.state.members], bool)
        usable: Bools = self.state.association.usable & live[self.links.link_gateway]
        return usable

    def is_last_epoch(self) -> bool:
        """True once the global model is the last one: no further upload is aggregated. That is so after H cloud epochs,
        once the target has been reached, or when the time is over."""
        return self.state.epoch >= self.config.epochs or self.state.evaluation.ending

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, gateway: int, message: m.CloudToGateway) -> None:
        self.effects.append(Send(Address(GATEWAY_TIER, gateway), message))

    def send_model(self, gateway: int, *, first: bool = False) -> None:
        """Send the newest global model. The first one also contains the projection basis and the bandwidth."""
        state = self.state
        projection = state.association.projection if first else None
        basis = projection.components if isinstance(projection, PcaProjection) else None
        bandwidth = state.association.bandwidth if first else 0.0
        self.send(
            gateway,
            m.GlobalModel(
                state.epoch, self.model_for(gateway), basis, bandwidth, state.reference_latency, state.tiers.told
            ),
        )

    def model_for(self, gateway: int) -> Model:
        """Return the global model as it travels, and remember that uploads of this gateway may be changes of it."""
        state, codec, member = self.state, self.config.codec, self.state.members[gateway]
        member.newest_sent = state.epoch
        model = self.encoded_model()
        if codec.encodes_up and state.epoch not in member.bases:
            member.bases.add(state.epoch)
            if state.epoch not in state.bases:
                state.bases[state.epoch] = codec.decode_model(model)
        return model

    def encoded_model(self) -> Model:
        """Return the global model as it travels. It is encoded once for all gateways."""
        state, codec = self.state, self.config.codec
        if not codec.encodes_down:
            return state.weights
        if state.encoded is None:
            state.encoded = codec.encode_model(state.weights, codec.key("global model", state.epoch))
        return state.encoded
