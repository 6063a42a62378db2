"""The sections on decisions: selection, association, and the utility that both may use.

Every section is a table of the settings file; the text below a setting gives its meaning and its unit.
"""

from __future__ import annotations

from typing import Literal

from async_hfl.assembly.settings.field_types import AtLeastOne, Auto, Count, NotNegative, Section, Share


class SelectionSection(Section, frozen=True):
    """[selection]: which devices a gateway starts jobs on."""

    policy: str = "utility-knapsack"
    """A built-in policy, or FILE.py:FUNCTION."""
    latency_exponent: NotNegative = 1.0
    """kappa: a device counts with its utility divided by its latency to this power."""
    utility_scale: Literal["minmax", "rank"] = "minmax"
    """Utilities are scaled to [utility_floor, 1] by their value or by their rank."""
    utility_floor: Share = 0.1
    """The scaled utility of the least useful device."""
    min_participation: Share = 0.0
    """Least share of the time that each device takes part, as far as the bandwidth allows. 0.2: a device that has
    waited for four times its own latency goes first."""
    participants: Count | str = "auto"
    """Synchronous rounds: K, the devices in the whole network whose answers a round waits for, or their share of all
    devices ("30%"). Each gateway has a part in proportion to its devices, at least one. auto: as many as the bandwidth
    allows."""
    inside_tier: Literal["high-loss", "random"] = "high-loss"
    """tifl: the order within the tier that was drawn."""


class AssociationSection(Section, frozen=True):
    """[association]: which gateway each device belongs to."""

    policy: str = "balanced-utility"
    """A built-in policy, or FILE.py:FUNCTION."""
    load_penalty: NotNegative = 0.1
    """phi, the weight of the load of gateways against the utility of their devices."""
    period: Count | Auto = "auto"
    """Cloud epochs between two solutions; auto: the number of gateways."""
    patience: NotNegative | Auto = "auto"
    """Seconds from the first device that loses its gateway to the next solution, so that one solution serves all
    devices that lose theirs meanwhile. auto: 60 simulated, 0.5 deployed."""
    every_device: bool = True
    """Every device with a link gets a gateway; false: a policy may leave devices out."""
    switching_cost: NotNegative = 0.0
    """Objective that a device must gain to move to another gateway."""
    utility_scale: Literal["mean", "raw"] = "mean"
    """Utilities are divided by the mean of their absolute values, or taken as they are."""
    max_latency_ratio: AtLeastOne = float("inf")
    """Links whose latency is more than this many times that of the device's best link are not used."""
    redraw: bool = False
    """random: draw again at every solution."""
    file: str = ""
    """fixed: the table of devices and gateways, CSV or JSON."""


class UtilitySection(Section, frozen=True):
    """[utility]: the gradients from which the learning utility of a device is computed."""

    gradient: Literal["last", "update"] = "last"
    """last: the gradient at the final weights, sent by the device; update: the mean step, which the gateway computes
    from the weights at no extra bytes: (w_sent - w) / (learning_rate times steps). With Adam it is no gradient, but the
    mean of normalised steps, whose length hardly depends on the loss."""
    compression: Literal["none", "pca", "sketch"] = "none"
    """Compression of gradients that are sent: none, by principal components, or by a sketch."""
    components: Count = 30
    """pca: most principal components of the warm-up gradients, onto which later gradients are projected."""
    sketch_size: Count = 256
    """sketch: numbers in a compressed gradient."""
