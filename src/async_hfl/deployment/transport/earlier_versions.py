"""Compatibility with nodes of release 0.2.0, which speak version 2 of the protocol.

Packets of the two versions are the same as long as models travel as float32: fields that were added since have
defaults, and readers skip fields that they do not know. What differs is what a node is told when it is admitted: the
facts about the task, and the names of the settings. Every function here converts one of them, or refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from async_hfl.core.errors import PeerError
from async_hfl.deployment.transport.admission import Admission, Refusal
from async_hfl.deployment.transport.limits import PACKAGE

RELEASE_2 = "async-hfl 0.2.0"
_FLOAT32_BYTES = 4
_FACTS_OF_2 = frozenset(
    {"model_size", "gradient_size", "learning_rate", "seed", "task", "task_digest", "method"}
    | {"metric", "threshold", "direction"}
)
"""Facts that both know. A node of release 0.2.0 ends if it is told one that it does not know."""
_SETTINGS_OF_2 = {
    "task": "name devices target partition samples_per_device classes_per_device class_assignment_mode dirichlet_alpha "
    "min_samples_per_device self_balancing shards_per_device shard_size keep_incomplete_shard device_sizes refresh "
    "layers normalisation interval model_size",
    "network": "name gateways compute links_per_device min_rate max_rate min_compute max_compute least_rate spacing "
    "fleet link_latency backhaul_rate backhaul_latency link_noise compute_noise backhaul_noise contention path "
    "download_path measured_bytes replay options",
    "radio": "frequency_mhz environment city_size rooftop_m street_width_m street_orientation_deg building_extent_m "
    "building_separation_m line_of_sight_limit_m rooftop_limit_m shadowing_db gateway_transmit_dbm gateway_antenna_dbi "
    "device_transmit_dbm device_antenna_dbi noise_figure_db detection_dbm mcs width_mhz",
    "cloud": "aggregation epochs epochs_after_target mixing_weight max_staleness delivery evaluate_every start "
    "gateway_patience lost_patience linger",
    "gateway": "aggregation epochs period round_patience mixing_weight drag bandwidth rated_model_bytes max_staleness "
    "in_flight staleness_clock patience_floor patience_factor cycle_patience reply_patience cloud_patience linger",
    "device": "epochs batch_size learning_rate momentum weight_decay proximal_weight",
    "central": "epochs batch_size learning_rate",
    "staleness": "kind exponent slope offset rate",
    "selection": "policy latency_exponent utility_scale utility_floor min_participation inside_tier",
    "association": "policy load_penalty period patience every_device switching_cost utility_scale max_latency_ratio "
    "redraw file",
    "utility": "gradient compression components sketch_size",
    "warmup": "enabled quorum patience limit charge",
    "engine": "memory precision vectors prefetch",
    "outages": "device_up device_down link_up link_down gateway_up gateway_down distribution spread schedule file "
    "detection transfer_loss stragglers straggler_factor straggler_from",
    "transfer": "encoding zstd",
    "evaluation": "where period devices patience",
    "journal": "payload_budget",
    "simulation": "batching checkpoint_epochs solver_seconds",
}
"""Settings that release 0.2.0 knows, by section."""
_CHANGED = {"selection.policy": "tifl"}
"""Values that mean something else to release 0.2.0: there, each gateway drew the tiers for itself."""
_COSMETIC = {"task.ladder", "journal.log_budget", "cloud.time_limit", "evaluation.grid", "evaluation.window"}
"""Later settings that matter only to the node that has them."""


def admission_for_2(admission: Admission) -> Admission | Refusal:
    """Return an admission as a node of version 2 expects it; a refusal if this run needs what it does not have."""
    facts = admission.facts
    encoded = {facts.get("up", "float32"), facts.get("down", "float32")} - {"float32"}
    settings: dict[str, dict[str, Any]] = json.loads(admission.settings)
    unknown = [f"{path} = {value!r}" for path, value in _paths(settings) if not _known_to_2(path, value)]
    if facts.get("clients"):
        unknown.append(f"task.name = {facts['task']!r}, whose clients train it")
    if encoded or unknown:
        what = " and ".join([*(f"models that travel as {kind}" for kind in sorted(encoded)), *unknown[:1]])
        method, encoding = "for example with --method async-hfl", "--set transfer.encoding=float32"
        without = " ".join([*([method] if unknown else []), *([encoding] if encoded else [])])
        return Refusal(
            "refused",
            f"the node that joins runs {RELEASE_2}, this run is of async-hfl {PACKAGE} and has {what}, which "
            f"{RELEASE_2} does not know: update the node, or begin a run without it ({without})",
        )
    told = {name: value for name, value in facts.items() if name in _FACTS_OF_2}
    told |= {"model_bytes": _FLOAT32_BYTES * int(facts["model_size"]), "half": False, "zstd": False, "share": 1.0}
    kept = {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in _COSMETIC}
        for section, values in settings.items()
    }
    return replace(admission, settings=json.dumps(kept, sort_keys=True), facts=told)


def admission_from_2(admission: Admission) -> Admission:
    """Return the admission to a run of version 2 as this version expects it."""
    return replace(admission, facts=facts_from_2(admission.facts, admission.settings))


def facts_from_2(facts: Mapping[str, Any], settings: str) -> Mapping[str, Any]:
    """Return the facts of a run that release 0.2.0 began. Facts of this version are returned as they are."""
    if "half" not in facts:
        return facts
    if facts["half"] or facts["zstd"]:
        raise PeerError(
            f'this run was begun by {RELEASE_2} with transfer.encoding = "float16" or transfer.zstd, which async-hfl '
            f"{PACKAGE} encodes in another way: finish it with {RELEASE_2}, or begin a new run"
        )
    utility = json.loads(settings).get("utility", {})
    compression, components = utility.get("compression", "none"), int(utility.get("components", 0))
    sizes = {"pca": tuple(range(1, components + 1)), "sketch": (int(utility.get("sketch_size", 0)),)}
    kept = {key: value for key, value in facts.items() if key not in ("model_bytes", "half", "zstd", "share")}
    return {
        **kept,
        "up": "float32",
        "down": "float32",
        "encodes_gradients": compression == "none",
        "projected_sizes": sizes.get(compression, ()),
    }


def _paths(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for section, values in settings.items():
        for key, value in values.items():
            yield f"{section}.{key}", value


def _known_to_2(path: str, value: Any) -> bool:
    section, _, key = path.partition(".")
    if path in _CHANGED and _CHANGED[path] == value:
        return False
    return path in _COSMETIC or key in _SETTINGS_OF_2.get(section, "").split()
