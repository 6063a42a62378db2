"""The aggregation rules of gateways and cloud by name, each registered with its checker.

A new built-in rule is one file in `nodes/*/aggregation`, one line here, and its checker for the fault simulation in
`faults/checkers`. A user's rule needs none of them: FILE.py:CLASS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.user_rules import load_cloud_rule, load_gateway_rule
from async_hfl.core.errors import SettingsError
from async_hfl.faults.checkers.checker import CloudChecker, GatewayChecker
from async_hfl.faults.checkers.cloud_average import AverageChecker
from async_hfl.faults.checkers.cloud_mix import CloudMixChecker
from async_hfl.faults.checkers.gateway_buffer import BufferChecker
from async_hfl.faults.checkers.gateway_mix import GatewayMixChecker
from async_hfl.faults.checkers.gateway_periods import PeriodsChecker
from async_hfl.faults.checkers.gateway_relay import RelayChecker
from async_hfl.faults.checkers.gateway_rounds import RoundsChecker
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.aggregation.rule import CloudAggregation
from async_hfl.nodes.gateway.aggregation.buffer import Buffer
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation

Rule = TypeVar("Rule")
Checker = TypeVar("Checker")


@dataclass(frozen=True, slots=True)
class Registered(Generic[Rule, Checker]):
    make: Callable[[], Rule]
    checker: type[Checker]
    """The base class, which checks nothing, for a user's rule."""
    reads: frozenset[str] = frozenset()
    """The settings of its section that this rule reads and not every rule does."""


GatewayRule = Registered[GatewayAggregation, GatewayChecker]
CloudRule = Registered[CloudAggregation, CloudChecker]

GATEWAY_RULES: dict[str, GatewayRule] = {
    "mix": Registered(MixOnArrival, GatewayMixChecker, frozenset({"mixing_weight", "drag", "during_upload"})),
    "relay": Registered(Relay, RelayChecker),
    "periods": Registered(Periods, PeriodsChecker, frozenset({"period", "refill", "during_upload", "weighting"})),
    "buffer": Registered(Buffer, BufferChecker, frozenset({"buffer_size", "during_upload"})),
    "rounds": Registered(Rounds, RoundsChecker, frozenset({"round_patience", "round_deadline", "over_selection"})),
}
_ADAM = ("adam_rate", "adam_beta1", "adam_beta2", "adam_epsilon")
CLOUD_RULES: dict[str, CloudRule] = {
    "mix": Registered(MixUploads, CloudMixChecker, frozenset({"mixing_weight"})),
    "average": Registered(AverageUploads, AverageChecker, frozenset({"momentum", "optimiser", *_ADAM})),
}


def gateway_rule(name: str) -> GatewayRule:
    """Return the built-in or the user's rule that `gateway.aggregation` names."""
    if is_user_code(name):
        return Registered(load_gateway_rule(name), GatewayChecker)
    check_known("gateway.aggregation", name, GATEWAY_RULES)
    return GATEWAY_RULES[name]


def cloud_rule(name: str) -> CloudRule:
    """Return the built-in or the user's rule that `cloud.aggregation` names."""
    if is_user_code(name):
        return Registered(load_cloud_rule(name), CloudChecker)
    check_known("cloud.aggregation", name, CLOUD_RULES)
    return CLOUD_RULES[name]


def check_known(setting: str, name: str, names: Iterable[str]) -> None:
    """Raise SettingsError if a name is neither a built-in rule nor a user's."""
    if name not in names and not is_user_code(name):
        raise SettingsError(f"{setting} = {name!r}: there is {', '.join(names)}, or FILE.py:CLASS of your own")
