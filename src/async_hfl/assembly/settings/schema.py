"""The settings of a run: sections named by the room they configure, strict in name, type and range.

Defaults stand here; task, network, preset and method files, a run file and `--set` override them in that order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]
OrZero = Annotated[int, Meta(ge=0)]
Auto = Literal["auto"]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the settings file."""


class TaskSection(Section, frozen=True):
    """What is learnt."""

    name: str = "digits"
    devices: Count = 60
    target: float = 0.9
    """The metric to reach."""
    partition: str = "by_class"
    """Who holds which samples: iid, by_class, pathological, dirichlet, shard, natural_id, by_size."""
    samples_per_device: Count | Literal["all"] = "all"
    """So many samples a device, some of them held by several where the set is too small; all: it is dealt out once."""
    classes_per_device: Count = 2
    class_assignment_mode: Literal["random", "deterministic", "first-deterministic"] = "random"
    dirichlet_alpha: Positive = 0.5
    min_samples_per_device: Count = 10
    self_balancing: bool = False
    shards_per_device: Count | None = None
    shard_size: Count | None = None
    keep_incomplete_shard: bool = True
    device_sizes: Literal["linear", "square", "exponential"] = "linear"
    refresh: Share = 0.0
    """Share of a device's samples that is renewed with each job, from its own classes."""
    layers: Literal[1, 2] = 1
    """shakespeare: layers of the LSTM."""
    normalisation: Literal["batch", "group"] = "batch"
    """cifar10: of the ResNet."""
    interval: Literal["half-hourly", "hourly"] = "half-hourly"
    """hpwren: of the readings."""
    model_size: Count = 16
    """Numbers in the model of the null task."""


class NetworkSection(Section, frozen=True):
    """Where it is learnt."""

    name: str = "nycmesh-paper"
    gateways: Count = 6
    compute: Literal["comp", "comp1"] = "comp1"
    """nycmesh-paper: which of the authors' two draws of compute delays."""
    links_per_device: Count | Auto = "auto"
    """uniform: so many (auto: 3); by radio: the best so many (auto: 10)."""
    min_rate: Positive = 50_000.0
    max_rate: Positive = 1_000_000.0
    min_compute: NotNegative = 15.0
    max_compute: NotNegative = 100.0
    least_rate: Positive = 10_000.0
    """Bytes per second both ways from which a radio link counts as one."""
    spacing: Positive = 500.0
    """random-geometric: metres from gateway to gateway, on average."""
    fleet: str = "raspberry-pi"
    """What devices are: raspberry-pi, rpi4, rpi400, mixed, lognormal, or a CSV file of profiles."""
    link_latency: NotNegative = 0.02
    """Seconds that any message takes on a device link, besides its bytes."""
    backhaul_rate: Positive = 12_500_000.0
    """Bytes per second between gateway and cloud, each way."""
    backhaul_latency: NotNegative = 0.02
    link_noise: NotNegative | Auto = "auto"
    """sigma of the log-normal factor on every transfer, of mean 1; auto: as measured by radio, else 0."""
    compute_noise: NotNegative = 0.0
    """The same on every training, and ..."""
    backhaul_noise: NotNegative = 0.0
    """... between gateway and cloud."""
    contention: bool | Auto = "auto"
    """Transfers of a gateway at the same time share its air; auto: by radio they do."""
    path: str = ""
    """file: sites (CSV, GeoJSON), a table of measured delays, or a trace."""
    download_path: str = ""
    """file, delays: another table for the way to the devices."""
    measured_bytes: Count | Auto = "auto"
    """file, delays: how much travelled when they were measured; auto: as much as this run's model."""
    replay: Literal["order", "resample"] = "order"
    """file, trace: one recorded value after the other, or drawn from them."""
    options: dict[str, Any] = {}
    """FILE.py:NAME: settings of the user's network, under names of its own (network.options.NAME)."""


class RadioSection(Section, frozen=True):
    """The air, for networks of places: what a link loses, and what the radios at its ends make of the rest."""

    frequency_mhz: Positive = 5180.0
    environment: Literal["urban", "suburban", "open-areas"] = "urban"
    city_size: Literal["small", "medium", "large"] = "large"
    rooftop_m: Positive = 20.0
    street_width_m: Positive = 20.0
    street_orientation_deg: Annotated[float, Meta(ge=0, le=90)] = 45.0
    building_extent_m: Positive = 80.0
    building_separation_m: Positive = 50.0
    line_of_sight_limit_m: NotNegative = 200.0
    rooftop_limit_m: NotNegative = 1000.0
    shadowing_db: NotNegative = 7.0
    """Standard deviation, drawn once for each pair of places."""
    gateway_transmit_dbm: float = 20.0
    gateway_antenna_dbi: float = 12.0
    device_transmit_dbm: float = 16.0
    device_antenna_dbi: float = 3.0
    noise_figure_db: float = 7.0
    detection_dbm: float = -92.0
    """A frame weaker than this is not noticed: outdoor radios of this kind state -92 to -96 (ns-3's default is -82)."""
    mcs: Literal["best", 0, 1, 2, 3, 4, 5, 6, 7] = "best"
    """The rate of 802.11n: for each link the one that carries most, or one for all (the authors': 0)."""
    width_mhz: Literal[20, 40] = 20


class StartSection(Section, frozen=True):
    """Deployed: when a run begins. Who comes later is a late device."""

    devices: Count | Auto = "auto"
    """So many must be there; auto: as many as the task has."""
    gateways: Count | Auto = "auto"
    """auto: as many as the network has."""
    patience: Positive = 300.0
    """After so many seconds it begins with whoever is there, if anybody is."""


class CloudSection(Section, frozen=True):
    aggregation: Literal["mix", "average"] = "mix"
    """mix: an upload at once; average: when all gateways have reported."""
    epochs: Count = 1000
    """H: most aggregations at the cloud; most evaluations where gateways relay, and each device's update is one."""
    epochs_after_target: OrZero = 0
    """Evaluations that a run goes on for once its target is held."""
    mixing_weight: Weight = 0.9
    """alpha."""
    max_staleness: Count | Auto = "auto"
    delivery: Literal["reply", "broadcast"] = "reply"
    evaluate_every: Count = 1
    """Aggregations from one evaluation to the next; the last one is evaluated in any case."""
    start: StartSection = StartSection()
    gateway_patience: Positive = 10.0
    """Deployed: seconds that a gateway whose session broke may stay away before its devices are given to others."""
    lost_patience: NotNegative = 600.0
    """Deployed: seconds from there on after which what it has is listed as lost, until it brings it after all."""
    linger: NotNegative = 30.0
    """Deployed: seconds that the cloud waits at the end for gateways that have not heard of it."""


class GatewaySection(Section, frozen=True):
    aggregation: Literal["mix", "relay", "periods", "rounds"] = "mix"
    epochs: Count = 20
    """Z: updates mixed (or periods, or rounds) before an upload."""
    period: Positive = 100.0
    """periods: how long one is, seconds."""
    round_patience: Annotated[float, Meta(ge=1)] = 3.0
    """rounds: one closes after this many times what its slowest was expected to take (inf: when all are back)."""
    mixing_weight: Weight = 0.9
    """beta."""
    drag: Share = 1.0
    bandwidth: Positive | str = "50%"
    """B_j in bytes per second, or a share of the demand ("50%"; deployed: of what warm-up shows), or "unlimited"."""
    rated_model_bytes: Count | Auto = "auto"
    """M in R_ij = M / tau_ij; auto: what a model weighs. Bytes sent are always counted as they are."""
    max_staleness: Count | Auto = "auto"
    in_flight: Literal["carry", "discard"] = "carry"
    carry_staleness: Literal["both", "gateway"] = "both"
    patience_floor: Positive = 60.0
    patience_factor: Annotated[float, Meta(ge=1)] = 5.0
    cycle_patience: Positive = 600.0
    reply_patience: Positive = 120.0
    cloud_patience: Positive = 60.0
    """Deployed: seconds without the cloud after which a gateway triggers nothing new."""
    linger: NotNegative = 40.0
    """Deployed: seconds that a gateway stays at the end for devices that have not heard of it (they dial again within
    36 s)."""


class DeviceSection(Section, frozen=True):
    epochs: Count = 5
    """E: passes over the local data."""
    batch_size: Count = 100
    learning_rate: Positive = 0.01
    """gamma."""
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 0.0
    proximal_weight: NotNegative = 0.1
    """rho."""


class CentralSection(Section, frozen=True):
    """Centralised training, for comparison: alone one may take larger steps than devices that must agree."""

    epochs: Count = 20
    """Passes over the whole training set."""
    batch_size: Count = 100
    learning_rate: Positive = 0.05
    """At first; it falls to 0 along half a cosine."""


class StalenessSection(Section, frozen=True):
    kind: Literal["polynomial", "constant", "hinge", "exponential"] = "polynomial"
    exponent: NotNegative = 0.5
    slope: Positive = 10.0
    offset: NotNegative = 4.0
    rate: NotNegative = 0.1


class SelectionSection(Section, frozen=True):
    policy: str = "utility-knapsack"
    """A name, or FILE.py:FUNCTION of your own."""
    latency_exponent: NotNegative = 1.0
    """kappa."""
    utility_scale: Literal["minmax", "rank"] = "minmax"
    utility_floor: Share = 0.1
    min_participation: Share = 0.0
    """The least share of its time that a device is to take part, if the bandwidth allows; 0.2: after four times its
    own latency a waiting device goes first."""
    inside_tier: Literal["high-loss", "random"] = "high-loss"
    """tifl: who of the tier drawn goes first."""


class AssociationSection(Section, frozen=True):
    policy: str = "balanced-utility"
    load_penalty: NotNegative = 0.1
    """phi."""
    period: Count | Auto = "auto"
    """Cloud epochs between solutions; auto: the number of gateways."""
    patience: NotNegative | Auto = "auto"
    """Seconds that a device without a working gateway waits for a solution: who loses its own meanwhile is in it.
    auto: a minute simulated, half a second deployed."""
    every_device: bool = True
    switching_cost: NotNegative = 0.0
    utility_scale: Literal["mean", "raw"] = "mean"
    link_stretch: Annotated[float, Meta(ge=1)] = float("inf")
    redraw: bool = False
    """random: draw anew at every solution."""
    file: str = ""
    """fixed: the table of device and gateway, CSV or JSON."""


class UtilitySection(Section, frozen=True):
    gradient: Literal["last", "update"] = "last"
    compression: Literal["none", "pca", "sketch"] = "none"
    components: Count = 30
    """pca: most principal components of the warm-up gradients that later ones are projected on."""
    sketch_size: Count = 256
    """sketch: numbers in a compressed gradient."""


class WarmUpSection(Section, frozen=True):
    enabled: bool = True
    quorum: Weight | Auto = "auto"
    """Share of the devices not given up that must have answered; auto: a half, with pca all."""
    patience: NotNegative = 0.0
    limit: Positive = 3600.0
    charge: bool = True


class EngineSection(Section, frozen=True):
    """How jobs are trained; what comes out differs by rounding at most, and on CPU not at all."""

    memory: Annotated[int, Meta(ge=1)] = 8 * 2**30
    """Bytes that one group of jobs may take on a device."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Of matrix products on a GPU."""
    vectors: Literal["auto", "card", "host"] = "auto"
    """Where a simulation keeps models and gradients; auto: on a GPU, if there is one and `memory` takes them."""
    ahead: Literal["auto", "on", "off"] = "auto"
    """Train jobs while the simulation goes on, before results are due? On GPUs: smaller groups, so other roundings."""


class LifeSection(Section, frozen=True):
    """What fails in a simulated run, and comes back. Nothing, unless told otherwise."""

    device_up: Positive = float("inf")
    """Mean seconds that a device stays up, and ..."""
    device_down: Positive = 600.0
    """... that an outage of it lasts. 5400 and 600: a tenth of the devices is down at any time."""
    link_up: Positive = float("inf")
    """The same for every link between a device and a gateway, and ..."""
    link_down: Positive = 600.0
    gateway_up: Positive = float("inf")
    """... for gateways."""
    gateway_down: Positive = 600.0
    distribution: Literal["exponential", "log-normal"] = "exponential"
    """Of the times up and down."""
    spread: NotNegative = 1.0
    """log-normal: standard deviation of the logarithm."""
    schedule: tuple[str, ...] = ()
    """Single turns, "SECONDS WHAT NUMBER TURN": "3600 gateway 2 dies", "0 link 12-3 down", "90 device 7 slow"."""
    file: str = ""
    """The same as CSV (at, what, number, turn), or the trace of a recorded run."""
    detection: Positive = 60.0
    """Seconds after which the cloud holds a gateway that is down for lost."""
    transfer_loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Chance of a transfer to break off on its way."""
    stragglers: Share = 0.0
    """Share of the devices that become slow, ..."""
    straggler_factor: Annotated[float, Meta(ge=1)] = 5.0
    """... so many times as long for every training, ..."""
    straggler_from: NotNegative = 0.0
    """... from that second on."""


class TransferSection(Section, frozen=True):
    """How models travel. A simulation rounds and counts likewise."""

    half: bool = False
    """float32 as float16: half the bytes, 11 bits of each number."""
    zstd: bool = False
    """Compressed without loss; about a tenth less, for some work at both ends."""


class EvaluationSection(Section, frozen=True):
    """Deployed, where the cloud has no test set: devices that have one are asked."""

    where: Literal["cloud", "devices"] = "cloud"
    period: Count = 1
    """Cloud epochs from one evaluation to the next."""
    devices: Count = 10
    """Most devices asked each time, drawn at random."""
    patience: Positive = 60.0
    """Seconds after which an evaluation closes with the answers that came (else with 80 % of them)."""


class JournalSection(Section, frozen=True):
    """Deployed: what a node keeps on its disk."""

    payload_budget: Annotated[int, Meta(ge=0)] = 2_000_000_000
    """Bytes of models kept for replay; what recovery needs is kept besides, records are kept for ever."""


class SimulationSection(Section, frozen=True):
    batching: Literal["on", "off"] = "on"
    checkpoint_epochs: Count | Auto = "auto"
    """Cloud epochs between checkpoints; auto: 10, and at least ten updates a device (each writes every device), on a
    GPU a hundred."""
    charge_solver: NotNegative = 0.0


class Settings(Section, frozen=True):
    task: TaskSection = TaskSection()
    network: NetworkSection = NetworkSection()
    radio: RadioSection = RadioSection()
    cloud: CloudSection = CloudSection()
    gateway: GatewaySection = GatewaySection()
    device: DeviceSection = DeviceSection()
    central: CentralSection = CentralSection()
    staleness: StalenessSection = StalenessSection()
    selection: SelectionSection = SelectionSection()
    association: AssociationSection = AssociationSection()
    utility: UtilitySection = UtilitySection()
    warmup: WarmUpSection = WarmUpSection()
    engine: EngineSection = EngineSection()
    life: LifeSection = LifeSection()
    transfer: TransferSection = TransferSection()
    evaluation: EvaluationSection = EvaluationSection()
    journal: JournalSection = JournalSection()
    simulation: SimulationSection = SimulationSection()

    @property
    def last_epoch(self) -> int:
        """Of the cloud, where it does not reach its target."""
        relays = self.gateway.aggregation == "relay"
        return self.cloud.epochs * (self.cloud.evaluate_every if relays else 1)


class RunChoice(Section, frozen=True):
    """The `[run]` table of a run file: which parts to compose."""

    task: str = "digits"
    method: str = "async-hfl-plus"
    network: str = "nycmesh-paper"
    preset: str = "tight"
    seed: int = 1
