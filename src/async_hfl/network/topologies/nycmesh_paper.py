"""`nycmesh-paper`: the authors' own delays, for comparison with their figures. They are constant for a whole run;
with `network.permute_compute`, each seed deals the compute delays to the devices anew.

The authors' ns-3 matrix gives the time of a round over each link for a model of 600 kB: 18.72 s of download, 30.44 s of
computing, and the rest upload. As in the authors' simulator, a device's own computation delay comp_i is added to the
30.44 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.fixed import FixedDelays
from async_hfl.network.description import NetworkDescription
from async_hfl.network.link_lookup import LinkLookup, compact
from async_hfl.network.positions import MapFrame, Positions
from async_hfl.network.topologies.request import NetworkEntry, NetworkRequest

ROWS, COLUMNS = 184, 6
DOWNLOAD_SECONDS = 18.72
BASE_COMPUTE_SECONDS = 30.44
LEAST_UPLOAD_SECONDS = 0.1

HUBS = 70
FRAME = MapFrame(-74.001122, 40.711137, 85_000.0, 111_000.0)
"""The frame of the authors' positions, found by fitting them to the published map (data/CREDITS.md)."""

ComputeFile = Literal["comp1", "comp"]
"""The authors' two draws of computation delays: comp for HAR and HPWREN, comp1 for the other tasks."""


def nycmesh_paper(
    devices: int = ROWS,
    gateways: int = COLUMNS,
    compute_file: ComputeFile = "comp1",
    permuted_by: int | None = None,
) -> NetworkDescription:
    """Build the network from the first `devices` rows and `gateways` columns of the authors' delay matrix.

    With fewer columns, rows left without a link are dropped first, together with their compute delays, as in the
    authors' code. `permuted_by` is the seed by which compute delays are dealt to the devices in another order.
    """
    if compute_file not in get_args(ComputeFile):
        raise DataError(f"nycmesh-paper has no compute delays {compute_file!r}: {' or '.join(get_args(ComputeFile))}")
    if not 1 <= gateways <= COLUMNS:
        raise DataError(f"nycmesh-paper has {COLUMNS} gateways; {gateways} were asked for (1..{COLUMNS} are possible)")
    matrix = table("paper_delay_client_to_gateway.csv", (ROWS, COLUMNS))
    kept = np.flatnonzero((matrix[:, :gateways] > 0).any(axis=1))
    if not 1 <= devices <= len(kept):
        raise DataError(
            f"nycmesh-paper has {len(kept)} devices that reach one of its first {gateways} gateways; "
            f"{devices} were asked for (1..{len(kept)} are possible)"
        )
    rows = kept[:devices]
    compute = BASE_COMPUTE_SECONDS + table(f"paper_{compute_file}.txt", (ROWS, 1))[rows, 0]
    if permuted_by is not None:
        compute = stream(permuted_by, "network", "compute order").permutation(compute)
    device, gateway = np.nonzero(matrix[rows, :gateways] > 0)
    round_without_own = matrix[rows, :gateways][device, gateway]
    upload = np.maximum(round_without_own - DOWNLOAD_SECONDS - BASE_COMPUTE_SECONDS, LEAST_UPLOAD_SECONDS)
    # np.nonzero goes row by row, so `upload` is already in the order that feasible_links sorts into.
    links = feasible_links(devices, gateways, device, gateway, DOWNLOAD_SECONDS + compute[device] + upload)
    backhaul = table("paper_delay_gateway_to_cloud.csv", (1, COLUMNS))[0, :gateways]
    delays = FixedDelays(LinkLookup.of(links), DOWNLOAD_SECONDS, compact(upload), compact(compute), compact(backhaul))

    # The estimate uses every row, so that a gateway keeps its place when the number of devices changes.
    west_south = table("paper_device_positions.csv", (ROWS, 2), columns=(2, 3), header=1)
    x, y = -west_south[:, 0], -west_south[:, 1]
    hub_x, hub_y = FRAME.to_metres(*table("hubs_2022-04-04.csv", (HUBS, 2), columns=(2, 3), header=1).T)
    gateway_x, gateway_y = estimated_gateways(x, y, matrix > 0, hub_x, hub_y)
    positions = Positions(x[rows], y[rows], gateway_x[:gateways], gateway_y[:gateways], estimated=True, frame=FRAME)
    return NetworkDescription("nycmesh-paper", links, compute, delays, positions)


def estimated_gateways(
    device_x: Floats, device_y: Floats, reached: npt.NDArray[np.bool_], hub_x: Floats, hub_y: Floats
) -> tuple[Floats, Floats]:
    """Estimate the gateways' positions, which are not published: x and y for each column of `reached`.

    Each gateway is placed at the hub nearest to the centroid of the devices it reaches (`reached` is devices x
    gateways). Three of the six centroids have the same nearest hub, so every hub is used once, the closest pair of
    gateway and hub first. Maps must mark these positions as estimates.
    """
    gateways = reached.shape[1]
    if len(hub_x) < gateways:
        raise DataError(f"{len(hub_x)} hubs are too few for {gateways} gateways at one hub each")
    count = reached.sum(axis=0)
    isolated = np.flatnonzero(count == 0)
    if len(isolated):
        raise DataError(f"gateway {isolated[0]} reaches no device: its position cannot be estimated")
    centre_x, centre_y = device_x @ reached / count, device_y @ reached / count
    distance = np.hypot(centre_x[:, None] - hub_x, centre_y[:, None] - hub_y)
    chosen = np.zeros(gateways, np.int64)
    for _ in range(gateways):
        gateway, hub = np.unravel_index(np.argmin(distance), distance.shape)
        chosen[gateway] = hub
        distance[gateway, :] = np.inf
        distance[:, hub] = np.inf
    return hub_x[chosen], hub_y[chosen]


def table(name: str, shape: tuple[int, int], columns: Sequence[int] | None = None, header: int = 0) -> Floats:
    """Read a packaged table of numbers (data/CREDITS.md) and check its shape, which detects a damaged installation."""
    file = resources.files("async_hfl.network") / "data" / name
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        values = np.loadtxt(lines, np.float64, delimiter=",", usecols=columns, skiprows=header, ndmin=2)
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"package data {name} cannot be read ({error}): install the package again") from error
    if values.shape != shape:
        raise DataError(f"package data {name} has shape {values.shape}, not {shape}: install the package again")
    return values


def _requested(request: NetworkRequest) -> NetworkDescription:
    settings = request.settings
    permuted_by = request.seed if settings["permute_compute"] else None
    return nycmesh_paper(request.devices, request.gateways, settings["compute"], permuted_by)


NETWORK = NetworkEntry(_requested, reads=frozenset({"gateways", "compute", "permute_compute"}))
