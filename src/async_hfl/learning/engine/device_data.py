"""Samples in the memory of a device, and the gathering of batches there."""

from __future__ import annotations

from typing import Any, NamedTuple

from async_hfl.learning.datasets.samples import Samples
from async_hfl.learning.engine.backend import Array, jax, jnp


class DeviceSamples(NamedTuple):
    """The arrays of `Samples` on a device; None for those that it does not have."""

    inputs: Any
    targets: Any
    starts: Any
    offset: Any
    factor: Any


def samples_to_device(samples: Samples, device: Any) -> DeviceSamples:
    """Copy the samples to a device, once; later only row numbers are transferred."""
    scaling = samples.scaling
    parts = DeviceSamples(
        samples.inputs,
        samples.targets,
        samples.starts,
        None if scaling is None else scaling.offset,
        None if scaling is None else scaling.factor,
    )
    placed: DeviceSamples = jax.device_put(parts, device)
    return placed


def gather(data: DeviceSamples, rows: Array, window: int) -> tuple[Array, Array]:
    """Return the inputs and targets of these samples, as `Samples.read` does. Rows are not checked."""
    if data.starts is None:
        batch = data.inputs.at[rows].get(mode="promise_in_bounds")
    else:
        first = data.starts.at[rows].get(mode="promise_in_bounds")
        batch = data.inputs.at[first[:, None] + jnp.arange(window)].get(mode="promise_in_bounds")
    if data.offset is not None:
        batch = (batch.astype(data.factor.dtype) - data.offset) * data.factor
    return batch, data.targets.at[rows].get(mode="promise_in_bounds")
