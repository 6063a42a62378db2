"""The registries of built-in selection and association policies, and the policy that settings ask for.

A new built-in policy is one file in `decisions` and one line here. A user's own is given as FILE.py:FUNCTION.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from async_hfl.assembly.settings.policies import AssociationSection, SelectionSection
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code, load_function
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import SettingsError
from async_hfl.core.policies import AssociationPolicy, SelectionPolicy
from async_hfl.decisions.association.balanced_utility import BalancedUtility
from async_hfl.decisions.association.even import Even
from async_hfl.decisions.association.fixed import FixedAssociation, read_table
from async_hfl.decisions.association.nearest import NearestGateway
from async_hfl.decisions.association.random import RandomAssociation
from async_hfl.decisions.association.reclustering import Reclustering
from async_hfl.decisions.association.user_policy import OwnAssociation
from async_hfl.decisions.selection.divfl import DivFl
from async_hfl.decisions.selection.high_loss import HighLoss
from async_hfl.decisions.selection.longest_idle import LongestIdle
from async_hfl.decisions.selection.oort import Oort
from async_hfl.decisions.selection.random import RandomSelection
from async_hfl.decisions.selection.short_latency import ShortLatency
from async_hfl.decisions.selection.tifl import Tifl
from async_hfl.decisions.selection.user_policy import OwnSelection
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack

SELECTION: dict[str, Callable[[SelectionSection], SelectionPolicy]] = {
    "utility-knapsack": lambda _: UtilityKnapsack(),
    "random": lambda _: RandomSelection(),
    "high-loss": lambda _: HighLoss(),
    "short-latency": lambda _: ShortLatency(),
    "longest-idle": lambda _: LongestIdle(),
    "oort": lambda _: Oort(),
    "tifl": lambda section: Tifl(section.inside_tier),
    "divfl": lambda _: DivFl(),
}
ASSOCIATION: dict[str, Callable[[AssociationSection], AssociationPolicy]] = {
    "balanced-utility": lambda _: BalancedUtility(),
    "random": lambda section: RandomAssociation(section.redraw),
    "re-clustering": lambda section: Reclustering(_RECLUSTERING_PERIOD if section.period == "auto" else section.period),
    "even": lambda section: Even() if math.isinf(section.max_latency_ratio) else Even(section.max_latency_ratio),
    "nearest": lambda _: NearestGateway(),
    "fixed": lambda section: _fixed(section.file),
}
_RECLUSTERING_PERIOD = 10
"""Cloud epochs between two clusterings, if `association.period` is "auto"."""


def selection_policy(settings: Settings) -> SelectionPolicy:
    """Return the built-in or user's policy that `selection.policy` names."""
    name = settings.selection.policy
    if is_user_code(name):
        return OwnSelection(load_function("selection.policy", name), shown(name))
    _check_known("selection.policy", name, list(SELECTION))
    return SELECTION[name](settings.selection)


def association_policy(settings: Settings) -> AssociationPolicy:
    """Return the built-in or user's policy that `association.policy` names."""
    name = settings.association.policy
    if is_user_code(name):
        return OwnAssociation(load_function("association.policy", name), shown(name))
    _check_known("association.policy", name, list(ASSOCIATION))
    return ASSOCIATION[name](settings.association)


def _check_known(setting: str, name: str, names: list[str]) -> None:
    if name not in names:
        raise SettingsError(f"{setting} = {name!r}: there is {', '.join(names)}, or FILE.py:FUNCTION of your own")


def _fixed(file: str) -> FixedAssociation:
    if not file:
        raise SettingsError("association.policy = 'fixed' needs association.file: CSV with device,gateway, or JSON")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"association.file = {file!r}: cannot be read ({error})") from error
    return FixedAssociation(read_table(text, file), file)
