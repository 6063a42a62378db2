"""The environment of a run: network, radio, outages and the encoding of transfers.

Every section is a table of the settings file; the text below a setting gives its meaning and its unit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from async_hfl.assembly.settings.field_types import (
    AtLeastOne,
    Auto,
    Count,
    NotNegative,
    Positive,
    Probability,
    Section,
    Share,
)
from async_hfl.core.compression.encodings import EncodingKind


class NetworkSection(Section, frozen=True):
    """[network]: gateways, devices and the links between them. Rates are in bytes per second, latencies in seconds."""

    name: str = "nycmesh-paper"
    """Set by `--network`: a name that `async-hfl networks` lists, FILE.py:NAME, or `file` if it was given a file."""
    gateways: Count = 6
    """Number of gateways."""
    compute: Literal["comp", "comp1"] = "comp1"
    """nycmesh-paper: which of the authors' two sets of compute delays to use."""
    permute_compute: bool = False
    """nycmesh-paper: each seed deals these delays to the devices anew, so that other devices are slow; false: the order
    of the authors' file."""
    links_per_device: Count | Auto = "auto"
    """uniform: links of each device (auto: 3). Radio networks: the fastest links to keep (auto: 10)."""
    min_rate: Positive = 50_000.0
    """uniform: slowest link."""
    max_rate: Positive = 1_000_000.0
    """uniform: fastest link."""
    min_compute: NotNegative = 15.0
    """uniform: shortest training time, seconds."""
    max_compute: NotNegative = 100.0
    """uniform: longest training time, seconds."""
    least_rate: Positive = 10_000.0
    """Radio networks: a link that is slower than this in either direction is not used."""
    spacing: Positive = 500.0
    """random-geometric: mean distance between neighbouring gateways, metres."""
    fleet: str = "raspberry-pi"
    """The hardware of the devices: raspberry-pi, rpi4, rpi400, mixed, lognormal, or a CSV file of profiles."""
    link_latency: NotNegative = 0.02
    """Latency of every message between device and gateway, added to the time for its bytes."""
    backhaul_rate: Positive = 12_500_000.0
    """Rate between gateway and cloud, in each direction."""
    backhaul_latency: NotNegative = 0.02
    """Latency of every message between gateway and cloud."""
    link_noise: NotNegative | Auto = "auto"
    """sigma of the log-normal factor, of mean 1, on the duration of every transfer between device and gateway.
    auto: the measured value for radio networks, 0 for the others."""
    compute_noise: NotNegative = 0.0
    """sigma of the same factor on the duration of every training job."""
    backhaul_noise: NotNegative = 0.0
    """sigma of the same factor on every transfer between gateway and cloud."""
    contention: bool | Auto = "auto"
    """Simultaneous transfers of one gateway share its airtime. auto: true for radio networks only."""
    path: str = ""
    """file: sites (CSV or GeoJSON), a table of measured delays, or a recorded trace."""
    download_path: str = ""
    """file, delays: a separate table for the direction from gateway to device."""
    measured_bytes: Count | Auto = "auto"
    """file, delays: the bytes transferred in the measurement; auto: the size of this run's model."""
    replay: Literal["order", "resample"] = "order"
    """file, trace: replay the recorded values in their order, or draw from them at random."""
    options: dict[str, Any] = {}  # noqa: RUF012 (msgspec copies it)
    """FILE.py:NAME: settings of the user's own network, under names of its own (network.options.NAME)."""


class RadioSection(Section, frozen=True):
    """[radio]: path loss and the radios at both ends of a link, for networks that are described by sites."""

    frequency_mhz: Positive = 5180.0
    """Carrier frequency."""
    environment: Literal["urban", "suburban", "open-areas"] = "urban"
    """The surroundings in the path-loss models."""
    city_size: Literal["small", "medium", "large"] = "large"
    """The size of the city in the path-loss models."""
    rooftop_m: Positive = 20.0
    """Height of the roofs."""
    street_width_m: Positive = 20.0
    """Width of the streets."""
    street_orientation_deg: Annotated[float, Meta(ge=0, le=90)] = 45.0
    """Angle between the street and the link."""
    building_extent_m: Positive = 80.0
    """Length of the part of a path that is covered by buildings."""
    building_separation_m: Positive = 50.0
    """Distance between the centres of neighbouring buildings."""
    line_of_sight_limit_m: NotNegative = 200.0
    """Shorter links are taken to have a line of sight."""
    rooftop_limit_m: NotNegative = 1000.0
    """Longer links, unless both ends are below the roofs, follow the path loss of a mobile network's cell."""
    shadowing_db: NotNegative = 7.0
    """Standard deviation of the shadowing, which is drawn once for each pair of sites."""
    gateway_transmit_dbm: float = 20.0
    """Transmit power of a gateway's radio."""
    gateway_antenna_dbi: float = 12.0
    """Gain of a gateway's antenna."""
    device_transmit_dbm: float = 16.0
    """Transmit power of a device's radio."""
    device_antenna_dbi: float = 3.0
    """Gain of a device's antenna."""
    noise_figure_db: float = 7.0
    """Noise figure of every receiver."""
    detection_dbm: float = -92.0
    """Weaker frames are not detected. Data sheets of outdoor radios of this kind give -92 to -96; ns-3's default is
    -82."""
    mcs: Literal["best", 0, 1, 2, 3, 4, 5, 6, 7] = "best"
    """The modulation and coding scheme of 802.11n: the fastest for each link, or one for all (the authors used 0)."""
    width_mhz: Literal[20, 40] = 20
    """Channel width."""


class OutagesSection(Section, frozen=True):
    """[outages]: failures and recoveries in a simulated run. By default nothing fails. All times are in seconds."""

    device_up: Positive = float("inf")
    """Mean time that a device stays up."""
    device_down: Positive = 600.0
    """Mean duration of a device's outage. With up 5400 and down 600, a tenth of the devices is down at any time."""
    link_up: Positive = float("inf")
    """Mean time that a link between device and gateway stays up."""
    link_down: Positive = 600.0
    """Mean duration of a link's outage."""
    gateway_up: Positive = float("inf")
    """Mean time that a gateway stays up."""
    gateway_down: Positive = 600.0
    """Mean duration of a gateway's outage."""
    distribution: Literal["exponential", "log-normal"] = "exponential"
    """Distribution of the times up and down."""
    spread: NotNegative = 1.0
    """log-normal: standard deviation of the logarithm."""
    schedule: tuple[str, ...] = ()
    """Single changes, "SECONDS WHAT NUMBER TURN": "3600 gateway 2 dies", "0 link 12-3 down", "90 device 7 slow"."""
    file: str = ""
    """A schedule as CSV (at, what, number, turn), or the trace of a recorded run."""
    detection: Positive = 60.0
    """The cloud declares a gateway lost that has been down for this long."""
    transfer_loss: Probability = 0.0
    """Probability that a transfer breaks off."""
    stragglers: Share = 0.0
    """Share of the devices that become slow."""
    straggler_factor: AtLeastOne = 5.0
    """Slow devices take this many times as long for every training job."""
    straggler_from: NotNegative = 0.0
    """The time at which they become slow."""


class TransferSection(Section, frozen=True):
    """[transfer]: the encoding of models in transfers. A simulation rounds and counts bytes like a deployment."""

    encoding: EncodingKind = "float32"
    """The number format that models travel in, in both directions: int8 takes a quarter of the bytes of float32, int4
    an eighth. It replaces `up` and `down` of files that come before."""
    up: EncodingKind | Auto = "auto"
    """The format of changes on the way from devices to gateways and to the cloud. auto: that of `encoding`.
    Rounding errors are fed back into the next change."""
    down: EncodingKind | Auto = "auto"
    """The format of models on the way from the cloud to gateways and to devices. auto: that of `encoding`."""

    @property
    def up_kind(self) -> EncodingKind:
        return self.encoding if self.up == "auto" else self.up

    @property
    def down_kind(self) -> EncodingKind:
        return self.encoding if self.down == "auto" else self.down
