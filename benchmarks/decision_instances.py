"""Problems of every size for benchmarks/decisions.py, generated from a name and a seed in any process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from async_hfl.core.policies import AssociationProblem
from async_hfl.network.topologies.nycmesh_paper import nycmesh_paper

Floats = npt.NDArray[np.float64]
_MODEL_BYTES = 1_700_000
_MOST_DENSE = 1_000
"""Up to this number of devices, each device reaches every gateway; beyond it, ten of them."""
_SPARSE = 10


def selection(kind: str, count: int, seed: int) -> tuple[Floats, Floats, float]:
    """Return values, rates and capacity of Eq. 10 with kappa = 1. `learnt` has utilities between 0.1 and 1; `equal` has
    equal ones, as at the start of a run, which makes it a subset sum."""
    rng = np.random.default_rng([count, seed])
    latency = rng.lognormal(4.0, 0.8, count)
    utility = rng.uniform(0.1, 1.0, count) if kind == "learnt" else np.ones(count)
    rate = _MODEL_BYTES / latency
    return utility / latency, rate, float(0.3 * rate.sum())


def association(kind: str, devices: int, gateways: int, seed: int) -> AssociationProblem:
    """Eq. 11 with phi = 0.1. Utilities are log-normal, or Pareto with exponent 1.5 (some devices are worth a hundred
    others). `nycmesh` has the paper's delays; `near` has places on a plane and six links each to the nearest;
    `uniform` has independent delays."""
    rng = np.random.default_rng([devices, gateways, seed])
    if kind.startswith("nycmesh"):
        links = nycmesh_paper(devices, gateways, "comp1").links
        device, gateway, latency = links.link_device, links.link_gateway, links.expected_latency
    elif kind.startswith("near"):
        device, gateway, distance = _nearest(rng, devices, gateways)
        latency = 20.0 + 200.0 * distance
    else:
        each = gateways if devices <= _MOST_DENSE else min(gateways, _SPARSE)
        device = np.repeat(np.arange(devices), each)
        gateway = np.concatenate([_some(rng, gateways, each) for _ in range(devices)])
        latency = rng.lognormal(4.0, 0.6, len(device))
    heavy = kind.endswith("pareto")
    utility = rng.pareto(1.5, devices) + 0.1 if heavy else rng.lognormal(0.0, 0.6, devices)
    rate = _MODEL_BYTES / latency
    bandwidth = np.full(gateways, 0.5 * rate.mean() * devices / gateways)
    return AssociationProblem(
        utility / utility.mean(),
        bandwidth,
        device.astype(np.int64),
        gateway.astype(np.int64),
        rate,
        latency,
        0.1,
        True,
        0.0,
        np.full(devices, -1, np.int64),
        seed,
    )


def _nearest(
    rng: np.random.Generator, devices: int, gateways: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    places, hubs, each = rng.random((devices, 2)), rng.random((gateways, 2)), min(6, gateways)
    found, far = [], []
    for start in range(0, devices, 10_000):  # the whole matrix would take a gigabyte
        distance = np.linalg.norm(places[start : start + 10_000, None] - hubs[None], axis=2)
        nearest = np.sort(np.argpartition(distance, each - 1, axis=1)[:, :each], axis=1)
        found.append(nearest.ravel())
        far.append(np.take_along_axis(distance, nearest, axis=1).ravel())
    return np.repeat(np.arange(devices), each), np.concatenate(found), np.concatenate(far)


def _some(rng: np.random.Generator, gateways: int, each: int) -> npt.NDArray[np.int64]:
    if each == gateways:
        return np.arange(gateways)
    return np.sort(rng.choice(gateways, each, replace=False))
