"""Checks of robust and private aggregation: the rules and policies with which they do what they promise."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.core.errors import SettingsError

_IMPARTIAL_SELECTION = ("longest-idle", "random", "short-latency")
_IMPARTIAL_ASSOCIATION = ("even", "fixed", "nearest", "random")
"""Policies that look at neither losses nor gradients."""


def check_contributions(settings: Settings, given: Mapping[str, str]) -> None:
    """Raise SettingsError if robust or private aggregation is asked for where it cannot work."""
    gateway, privacy = settings.gateway, settings.privacy
    for setting, used in (
        (f"gateway.robust = {gateway.robust!r}", gateway.robust != "none"),
        ("privacy.clip", privacy.clip < inf),
        ("privacy.noise", privacy.noise > 0.0),
    ):
        if used and gateway.aggregation == "relay":
            raise SettingsError(
                f"{setting} needs a gateway that aggregates, but gateway.aggregation = 'relay' passes single updates "
                "to the cloud: use 'mix', 'periods', 'buffer' or 'rounds'"
            )
        if used and is_user_code(gateway.aggregation):
            raise SettingsError(
                f"{setting} works with the built-in rules of gateways only: {gateway.aggregation} combines updates in "
                "its own way"
            )
    if gateway.robust != "none" and privacy.clip < inf:
        raise SettingsError(
            f"gateway.robust = {gateway.robust!r} with privacy.clip: what one device can do to a statistic of many "
            "changes has no useful bound, and a change is used again while it is compared; choose one of the two"
        )
    if privacy.noise > 0.0:
        _check_noise(settings)
    elif "privacy.delta" in given:
        raise SettingsError(f"privacy.delta ({given['privacy.delta']}): has no effect without privacy.noise")


def _check_noise(settings: Settings) -> None:
    if settings.privacy.clip == inf:
        raise SettingsError("privacy.noise is a multiple of privacy.clip, the largest norm of a change: set that too")
    for setting, chosen, impartial in (
        ("selection.policy", settings.selection.policy, _IMPARTIAL_SELECTION),
        ("association.policy", settings.association.policy, _IMPARTIAL_ASSOCIATION),
    ):
        if chosen not in impartial:
            raise SettingsError(
                f"{setting} = {chosen!r} with privacy.noise: decisions would reveal losses or gradients of devices, "
                f"which have no noise; use {', '.join(impartial)}"
            )
    if settings.evaluation.where == "devices":
        raise SettingsError(
            "evaluation.where = 'devices' with privacy.noise: the cloud would get metrics of single devices, which "
            "have no noise; evaluate at the cloud"
        )
