"""Relay: the gateway forwards device updates unchanged (two-tier asynchronous FL, FedAsync, Xie et al. 2019).

Each update is uploaded at once, with the cloud epoch of the model that its device started from; several may be
outstanding. With each answer the gateway adopts the newest global model and selects devices.
"""

from __future__ import annotations

from async_hfl.nodes.gateway.aggregation.rule import Gateway, GatewayAggregation, HeldUpdate, Next


class Relay(GatewayAggregation):
    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        return Next.RELAY
