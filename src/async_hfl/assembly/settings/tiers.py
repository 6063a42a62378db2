"""The sections on cloud and gateways: aggregation, staleness, warm-up, limits and timeouts.

Every section is a table of the settings file; the text below a setting gives its meaning and its unit.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from async_hfl.assembly.settings.field_types import (
    AtLeastOne,
    Auto,
    Count,
    NotNegative,
    OrZero,
    Positive,
    Probability,
    Section,
    Share,
    Weight,
)


class StartSection(Section, frozen=True):
    """[cloud.start]: when a deployed run begins. Devices that join later are late devices."""

    devices: Count | Auto = "auto"
    """Devices that must have joined; auto: `task.devices`."""
    gateways: Count | Auto = "auto"
    """Gateways that must have joined; auto: `network.gateways`."""
    patience: Positive = 300.0
    """After this many seconds the run begins with the devices that have joined, if there are any."""


class CloudSection(Section, frozen=True):
    """[cloud]: aggregation of the gateways' models, and the end of a run."""

    aggregation: str = "mix"
    """mix: each upload on arrival; average: all gateways' models, once all have reported; or FILE.py:CLASS."""
    epochs: Count = 1000
    """H: aggregations after which a run ends. Where gateways relay, every device update is an aggregation, and a run
    ends after H times Z of them."""
    epochs_after_target: OrZero = 0
    """Evaluations for which a run continues after it has reached its target. On a grid of times they are at least as
    many steps of the grid."""
    time_limit: Positive = float("inf")
    """Seconds after which a run ends, from the beginning of its warm-up; virtual ones in a simulation. With it, and
    enough epochs, methods that do not reach the target are compared after the same time."""
    mixing_weight: Weight = 0.9
    """mix: alpha, the weight of an upload in the new global model before the staleness discount."""
    momentum: Probability = 0.0
    """average: mu, the share of the last step that is added to the next one; 0: none."""
    optimiser: Literal["momentum", "adam"] = "momentum"
    """average: the step from the global model to the average of the uploads is taken with `momentum`, or as the
    gradient of Adam (FedAdam)."""
    adam_rate: Positive = 0.01
    """average, adam: eta, the learning rate: the change of a weight in an epoch is mostly below it."""
    adam_beta1: Probability = 0.9
    """average, adam: beta_1, the share of the mean step that each step keeps."""
    adam_beta2: Probability = 0.99
    """average, adam: beta_2, the share of the mean squared step that each step keeps."""
    adam_epsilon: Positive = 1e-3
    """average, adam: tau, the degree of adaptivity, added to the root of the mean squared step. Weights that change
    less take smaller steps."""
    max_staleness: Count | Auto = "auto"
    """mix: uploads that are staler, in cloud epochs, are rejected. auto: ten times the gateways, at least 50; where
    gateways relay, 100 times the devices."""
    delivery: Literal["reply", "broadcast"] = "reply"
    """A new global model goes to the gateway whose upload is being answered, or to all of them."""
    start: StartSection = StartSection()
    gateway_patience: Positive = 10.0
    """Deployed: seconds without a session after which a gateway's devices are assigned to others."""
    lost_patience: NotNegative = 600.0
    """Deployed: further seconds after which the updates that the gateway has are listed as lost. They are struck off
    the list if it returns with them."""
    linger: NotNegative = 30.0
    """Deployed: seconds that the cloud waits at the end for gateways that have not heard of it."""


class GatewaySection(Section, frozen=True):
    """[gateway]: aggregation of device updates, the bandwidth limit and the timeouts, which are in seconds."""

    aggregation: str = "mix"
    """mix: each update on arrival; relay: pass it to the cloud; periods: the mean of each period; buffer: the mean of
    so many updates; rounds: the mean of a synchronous round; or FILE.py:CLASS."""
    epochs: Count = 20
    """Z: updates mixed (or periods, or buffers, or rounds) before an upload. relay: it only scales H."""
    buffer_size: Count = 10
    """buffer: K, the updates in the whole network that make a model at each gateway. A gateway waits for its part, in
    proportion to its devices, at least one."""
    period: Positive | Auto = 100.0
    """periods: duration of a period, seconds. auto: half of the first quartile of the round latencies of all devices,
    as the cloud observes them."""
    refill: Literal["period", "immediate"] = "period"
    """periods: idle devices are triggered when a period begins, or as soon as the bandwidth allows it."""
    weighting: Literal["period", "share"] = "period"
    """periods: the updates of a period are averaged; or each one has its device's share of the data of all devices of
    the gateway, times `gain`, so that its weight does not depend on how many others arrive with it."""
    gain: Positive = 1.5
    """periods, with weighting = share: g. With 1, an update of every device together makes one step of FedAvg."""
    round_patience: AtLeastOne = 3.0
    """rounds: a round closes after this many times the expected latency of its slowest device; inf: when all devices
    have answered."""
    round_deadline: Positive | str = float("inf")
    """rounds: a round closes after this many seconds, or after a quantile ("75%") of the round latencies of all
    devices, as the cloud observes them; inf: no deadline."""
    over_selection: AtLeastOne = 1.0
    """rounds: a gateway selects this many times the devices whose answers close its round; 1: all are waited for."""
    mixing_weight: Weight = 0.9
    """mix: beta, the weight of a device's update before the staleness discount."""
    drag: Share = 1.0
    """mix: 1 mixes the device's model, as the paper does; 0 adds only the change that it made to the model it was sent,
    so that a late update does not pull the gateway's model back."""
    bandwidth: Positive | str = "50%"
    """B_j in bytes per second, or a share of the demand ("50%"; deployed: the demand as known when training begins), or
    "unlimited"."""
    rated_model_bytes: Count | Auto = "auto"
    """M in R_ij = M / tau_ij; auto: the mean of a model's bytes on the way down and on the way up.
    Statistics count the bytes that were really sent."""
    max_change: AtLeastOne = 10.0
    """An update that changes the model by more than this many times what is usual is refused. Usual is the median of
    the latest changes of this gateway's devices, as Euclidean norms; inf: no bound. Simulations on an accelerator have
    no bound."""
    robust: Literal["none", "clip", "trimmed-mean", "median"] = "none"
    """mix, periods, buffer, rounds: limit what a few harmful devices can do, by comparison with the latest changes of
    other devices of the gateway. clip: longer changes are cut to the median of their norms; trimmed-mean, median: each
    change is replaced by that statistic of all, coordinate by coordinate."""
    robust_window: Annotated[int, Meta(ge=3, le=1000)] = 20
    """Devices whose latest changes are compared, the last distinct ones. With trimmed-mean or median a gateway keeps as
    many models in memory."""
    trim: Annotated[float, Meta(gt=0, lt=0.5)] = 0.3
    """trimmed-mean: the share of the changes that is left out at each end, rounded up."""
    max_staleness: Count | Auto = "auto"
    """mix, periods, buffer: updates that are staler are discarded; auto: 100 times the associated devices, at least
    200."""
    in_flight: Literal["carry", "discard"] = "carry"
    """Jobs in flight when a new global model arrives are still aggregated, or are discarded."""
    during_upload: Literal["wait", "continue"] = "wait"
    """mix, periods, buffer: a gateway waits for the cloud's answer to its upload, or goes on aggregating; then it
    adopts the answer and keeps the changes made since."""
    staleness_clock: Literal["both", "gateway"] = "both"
    """mix: staleness counts the epochs of gateway and cloud since the job was sent, or the gateway's alone."""
    patience_floor: Positive = 60.0
    """A device times out after `patience_factor` times its expected latency, but not before this time."""
    patience_factor: AtLeastOne = 5.0
    """The number of expected latencies after which a device times out."""
    cycle_patience: Positive = 600.0
    """A gateway that waits for updates, with no job in flight and no device to select, uploads after this time."""
    reply_patience: Positive = 120.0
    """An upload is sent again if the cloud has not answered within this time; the time doubles with each attempt."""
    cloud_patience: Positive = 60.0
    """Deployed: a gateway that has had no session with the cloud for this long starts no new jobs."""
    linger: NotNegative = 40.0
    """Deployed: seconds that a gateway waits at the end for devices that have not heard of it (they reconnect within
    36 s)."""


class PrivacySection(Section, frozen=True):
    """[privacy]: differential privacy of single devices towards everybody but their gateway. It needs
    gateway.robust = "none", and policies that look at neither losses nor gradients."""

    clip: Positive = float("inf")
    """C: the largest Euclidean norm of a device's change; longer ones are scaled down."""
    noise: NotNegative = 0.0
    """z: standard deviation of the Gaussian noise of each aggregation, as a multiple of the most that one device can
    change the result by. 0: no noise, no privacy. With noise, gateway.max_change does not apply."""
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """The delta for which the summary of a run gives epsilon."""


class StalenessSection(Section, frozen=True):
    """[staleness]: the discount s(x) for an update of staleness x, at gateways and cloud alike."""

    kind: Literal["polynomial", "constant", "hinge", "exponential"] = "polynomial"
    """polynomial (x + 1)^-q, constant 1, hinge 1 up to b and then 1 / (a (x - b) + 1), exponential e^(-c x)."""
    exponent: NotNegative = 0.5
    """q in the polynomial discount."""
    slope: Positive = 10.0
    """a in the hinge discount."""
    offset: NotNegative = 4.0
    """b in the hinge discount."""
    rate: NotNegative = 0.1
    """c in the exponential discount."""


class WarmUpSection(Section, frozen=True):
    """[warmup]: one job for every device, to estimate latencies and utilities. Times are in seconds."""

    enabled: bool = True
    """False: no warm-up; latencies and utilities are learnt during the run."""
    quorum: Weight | Auto = "auto"
    """Share of the devices, less those that timed out, that must have answered; auto: 0.5, or 1 with pca."""
    patience: NotNegative = 0.0
    """Least duration of the warm-up; it ends earlier only if all devices have answered or timed out."""
    limit: Positive = 3600.0
    """The warm-up ends after this time if any device has answered."""
    charge: bool = True
    """False: times and bytes to the target are counted from the end of the warm-up."""


class JournalSection(Section, frozen=True):
    """[journal]: the storage of a deployed node."""

    payload_budget: OrZero = 2_000_000_000
    """Bytes of models kept for replay. Models that recovery needs are kept in addition; records are never deleted."""
    log_budget: OrZero = 100_000_000
    """Bytes of events kept for replay and audit, which then begin at the oldest snapshot that is kept. Events that
    recovery needs are kept in addition."""
