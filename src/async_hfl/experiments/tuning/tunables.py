"""The settings that tuning may choose: a table of setting, condition and values.

A method has a setting if its rules read it and its own settings give it a number other than 0: the packaged semi-async
has no momentum, and a period that follows what the system observes (`auto`) is not tuned. Values lie on a grid around
the packaged one. Steps count from there, and half of a step refines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from async_hfl.assembly.build.aggregation_rules import CLOUD_RULES, GATEWAY_RULES
from async_hfl.assembly.settings.schema import Settings

Value = float | str
"""A number, or a percentage ("75%") for settings that may be either."""
Values = Callable[[float, float], float | None]
"""(packaged value, steps) -> the value that many steps away; None outside of the range."""


def geometric(factor: float) -> Values:
    """Return values that grow by a factor at each step, with two significant figures."""

    def value(usual: float, steps: float) -> float:
        return usual if steps == 0 else float(f"{usual * factor**steps:.2g}")

    return value


def linear(step: float, low: float, high: float) -> Values:
    def value(usual: float, steps: float) -> float | None:
        found = round(usual + step * steps, 9)
        return found if low <= found <= high else None

    return value


@dataclass(frozen=True, slots=True)
class Tunable:
    setting: str
    numbers: Values
    read: Callable[[Settings], bool] = lambda settings: True
    percentages: Values | None = None
    """The values if the packaged one is a percentage; None: it is not tuned then."""

    def usual(self, settings: Settings) -> Value | None:
        """Return the value to start from; None if the method does not have the setting."""
        section, key = self.setting.split(".")
        value: Any = getattr(getattr(settings, section), key)
        if not self.read(settings):
            return None
        if isinstance(value, str):
            return value if value.endswith("%") and self.percentages is not None else None
        return float(value) if 0 < value < float("inf") else None

    def value(self, usual: Value, steps: float) -> Value | None:
        """Return the value that many steps away from the packaged one; None outside of the range."""
        if not isinstance(usual, str):
            return self.numbers(usual, steps)
        assert self.percentages is not None
        found = self.percentages(float(usual.removesuffix("%")), steps)
        return None if found is None else f"{found:g}%"


def read_by_gateway_rule(key: str) -> Callable[[Settings], bool]:
    def read(settings: Settings) -> bool:
        rule = GATEWAY_RULES.get(settings.gateway.aggregation)
        return rule is not None and key in rule.reads

    return read


def read_by_cloud_rule(key: str, optimiser: str) -> Callable[[Settings], bool]:
    def read(settings: Settings) -> bool:
        rule = CLOUD_RULES.get(settings.cloud.aggregation)
        return rule is not None and key in rule.reads and settings.cloud.optimiser == optimiser

    return read


TUNABLES = (
    Tunable("device.learning_rate", geometric(10**0.5)),
    Tunable("gateway.period", geometric(4.0), read_by_gateway_rule("period")),
    Tunable("gateway.round_deadline", geometric(2.0), read_by_gateway_rule("round_deadline"), linear(20, 15, 95)),
    Tunable("cloud.momentum", linear(0.2, 0.1, 0.9), read_by_cloud_rule("momentum", "momentum")),
    Tunable("cloud.adam_rate", geometric(10**0.5), read_by_cloud_rule("adam_rate", "adam")),
)
"""In the order in which they are tuned."""


def tunables_of(settings: Settings, fixed: Collection[str] = ()) -> dict[Tunable, Value]:
    """Return the settings that can be tuned, but those in `fixed`, with the values to start from."""
    usual = {one: one.usual(settings) for one in TUNABLES if one.setting not in fixed}
    return {one: value for one, value in usual.items() if value is not None}
