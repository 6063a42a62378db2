"""The staleness of a run, and the conditions of the paper's convergence theorem.

The theorem is about Algorithm 1 with a constant staleness function, s = 1: every update is mixed on arrival at both
tiers, as a whole model. For other methods it says nothing, so nothing is shown. Its conditions:

    alpha <= K_c^-1.5, beta <= K_g^-1.5      K_c, K_g: largest staleness at the cloud and at a gateway
    gamma <= 1 / L                           L-smooth loss; L is unknown, so this is not checked
    rho is large: (rho^2 - rho / 2) d >= (1 + 2 rho + c) V_1 for some c > 0, where V_1 bounds the squared gradient
                                             and d is the squared distance of a local step; needs at least rho > 1/2
    a weakly convex loss with bounded gradients, and local steps of plain stochastic gradient descent
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from async_hfl.reports.tables.table import Cell, Column, Table

LEAST_PROXIMAL_WEIGHT = 0.5
NOT_CHECKED = (
    "Not checked, since it depends on the loss: gamma <= 1/L for an L-smooth, weakly convex loss with bounded "
    "gradients, and how far above 1/2 rho has to be."
)


class Condition(NamedTuple):
    name: str
    value: float
    limit: float | None
    """None: nothing was stale, so there is no limit."""
    met: bool


def is_covered(settings: Mapping[str, Any]) -> bool:
    """True if the theorem is about the method of these settings."""
    gateway, cloud = settings.get("gateway", {}), settings.get("cloud", {})
    covered: bool = (
        settings.get("staleness", {}).get("kind") == "constant"
        and gateway.get("aggregation") == cloud.get("aggregation") == "mix"
        and gateway.get("drag", 1.0) == 1.0
        and gateway.get("during_upload", "wait") == "wait"
    )
    return covered


def conditions(settings: Mapping[str, Any], seen: Mapping[str, Any]) -> list[Condition]:
    """Return the conditions that can be checked; `seen` is the summary's `convergence`."""
    found = []
    for tier, most, symbol in (("cloud", "K_c", "alpha"), ("gateway", "K_g", "beta")):
        weight, limit = settings[tier]["mixing_weight"], None if seen[most] == 0 else seen[most] ** -1.5
        found.append(Condition(f"{symbol} <= {most}^-1.5", weight, limit, limit is None or weight <= limit))
    device = settings["device"]
    rho, momentum = device["proximal_weight"], device["momentum"]
    found.append(Condition("rho > 1/2", rho, LEAST_PROXIMAL_WEIGHT, rho > LEAST_PROXIMAL_WEIGHT))
    if device.get("optimiser", "sgd") == "sgd":
        found.append(Condition("plain steps: no momentum", momentum, 0.0, momentum == 0.0))
    else:
        found.append(Condition(f"plain steps: beta_1 of {device['optimiser']}", device["adam_beta1"], 0.0, False))
    return found


def conditions_table(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> Table | None:
    """Return the conditions of one run; None if the theorem is not about its method."""
    settings, seen = manifest["settings"], summary["convergence"]
    if not is_covered(settings):
        return None
    rows: list[tuple[Cell, ...]] = [tuple(one) for one in conditions(settings, seen)]
    columns = (Column("condition"), Column("here", "number"), Column("limit", "number"), Column("met"))
    largest = f"Largest staleness: K_c = {seen['K_c']} at the cloud, K_g = {seen['K_g']} at a gateway."
    return Table("Conditions of the convergence theorem", columns, tuple(rows), (largest, NOT_CHECKED))


def staleness_text(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return the staleness of a run as a line of its summary, with the theorem's conditions if they apply."""
    settings, seen = manifest["settings"], summary["convergence"]
    text = f"at most {seen['K_c']} at the cloud, {seen['K_g']} at a gateway"
    if not is_covered(settings):
        return text
    missed = [one.name for one in conditions(settings, seen) if not one.met]
    verdict = f"not met: {', '.join(missed)}" if missed else "met, as far as they can be checked (gamma <= 1/L cannot)"
    return f"{text}; conditions of the convergence theorem {verdict}"
