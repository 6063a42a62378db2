"""How bad it is in a fault simulation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultProfile:
    seed: int
    loss: float
    """Share of messages lost; with sessions: of transfers that break off on the way."""
    duplication: float
    mean_delay_s: float
    mean_compute_s: float
    crash_every_s: float
    """Mean time between crashes of one node."""
    mean_downtime_s: float
    false_alarms: float
    """Share of gateway crashes beside which a healthy gateway is declared lost, too."""
    detection_s: float
    """A gateway that stays down longer is declared lost; with sessions: until a dead link is noticed."""
    calm_after: float
    snapshot_every: int
    sessions: bool = False
    """As a deployment: peers have sessions, transfers are watched, break off and are taken up again."""
    outage_every_s: float = 1e9
    """Mean time between outages of one link, both ends being alive."""
    mean_outage_s: float = 0.0
    disk_loss: float = 0.0
    """Share of crashes of gateways and devices after which the disk is gone."""
