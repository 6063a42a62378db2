"""Identifiers of nodes, jobs and uploads.

Nodes are numbered; human-readable names exist only at the edges (a topology file, a certificate). An incarnation is
drawn when a node's state is created, so that a gateway that comes back without its disk issues ids that were never used
before.
"""

from __future__ import annotations

from typing import NamedTuple

from async_hfl.core.serialization import plain

CLOUD_TIER = 0
GATEWAY_TIER = 1
DEVICE_TIER = 2


@plain
class Address(NamedTuple):
    """The address of a node: a tier and a number within it."""

    tier: int
    number: int

    def __str__(self) -> str:
        return "cloud" if self.tier == CLOUD_TIER else f"{'gd'[self.tier - 1]}{self.number}"


CLOUD = Address(CLOUD_TIER, 0)


def gateway_address(number: int) -> Address:
    return Address(GATEWAY_TIER, number)


def device_address(number: int) -> Address:
    return Address(DEVICE_TIER, number)


@plain
class JobId(NamedTuple):
    """Identifier of one selection of one device by one gateway. Numbers increase within (gateway, incarnation)."""

    gateway: int
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"g{self.gateway}.{self.incarnation}.{self.number}"


@plain
class UploadId(NamedTuple):
    """Identifier of one model sent by a gateway to the cloud. A resend keeps it; the cloud mixes each id only once."""

    gateway: int
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"u{self.gateway}.{self.incarnation}.{self.number}"
