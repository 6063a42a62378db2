"""A layer of long short-term memory (Hochreiter & Schmidhuber 1997), as PyTorch defines it, with its own backward pass.

With i, f, o the sigmoid and g the tanh of their parts of `drive[t] + h[t-1] @ weight`:

    c[t] = f c[t-1] + i g        h[t] = o tanh(c[t])

Plain differentiation of the loop would add up the weights' gradient step by step. Here the backward loop only collects
the gradients of the gates; all steps' share of the weights' gradient is then one large matrix product.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from async_hfl.learning.backend import Array, jax, jnp, lax


def gate_scale(hidden: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """sigmoid(x) = tanh(x/2)/2 + 1/2: with this factor one tanh serves all four gates, in the order i, f, g, o."""
    half, whole = np.full(hidden, 0.5), np.ones(hidden)
    return np.concatenate([half, half, whole, half])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def recurrence(drive: Array, weight: Array, unroll: int) -> Array:
    """h after every step (time, batch, hidden) from the inputs' share of the gates (time, batch, 4 hidden)."""
    return _forward(drive, weight, unroll)[0]


def _forward(drive: Array, weight: Array, unroll: int) -> tuple[Array, tuple[Array, ...]]:
    hidden = weight.shape[0]
    scale = jnp.asarray(gate_scale(hidden), drive.dtype)

    def step(state: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        output, cell = state
        gates = jnp.tanh((now + output @ weight) * scale) * scale + (1 - scale)
        write, keep, value, show = jnp.split(gates, 4, axis=-1)
        after = keep * cell + write * value
        shown = jnp.tanh(after)
        return (show * shown, after), (show * shown, gates, after)

    nothing = jnp.zeros((drive.shape[1], hidden), drive.dtype)
    _, (outputs, gates, cells) = lax.scan(step, (nothing, nothing), drive, unroll=unroll)
    return outputs, (outputs, gates, cells, weight)


def _backward(unroll: int, saved: tuple[Array, ...], gradient: Array) -> tuple[Array, Array]:
    outputs, gates, cells, weight = saved
    time, batch, hidden = outputs.shape
    before = jnp.concatenate([jnp.zeros_like(cells[:1]), cells[:-1]])

    def step(state: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        d_output, d_cell = state
        d_shown, gate, cell, cell_before = now
        write, keep, value, show = jnp.split(gate, 4, axis=-1)
        shown = jnp.tanh(cell)
        d_output = d_output + d_shown
        d_cell = d_cell + d_output * show * (1 - shown * shown)
        d_gates = jnp.concatenate(
            [
                d_cell * value * write * (1 - write),
                d_cell * cell_before * keep * (1 - keep),
                d_cell * write * (1 - value * value),
                d_output * shown * show * (1 - show),
            ],
            axis=-1,
        )
        return (d_gates @ weight.T, d_cell * keep), d_gates

    nothing = jnp.zeros((batch, hidden), outputs.dtype)
    _, d_gates = lax.scan(step, (nothing, nothing), (gradient, gates, cells, before), reverse=True, unroll=unroll)
    # The first step had no output before it.
    earlier = outputs[:-1].reshape((time - 1) * batch, hidden)
    return d_gates, earlier.T @ d_gates[1:].reshape((time - 1) * batch, 4 * hidden)


recurrence.defvjp(_forward, _backward)
