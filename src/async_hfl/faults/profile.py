"""The faults of one fault simulation, and what happened in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultProfile:
    seed: int
    loss: float
    """Share of messages lost; with sessions, the share of large transfers that break off."""
    duplication: float
    mean_delay_s: float
    mean_compute_s: float
    crash_every_s: float
    """Mean time between two crashes of one node."""
    mean_downtime_s: float
    false_alarms: float
    """Share of gateway crashes at which a random gateway, perhaps a healthy one, is declared lost at once."""
    detection_s: float
    """Time after which a gateway that is down is declared lost. With sessions, broken links are noticed after a tenth
    of it on average."""
    faults_end_at: float
    snapshot_every: int
    """Events between two snapshots of a node."""
    sessions: bool = False
    """Simulate a deployment: peers have sessions, and interrupted transfers are resumed."""
    outage_every_s: float = 1e9
    """Mean time between two outages of one link while both ends are up. Only with sessions."""
    mean_outage_s: float = 0.0
    disk_loss: float = 0.0
    """Share of crashes of gateways and devices in which the disk is lost as well."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of what happened in one fault simulation that broke no invariant."""

    events: int
    crashes: int
    records_torn: int
    """Crashes while an event was being written to the log."""
    disks_lost: int
    messages_lost: int
    """Including transfers that broke off."""
    link_outages: int
    transfers_resumed: int
    gateways_declared_lost: int
    jobs: int
    uploads: int
    updates_acknowledged: int
    updates_lost: int
    """Updates acknowledged by a gateway that was declared lost or lost its disk, and in no upload that arrived. Each is
    on the cloud's list of losses."""
    updates_found: int
    """Updates listed as lost until their gateway returned with its disk."""
    updates_late: int
    """Updates acknowledged, but not decided on by the cloud before the run ended."""
