"""Names of nodes, jobs and uploads.

Nodes are numbered; human names live at the edges (a topology file, a certificate). An incarnation is drawn when a
node's state is made, so a gateway that comes back without its disk issues ids that nobody has seen before.
"""

from __future__ import annotations

from typing import NamedTuple

from async_hfl.core.serialization import plain

CLOUD_TIER = 0
GATEWAY_TIER = 1
DEVICE_TIER = 2


@plain
class Address(NamedTuple):
    """Where a message goes: a tier and a number inside it."""

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
    """One triggering of one device by one gateway. Numbers grow within (gateway, incarnation)."""

    gateway: int
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"g{self.gateway}.{self.incarnation}.{self.number}"


@plain
class UploadId(NamedTuple):
    """One model sent by a gateway to the cloud. A resend keeps its id; the cloud mixes an id once."""

    gateway: int
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"u{self.gateway}.{self.incarnation}.{self.number}"
