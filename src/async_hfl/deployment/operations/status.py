"""The status of a cloud or gateway as plain data, for operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from async_hfl.core.protocol.records import EpochRecord
from async_hfl.deployment.transport.endpoint import ByteCount
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.node import GatewayNode


def cloud_status(
    cloud: CloudNode,
    at: float,
    newest: EpochRecord | None,
    gateway_names: Mapping[int, str],
    device_names: Mapping[int, str],
    digests: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    state, table, links = cloud.state, cloud.state.association, cloud.links
    gateways = [
        {
            "name": gateway_names.get(number, f"g{number}"),
            "number": number,
            "state": "lost" if not member.live else "away" if member.away else "here",
            "devices": int((table.gateway_of == number).sum()),
            "holds": int((table.holder == number).sum()),
            **digests.get(number, {}),
        }
        for number, member in enumerate(state.members)
    ]
    devices = []
    for device in range(links.devices):
        row = links.of(device)
        usable = table.usable[row]
        gateway = int(table.gateway_of[device])
        link = links.find(device, gateway) if gateway >= 0 else -1
        devices.append(
            {
                "name": device_names.get(device, f"d{device}"),
                "number": device,
                "gateway": gateway_names.get(gateway) if gateway >= 0 else None,
                "reaches": [
                    gateway_names.get(int(one), f"g{one}")
                    for one, works in zip(links.link_gateway[row], usable, strict=True)
                    if works
                ],
                "samples": int(table.samples[device]),
                "round_latency_s": round(float(table.latency[link]), 4) if link >= 0 else None,
                "loss": None if np.isnan(table.loss[device]) else round(float(table.loss[device]), 4),
            }
        )
    return {
        "phase": state.phase,
        "at": at,
        "cloud_epoch": state.epoch,
        "updates_in_model": state.updates,
        "updates_lost": sum(len(ledger.listed) for ledger in state.ledgers.values()),
        "metric": None if newest is None else newest.metric,
        "target_reached": state.progress.held_at is not None,
        "bandwidth": table.bandwidth or None,
        "association_version": table.version,
        "gateways": gateways,
        "devices": devices,
    }


def gateway_digest(gateway: GatewayNode, traffic: Collection[ByteCount]) -> dict[str, Any]:
    """Return a few numbers of a gateway, small enough to be sent once a second."""
    state = gateway.state
    return {
        "phase": state.phase,
        "gateway_epoch": state.gateway_epoch,
        "base_epoch": state.base_epoch,
        "in_flight": state.active,
        "load": round(state.load, 1),
        "bandwidth": state.bandwidth,
        "present": len(state.connected),
        "cut_off": state.cut_off,
        "bytes_sent": sum(peer.sent for peer in traffic),
        "bytes_received": sum(peer.received for peer in traffic),
    }
