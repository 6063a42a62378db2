"""A deployed node as its shell and a replay have it: wrapped for delivery over sessions."""

from __future__ import annotations

from async_hfl.deployment.identity_card import IdentityCard
from async_hfl.nodes.delivery import Node, ReliableNode


def wrapped(card: IdentityCard, node: Node) -> ReliableNode:
    # Devices keep account of what was acknowledged; nobody else needs to know.
    confirms = card.role == "device"
    return ReliableNode(node, card.run, card.incarnation, watched=True, sessions=True, confirms=confirms)
