"""Samples on a device, and how a batch of them is gathered there."""

from __future__ import annotations

from typing import Any, NamedTuple

from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import Array, jax, jnp


class Resident(NamedTuple):
    """The arrays of `Samples`; None where it has none."""

    inputs: Any
    targets: Any
    starts: Any
    offset: Any
    factor: Any


def resident(samples: Samples, device: Any) -> Resident:
    """The samples put on a device once: only what differs between calls travels later."""
    scaling = samples.scaling
    parts = Resident(
        samples.inputs,
        samples.targets,
        samples.starts,
        None if scaling is None else scaling.offset,
        None if scaling is None else scaling.factor,
    )
    placed: Resident = jax.device_put(parts, device)
    return placed


def gather(data: Resident, rows: Array, window: int) -> tuple[Array, Array]:
    """Inputs and targets of these samples, as `Samples.read` gives them. Rows must lie within the data."""
    if data.starts is None:
        batch = data.inputs.at[rows].get(mode="promise_in_bounds")
    else:
        first = data.starts.at[rows].get(mode="promise_in_bounds")
        batch = data.inputs.at[first[:, None] + jnp.arange(window)].get(mode="promise_in_bounds")
    if data.offset is not None:
        batch = (batch.astype(data.factor.dtype) - data.offset) * data.factor
    return batch, data.targets.at[rows].get(mode="promise_in_bounds")
