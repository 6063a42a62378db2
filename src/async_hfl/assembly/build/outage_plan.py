"""Building of the outage plan of a simulated run from the section [outages]."""

from __future__ import annotations

import math
from pathlib import Path

from async_hfl.assembly.settings.environment import OutagesSection
from async_hfl.core.randomness import stream
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.outages.on_off import OnOff
from async_hfl.network.outages.plan import Change, OutagePlan, checked_schedule
from async_hfl.network.outages.schedule_file import read_outage_file, read_schedule


def build_outage_plan(outages: OutagesSection, links: FeasibleLinks, seed: int) -> OutagePlan | None:
    """Return the plan; None if nothing can fail, so that such a run does without the bookkeeping."""
    changes = read_schedule(outages.schedule, links)
    if outages.file:
        changes += read_outage_file(Path(outages.file), links)
    count = round(outages.stragglers * links.devices)
    slow = stream(seed, "life", "stragglers").permutation(links.devices)[:count]
    changes += [Change(outages.straggler_from, "device", int(device), "slow") for device in sorted(slow)]
    plan = OutagePlan(
        seed,
        devices=_on_off(outages, outages.device_up, outages.device_down),
        links=_on_off(outages, outages.link_up, outages.link_down),
        gateways=_on_off(outages, outages.gateway_up, outages.gateway_down),
        scheduled=checked_schedule(changes, links),
        detection_s=outages.detection,
        transfer_loss=outages.transfer_loss,
        slow_factor=outages.straggler_factor,
    )
    random = any(process is not None for process in (plan.devices, plan.links, plan.gateways))
    return plan if random or plan.scheduled or plan.transfer_loss > 0.0 else None


def _on_off(outages: OutagesSection, up_s: float, down_s: float) -> OnOff | None:
    return None if math.isinf(up_s) else OnOff(up_s, down_s, outages.distribution, outages.spread)
