"""The units of settings, and the parts of a run that read each section."""

from __future__ import annotations

_SECONDS = (
    "network.min_compute network.max_compute network.link_latency network.backhaul_latency "
    "cloud.time_limit cloud.start.patience cloud.gateway_patience cloud.lost_patience cloud.linger "
    "gateway.period gateway.round_deadline gateway.patience_floor gateway.cycle_patience "
    "gateway.reply_patience gateway.cloud_patience gateway.linger association.patience warmup.patience "
    "warmup.limit outages.device_up outages.device_down outages.link_up outages.link_down "
    "outages.gateway_up outages.gateway_down outages.detection outages.straggler_from evaluation.grid "
    "evaluation.window evaluation.patience simulation.solver_seconds"
)
_BYTES = "network.measured_bytes gateway.rated_model_bytes engine.memory journal.payload_budget journal.log_budget"
_RATES = "network.min_rate network.max_rate network.least_rate network.backhaul_rate gateway.bandwidth"
_METRES = (
    "network.spacing radio.rooftop_m radio.street_width_m radio.building_extent_m radio.building_separation_m "
    "radio.line_of_sight_limit_m radio.rooftop_limit_m"
)
_CLOUD_EPOCHS = "cloud.epochs cloud.max_staleness association.period evaluation.period simulation.checkpoint_epochs"
UNITS: dict[str, str] = {
    **dict.fromkeys(_SECONDS.split(), "seconds"),
    **dict.fromkeys(_BYTES.split(), "bytes"),
    **dict.fromkeys(_RATES.split(), "bytes per second"),
    **dict.fromkeys(_METRES.split(), "metres"),
    **dict.fromkeys(_CLOUD_EPOCHS.split(), "cloud epochs"),
    "radio.frequency_mhz": "MHz",
    "radio.width_mhz": "MHz",
    "radio.street_orientation_deg": "degrees",
    "radio.shadowing_db": "dB",
    "radio.noise_figure_db": "dB",
    "radio.gateway_transmit_dbm": "dBm",
    "radio.device_transmit_dbm": "dBm",
    "radio.detection_dbm": "dBm",
    "radio.gateway_antenna_dbi": "dBi",
    "radio.device_antenna_dbi": "dBi",
    "device.epochs": "passes over the local data",
    "device.batch_size": "samples",
    "central.epochs": "passes over the training set",
    "central.batch_size": "samples",
}
"""By path. A setting that is not listed is a number without a unit, a count of what its name says, or no number."""

READERS: dict[str, str] = {
    "task": "every run, and `central`",
    "network": "simulations; a deployment reads the number of gateways",
    "radio": "simulations of networks with radio links",
    "cloud": "the cloud",
    "gateway": "each gateway",
    "privacy": "each gateway; the summary of a run",
    "device": "each device; `central` reads optimiser, momentum and weight decay",
    "central": "`async-hfl central`",
    "staleness": "gateways and cloud",
    "selection": "each gateway",
    "association": "the cloud",
    "utility": "gateways and cloud",
    "warmup": "the cloud",
    "engine": "training and evaluation",
    "outages": "simulations",
    "transfer": "every node",
    "evaluation": "the cloud",
    "journal": "deployments",
    "simulation": "simulations",
}
"""By section."""
