"""Bytes sent, by link, direction and kind. Every message counts when sent."""

from __future__ import annotations

from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, Address
from async_hfl.core.plain import Plain
from async_hfl.core.traffic import KINDS, Traffic

DIRECTIONS = ("down", "up")
_WIDTH = len(DIRECTIONS) * len(KINDS)


class Ledger:
    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], list[int]] = {}
        """(gateway, device) or (gateway, -1) for its link to the cloud: down by kind, then up by kind."""
        self.total = 0
        self.models_up = 0
        """Models travelling towards the cloud on either tier: what the paper's figures count."""

    def add(self, sender: Address, receiver: Address, traffic: Traffic) -> int:
        """Book one message; returns its bytes."""
        up = sender.tier > receiver.tier
        lower, upper = (sender, receiver) if up else (receiver, sender)
        if lower.tier == DEVICE_TIER:
            key = (upper.number, lower.number)
        else:
            assert upper.tier == CLOUD_TIER
            key = (lower.number, -1)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = [0] * _WIDTH
        start = len(KINDS) if up else 0
        model, gradient, basis, control = traffic
        row[start] += model
        row[start + 1] += gradient
        row[start + 2] += basis
        row[start + 3] += control
        size = model + gradient + basis + control
        self.total += size
        if up:
            self.models_up += model
        return size

    def summary(self) -> dict[str, dict[str, dict[str, int]]]:
        """tier -> direction -> kind -> bytes."""
        table = {tier: {d: dict.fromkeys(KINDS, 0) for d in DIRECTIONS} for tier in ("gateway-cloud", "device-gateway")}
        for (_, device), row in self.rows.items():
            side = table["gateway-cloud" if device < 0 else "device-gateway"]
            for position, size in enumerate(row):
                side[DIRECTIONS[position // len(KINDS)]][KINDS[position % len(KINDS)]] += size
        return table

    def snapshot(self) -> Plain:
        return {
            "total": self.total,
            "models_up": self.models_up,
            "rows": [[gateway, device, *row] for (gateway, device), row in self.rows.items()],
        }

    def restore(self, data: Plain) -> None:
        self.total, self.models_up = data["total"], data["models_up"]
        self.rows = {(gateway, device): list(row) for gateway, device, *row in data["rows"]}
