"""`nycmesh-paper`: the authors' own delays, for comparing with their figures. Constant for a whole run.

Their ns-3 matrix gives a round over each link for a fixed 600 kB model: 18.72 s down, 30.44 s of computing, the rest
up. A device's own computation delay comp_i is added to the 30.44 s, as their simulator does.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.fixed import FixedDelays
from async_hfl.network.description import NetworkDescription
from async_hfl.network.link_lookup import LinkLookup, compact
from async_hfl.network.package_data import table
from async_hfl.network.positions import MapFrame, Positions
from async_hfl.network.topologies.gateway_estimate import estimated_gateways

ROWS, COLUMNS = 184, 6
DOWNLOAD_SECONDS = 18.72
BASE_COMPUTE_SECONDS = 30.44
LEAST_UPLOAD_SECONDS = 0.1

HUBS = 70
FRAME = MapFrame(-74.001122, 40.711137, 85_000.0, 111_000.0)
"""The frame the authors' positions were made in (found by fitting them to the published map, see data/CREDITS.md)."""

ComputeFile = Literal["comp1", "comp"]
"""The authors' two draws of computation delays: comp1, for HAR and HPWREN comp."""


def nycmesh_paper(
    devices: int = ROWS, gateways: int = COLUMNS, compute_file: ComputeFile = "comp1"
) -> NetworkDescription:
    """The first `devices` rows and the first `gateways` columns of the authors' delay matrix.

    With fewer columns, rows left without a link are dropped first, together with their compute delays, as the authors
    load it.
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
    device, gateway = np.nonzero(matrix[rows, :gateways] > 0)
    round_without_own = matrix[rows, :gateways][device, gateway]
    upload = np.maximum(round_without_own - DOWNLOAD_SECONDS - BASE_COMPUTE_SECONDS, LEAST_UPLOAD_SECONDS)
    # np.nonzero goes row by row, so `upload` is already in the order that feasible_links sorts into.
    links = feasible_links(devices, gateways, device, gateway, DOWNLOAD_SECONDS + compute[device] + upload)
    backhaul = table("paper_delay_gateway_to_cloud.csv", (1, COLUMNS))[0, :gateways]
    delays = FixedDelays(LinkLookup.of(links), DOWNLOAD_SECONDS, compact(upload), compact(compute), compact(backhaul))

    # The estimate uses every row, so that a gateway stays where it is when the number of devices changes.
    west_south = table("paper_device_positions.csv", (ROWS, 2), columns=(2, 3), header=1)
    x, y = -west_south[:, 0], -west_south[:, 1]
    hub_x, hub_y = FRAME.to_metres(*table("hubs_2022-04-04.csv", (HUBS, 2), columns=(2, 3), header=1).T)
    gateway_x, gateway_y = estimated_gateways(x, y, matrix > 0, hub_x, hub_y)
    positions = Positions(x[rows], y[rows], gateway_x[:gateways], gateway_y[:gateways], estimated=True, frame=FRAME)
    return NetworkDescription("nycmesh-paper", links, compute, delays, positions)
