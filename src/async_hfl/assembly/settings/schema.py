"""The schema of a run's settings: one class per section, with default, range and meaning of every setting.

Task, network, preset and method files, a run file and `--set` override these defaults, in that order. Names, types and
ranges are checked (`loading`). The sections on network, radio, outages and transfers are in `environment`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from async_hfl.assembly.settings.environment import NetworkSection, OutagesSection, RadioSection, TransferSection
from async_hfl.assembly.settings.field_types import (
    AtLeastOne,
    Auto,
    Count,
    NotNegative,
    OrZero,
    Positive,
    Section,
    Share,
    Weight,
)


class TaskSection(Section, frozen=True):
    """[task]: the learning problem, and the distribution of its data over the devices."""

    name: str = "digits"
    """Set by `--task`; `async-hfl tasks` lists the choices."""
    devices: Count = 60
    target: float = 0.9
    """The value of the task's metric at which a run has reached its goal."""
    partition: str = "by_class"
    """The distribution of samples over devices: iid, by_class, pathological, dirichlet, shard, natural_id, by_size."""
    samples_per_device: Count | Literal["all"] = "all"
    """Samples that each device draws; a sample may be drawn by several devices. all: the training set is split into
    disjoint parts."""
    classes_per_device: Count = 2
    """by_class, pathological: different classes on each device."""
    class_assignment_mode: Literal["random", "deterministic", "first-deterministic"] = "random"
    """pathological: how a device's classes are chosen."""
    dirichlet_alpha: Positive = 0.5
    """dirichlet: concentration; smaller values make devices differ more."""
    min_samples_per_device: Count = 10
    """dirichlet: draw again until every device has this many."""
    self_balancing: bool = False
    """dirichlet: devices that already have their fair share get no more."""
    shards_per_device: Count | None = None
    """shard: shards that each device gets."""
    shard_size: Count | None = None
    """shard: samples in each shard."""
    keep_incomplete_shard: bool = True
    """shard: use a last shard that is smaller than the others."""
    device_sizes: Literal["linear", "square", "exponential"] = "linear"
    """by_size: growth of the number of samples with the device's number."""
    refresh: Share = 0.0
    """Share of a device's samples that each job replaces by others of the same classes."""
    layers: Literal[1, 2] = 1
    """shakespeare: layers of the LSTM."""
    normalisation: Literal["batch", "group"] = "batch"
    """cifar10: normalisation in the ResNet."""
    interval: Literal["half-hourly", "hourly"] = "half-hourly"
    """hpwren: interval of the readings."""
    model_size: Count = 16
    """null: parameters of the model."""


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
    """H: aggregations after which a run ends. Where gateways relay, every device update is an aggregation, and
    evaluations are counted instead."""
    epochs_after_target: OrZero = 0
    """Evaluations for which a run continues after it has reached its target."""
    mixing_weight: Weight = 0.9
    """mix: alpha."""
    max_staleness: Count | Auto = "auto"
    """mix: uploads that are staler, in cloud epochs, are rejected. auto: ten times the gateways, at least 50; where
    gateways relay, 100 times the devices."""
    delivery: Literal["reply", "broadcast"] = "reply"
    """A new global model goes to the gateway whose upload is being answered, or to all of them."""
    evaluate_every: Count = 1
    """Aggregations between two evaluations. The last model is always evaluated."""
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
    """mix: each update on arrival; relay: pass it to the cloud; periods: the mean of each period; rounds: the mean of a
    synchronous round; or FILE.py:CLASS."""
    epochs: Count = 20
    """Z: updates mixed (or periods, or rounds) before an upload."""
    period: Positive = 100.0
    """periods: duration of a period, seconds."""
    round_patience: AtLeastOne = 3.0
    """rounds: a round closes after this many times the expected latency of its slowest device; inf: when all devices
    have answered."""
    mixing_weight: Weight = 0.9
    """mix: beta."""
    drag: Share = 1.0
    """mix: 1 mixes the device's model, as the paper does; 0 adds only the change that it made to the model it was sent,
    so that a late update does not pull the gateway's model back."""
    bandwidth: Positive | str = "50%"
    """B_j in bytes per second, or a share of the demand ("50%"; deployed: the demand seen in the warm-up), or
    "unlimited"."""
    rated_model_bytes: Count | Auto = "auto"
    """M in R_ij = M / tau_ij; auto: the mean of a model's bytes on the way down and on the way up.
    Statistics count the bytes that were really sent."""
    max_staleness: Count | Auto = "auto"
    """mix, periods: updates that are staler are discarded; auto: 100 times the associated devices, at least 200."""
    in_flight: Literal["carry", "discard"] = "carry"
    """Jobs in flight when a new global model arrives are still aggregated, or are discarded."""
    staleness_clock: Literal["both", "gateway"] = "both"
    """mix: staleness counts the epochs of gateway and cloud since the job was sent, or the gateway's alone."""
    patience_floor: Positive = 60.0
    """A device times out after `patience_factor` times its expected latency, but not before this time."""
    patience_factor: AtLeastOne = 5.0
    cycle_patience: Positive = 600.0
    """A gateway that waits for updates, with no job in flight and no device to select, uploads after this time."""
    reply_patience: Positive = 120.0
    """An upload is sent again if the cloud has not answered within this time; the time doubles with each attempt."""
    cloud_patience: Positive = 60.0
    """Deployed: a gateway that has had no session with the cloud for this long starts no new jobs."""
    linger: NotNegative = 40.0
    """Deployed: seconds that a gateway waits at the end for devices that have not heard of it (they reconnect within
    36 s)."""


class DeviceSection(Section, frozen=True):
    """[device]: local training, by stochastic gradient descent with a proximal term."""

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
    """[central]: centralised training, for comparison. It can take larger steps than federated training."""

    epochs: Count = 20
    """Passes over the whole training set."""
    batch_size: Count = 100
    learning_rate: Positive = 0.05
    """Initial value; it falls to 0 along half a cosine."""


class StalenessSection(Section, frozen=True):
    """[staleness]: the discount s(x) for an update of staleness x, at gateways and cloud alike."""

    kind: Literal["polynomial", "constant", "hinge", "exponential"] = "polynomial"
    """polynomial (x + 1)^-q, constant 1, hinge 1 up to b and then 1 / (a (x - b) + 1), exponential e^(-c x)."""
    exponent: NotNegative = 0.5
    """q."""
    slope: Positive = 10.0
    """a."""
    offset: NotNegative = 4.0
    """b."""
    rate: NotNegative = 0.1
    """c."""


class SelectionSection(Section, frozen=True):
    """[selection]: which devices a gateway starts jobs on."""

    policy: str = "utility-knapsack"
    """A built-in policy, or FILE.py:FUNCTION."""
    latency_exponent: NotNegative = 1.0
    """kappa."""
    utility_scale: Literal["minmax", "rank"] = "minmax"
    """Utilities are scaled to [utility_floor, 1] by their value or by their rank."""
    utility_floor: Share = 0.1
    min_participation: Share = 0.0
    """Least share of the time that each device takes part, as far as the bandwidth allows. 0.2: a device that has
    waited for four times its own latency goes first."""
    inside_tier: Literal["high-loss", "random"] = "high-loss"
    """tifl: the order within the tier that was drawn."""


class AssociationSection(Section, frozen=True):
    """[association]: which gateway each device belongs to."""

    policy: str = "balanced-utility"
    """A built-in policy, or FILE.py:FUNCTION."""
    load_penalty: NotNegative = 0.1
    """phi."""
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
    from the weights at no extra bytes."""
    compression: Literal["none", "pca", "sketch"] = "none"
    components: Count = 30
    """pca: most principal components of the warm-up gradients, onto which later gradients are projected."""
    sketch_size: Count = 256
    """sketch: numbers in a compressed gradient."""


class WarmUpSection(Section, frozen=True):
    """[warmup]: one job for every device, to estimate latencies and utilities. Times are in seconds."""

    enabled: bool = True
    quorum: Weight | Auto = "auto"
    """Share of the devices, less those that timed out, that must have answered; auto: 0.5, or 1 with pca."""
    patience: NotNegative = 0.0
    """Least duration of the warm-up; it ends earlier only if all devices have answered or timed out."""
    limit: Positive = 3600.0
    """The warm-up ends after this time if any device has answered."""
    charge: bool = True
    """False: times and bytes to the target are counted from the end of the warm-up."""


class EngineSection(Section, frozen=True):
    """[engine]: how jobs are trained. Results differ by rounding at most, and on a CPU not at all."""

    memory: Count = 8 * 2**30
    """Bytes that one group of jobs may take, on each accelerator or on the CPU."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Precision of matrix products on a GPU."""
    vectors: Literal["auto", "device", "host"] = "auto"
    """The place where a simulation keeps models and gradients. device: on the accelerator; auto: there, if it is a GPU
    and they fit into `memory`."""
    prefetch: Literal["auto", "on", "off"] = "auto"
    """Train jobs before their results are due, while the simulation goes on. On a GPU this makes smaller groups, which
    round differently."""


class EvaluationSection(Section, frozen=True):
    """[evaluation]: evaluation by devices, in deployments in which the cloud has no test set."""

    where: Literal["cloud", "devices"] = "cloud"
    period: Count = 1
    """Cloud epochs between two evaluations by devices."""
    devices: Count = 10
    """Most devices that are asked each time, drawn at random."""
    patience: Positive = 60.0
    """Seconds after which an evaluation closes. It closes earlier once 80 % of the devices have answered."""


class JournalSection(Section, frozen=True):
    """[journal]: the storage of a deployed node."""

    payload_budget: OrZero = 2_000_000_000
    """Bytes of models kept for replay. Models that recovery needs are kept in addition; records are never deleted."""


class SimulationSection(Section, frozen=True):
    """[simulation]: the simulator itself."""

    batching: Literal["on", "off"] = "on"
    """Train the jobs in flight in groups; off: one at a time, when a result is due."""
    checkpoint_epochs: Count | Auto = "auto"
    """Cloud epochs between two checkpoints. auto: 10, and at least 10 updates per device (100 where models stay on a
    GPU), since a checkpoint writes every device's state."""
    solver_seconds: NotNegative = 0.0
    """Virtual seconds that each solution of the association takes."""


class Settings(Section, frozen=True):
    """All settings of a run."""

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
    outages: OutagesSection = OutagesSection()
    transfer: TransferSection = TransferSection()
    evaluation: EvaluationSection = EvaluationSection()
    journal: JournalSection = JournalSection()
    simulation: SimulationSection = SimulationSection()

    @property
    def last_epoch(self) -> int:
        """The cloud epoch at which a run ends that does not reach its target."""
        relays = self.gateway.aggregation == "relay"
        return self.cloud.epochs * (self.cloud.evaluate_every if relays else 1)


class RunChoice(Section, frozen=True):
    """[run] in a run file: the files that a run's settings are composed from, and its seed."""

    task: str = "digits"
    method: str = "async-hfl-plus"
    network: str = "nycmesh-paper"
    preset: str = "tight"
    seed: int = 1
