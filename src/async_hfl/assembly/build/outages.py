"""From the section [life] to what will befall a network."""

from __future__ import annotations

import math
from pathlib import Path

from async_hfl.assembly.settings.schema import LifeSection
from async_hfl.core.randomness import stream
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.outages.on_off import OnOff
from async_hfl.network.outages.plan import Change, OutagePlan, checked
from async_hfl.network.outages.schedule_file import read_outage_file, read_schedule


def build_life(life: LifeSection, links: FeasibleLinks, seed: int) -> OutagePlan | None:
    """None where nothing will ever fail: such a run pays nothing for what might."""
    changes = read_schedule(life.schedule, links)
    if life.file:
        changes += read_outage_file(Path(life.file), links)
    slow = stream(seed, "life", "stragglers").permutation(links.devices)[: round(life.stragglers * links.devices)]
    changes += [Change(life.straggler_from, "device", int(device), "slow") for device in sorted(slow)]
    plan = OutagePlan(
        seed,
        _on_off(life, life.device_up, life.device_down),
        _on_off(life, life.link_up, life.link_down),
        _on_off(life, life.gateway_up, life.gateway_down),
        checked(changes, links),
        life.detection,
        life.transfer_loss,
        life.straggler_factor,
    )
    quiet = plan.devices is plan.links is plan.gateways is None
    return None if quiet and not plan.scheduled and plan.transfer_loss == 0.0 else plan


def _on_off(life: LifeSection, up_s: float, down_s: float) -> OnOff | None:
    return None if math.isinf(up_s) else OnOff(up_s, down_s, life.distribution, life.spread)
