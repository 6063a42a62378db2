"""A deployed node as its shell and a replay have it: wrapped for delivery over sessions."""

from __future__ import annotations

from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.nodes.reliability.delivery import Node, ReliableNode


def wrapped(card: NodeIdentity, node: Node) -> ReliableNode:
    # Devices keep account of what was acknowledged; nobody else needs to know.
    confirms = card.role == "device"
    return ReliableNode(node, card.run, card.incarnation, watched=True, sessions=True, confirms=confirms)
