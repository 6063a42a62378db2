"""The open requests of a cloud, read from its disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from async_hfl.assembly.deployments.deployed_nodes import deployed_cloud
from async_hfl.assembly.deployments.update_audit import identity_of
from async_hfl.core.weights import frozen
from async_hfl.deployment.store.node_identity import reliable
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.faults.hosts import MemoryDisk
from async_hfl.nodes.reliability.recovery import DurableNode


def open_requests(state: Path) -> list[str]:
    """Return the open requests (Solve, Evaluate) of the cloud as stored on its disk."""
    identity = identity_of(state)
    nothing = frozen(np.zeros(int(identity.facts["model_size"]), np.float32))
    disk = MemoryDisk()
    node = DurableNode(lambda: reliable(identity, deployed_cloud(identity, nothing)), disk)
    with StoredNode(state) as stored:
        start = stored.snapshots()[-1]
        disk.replace(stored.snapshot(start))
        for logged in stored.events(after=start):
            disk.append(stored.decode(logged.body))
        disk.commit()
        node.recover()
    return [type(request).__name__ for request in node.requests.values()]
