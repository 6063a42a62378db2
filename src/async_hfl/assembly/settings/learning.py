"""The sections on the learning problem: the task, training on devices and its engine, evaluation.

Every section is a table of the settings file; the text below a setting gives its meaning and its unit.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from async_hfl.assembly.settings.field_types import Count, NotNegative, Positive, Probability, Section, Share


class TaskSection(Section, frozen=True):
    """[task]: the learning problem, and the distribution of its data over the devices."""

    name: str = "digits"
    """Set by `--task`; `async-hfl tasks` lists the choices."""
    devices: Count = 60
    """Number of devices. Most tasks bring their own default."""
    target: float = 0.9
    """The value of the task's metric at which a run has reached its goal."""
    ladder: tuple[float, ...] = ()
    """Targets that the summary of a run looks up, from the easiest to the hardest; empty: `target` alone."""
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


class DeviceSection(Section, frozen=True):
    """[device]: local training, by mini-batch steps with a proximal term."""

    epochs: Count = 5
    """E: passes over the local data."""
    batch_size: Count = 100
    """Samples in a mini-batch; the last one of a pass may have fewer."""
    learning_rate: Positive = 0.01
    """gamma, the step size of local training."""
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    """sgd: momentum of local training; it starts anew with each job."""
    weight_decay: NotNegative = 0.0
    """Weight of half the squared norm of the model in the local loss. adamw: each step shrinks the model by
    `learning_rate` times this share instead."""
    proximal_weight: NotNegative = 0.1
    """rho, the weight of the distance to the received model: rho/2 times its square is added to the local loss."""
    single_sample: Literal["auto", "merge", "drop", "keep"] = "auto"
    """PyTorch tasks: what becomes of a last batch of one sample, from which batch normalisation cannot learn. merge: it
    joins the batch before it; drop: it is left out; keep: it is trained on; auto: merge if the model has batch
    normalisation, else keep. On a device with a single sample, such layers use the statistics that they were sent."""
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    """The rule of a step: sgd, with `momentum`; adam; adamw, whose weight decay is no part of the loss. The latter two
    need a smaller `learning_rate`, such as 0.001. An own task may have an optimiser of its own instead."""
    adam_beta1: Probability = 0.9
    """adam, adamw: beta_1, the share of the mean gradient that each step keeps; it starts anew with each job."""
    adam_beta2: Probability = 0.999
    """adam, adamw: beta_2, the share of the mean squared gradient that each step keeps."""
    adam_epsilon: Positive = 1e-8
    """adam, adamw: epsilon, added to the root of the mean squared gradient."""


class CentralSection(Section, frozen=True):
    """[central]: centralised training, for comparison. It can take larger steps than federated training."""

    epochs: Count = 20
    """Passes over the whole training set."""
    batch_size: Count = 100
    """Samples in a mini-batch."""
    learning_rate: Positive = 0.05
    """Initial value; it falls to 0 along half a cosine. Adam (`device.optimiser`) needs a smaller one."""


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
    torch_device: Literal["auto", "cpu", "cuda"] = "cpu"
    """The device that trains and evaluates a task in PyTorch. cpu: results are the same to the bit in a simulation
    and a deployment. cuda: the first GPU that PyTorch sees. auto: that GPU if there is one. The other settings of this
    section are for tasks in JAX."""


class EvaluationSection(Section, frozen=True):
    """[evaluation]: when and where the global model is evaluated. Times are in seconds (simulated: virtual)."""

    grid: Positive | Literal["auto", "aggregations"] = "auto"
    """Seconds between the times at which the model is evaluated, if it has changed; aggregations: after every
    aggregation at the cloud (after Z of them where gateways relay). auto: a tenth of the window; deployed:
    aggregations. The last model is always evaluated."""
    window: Positive | Literal["auto", "evaluations"] = "auto"
    """Seconds over which the mean of the metric has to pass the target; evaluations: the mean of three evaluations
    instead. auto: three median expected rounds of the network; deployed: evaluations."""
    where: Literal["cloud", "devices"] = "cloud"
    """The test set of the cloud, or samples of some devices (deployed only)."""
    period: Count = 1
    """devices: least number of cloud epochs between two evaluations."""
    devices: Count = 10
    """devices: most devices that are asked each time, drawn at random."""
    patience: Positive = 60.0
    """devices: seconds after which an evaluation closes. It closes earlier once 80 % of the devices have answered."""
