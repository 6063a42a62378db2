"""The bandwidth of a run's gateways in words, with its unit and its share of the demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_hfl.reports.tables.formatting import rate


def bandwidth_text(manifest: Mapping[str, Any]) -> str | None:
    """Return, for example, `12.3 kB/s per gateway (50 % of demand)`; None if the manifest does not say.

    The demand of a deployment is only known once it has begun."""
    setting = manifest["settings"].get("gateway", {}).get("bandwidth") if "settings" in manifest else None
    found, demand = manifest.get("bandwidth"), manifest.get("bandwidth_demand")
    if setting == "unlimited":
        return "unlimited"
    if found is not None:
        return f"{rate(found)} per gateway" + ("" if demand is None else f" ({_percent(found / demand)} of demand)")
    if isinstance(setting, str):
        measured = manifest["settings"].get("warmup", {}).get("enabled", True)
        when = "as the warm-up measures it" if measured else "as estimated when the run begins"
        return f"{_percent(float(setting.removesuffix('%')) / 100)} of demand per gateway, {when}"
    return None if setting is None else f"{rate(setting)} per gateway"


def _percent(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 0.995 else f"{100 * share:.2g} %"
