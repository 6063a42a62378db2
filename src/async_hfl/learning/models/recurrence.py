"""A layer of long short-term memory (Hochreiter & Schmidhuber 1997), as PyTorch defines it, with its own backward pass.

With i, f, o the sigmoid and g the tanh of their parts of `x[t] @ input_weight + h[t-1] @ hidden_weight + bias`:

    c[t] = f c[t-1] + i g        h[t] = o tanh(c[t])

Plain differentiation of the loop would sum the weights' gradient step by step. Here the backward loop only collects the
gates' gradients, and one large matrix product after it computes the weights' gradient of all steps. The factors of the
backward loop depend on the forward pass alone and are computed there.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.learning.engine.backend import Array, jax, jnp, lax

_Saved: TypeAlias = tuple[Array, Array, Array, Array, Array]


def _gate_scale(hidden: int) -> npt.NDArray[np.float64]:
    """sigmoid(x) = tanh(x/2)/2 + 1/2: with this factor one tanh computes all four gates, in the order i, f, g, o."""
    half, whole = np.full(hidden, 0.5), np.ones(hidden)
    return np.concatenate([half, half, whole, half])


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def recurrence(
    steps: Array, input_weight: Array, hidden_weight: Array, bias: Array, every_step: bool, unroll: int
) -> Array:
    """Return the outputs of the layer for (time, batch, inputs); h and c start at 0.

    `every_step`: return h after every step (time, batch, hidden) instead of after the last one only (batch, hidden).
    `unroll`: steps per iteration of the loop; more of them speed up an accelerator and slow down a processor.
    """
    return _forward(steps, input_weight, hidden_weight, bias, every_step, unroll)[0]


def _forward(
    steps: Array, input_weight: Array, hidden_weight: Array, bias: Array, every_step: bool, unroll: int
) -> tuple[Array, _Saved]:
    batch, hidden = steps.shape[1], hidden_weight.shape[0]
    scale = jnp.asarray(_gate_scale(hidden), steps.dtype)
    together = jnp.concatenate([input_weight, hidden_weight, bias[None]])
    one = jnp.ones((batch, 1), steps.dtype)

    def step(state: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        output, cell = state
        read = jnp.concatenate([now, output, one], axis=-1)
        summed = read @ together
        write, keep, value, show = jnp.split(jnp.tanh(summed * scale) * scale + (1 - scale), 4, axis=-1)
        after = keep * cell + write * value
        shown = jnp.tanh(after)
        slopes = (
            value * write * (1 - write),  # derivative of c by the sums of i, f and g
            cell * keep * (1 - keep),
            write * (1 - value * value),
            shown * show * (1 - show),  # derivative of h by the sum of o
            show * (1 - shown * shown),  # derivative of h by c
            keep,  # derivative of c by the previous c
        )
        return (show * shown, after), (show * shown, read, jnp.concatenate(slopes, axis=-1))

    nothing = jnp.zeros((batch, hidden), steps.dtype)
    (last, _), (outputs, reads, slopes) = lax.scan(step, (nothing, nothing), steps, unroll=unroll)
    return outputs if every_step else last, (steps, reads, slopes, input_weight, hidden_weight)


def _backward(every_step: bool, unroll: int, saved: _Saved, gradient: Array) -> tuple[Array, Array, Array, Array]:
    steps, reads, slopes, input_weight, hidden_weight = saved
    time, batch, inputs = steps.shape
    hidden = hidden_weight.shape[0]

    def step(state: tuple[Array, Array], now: tuple[Array, Array | None]) -> tuple[tuple[Array, Array], Array]:
        d_output, d_cell = state
        slope, d_shown = now
        if d_shown is not None:
            d_output = d_output + d_shown
        d_cell = d_cell + d_output * slope[:, 4 * hidden : 5 * hidden]
        d_sums = jnp.concatenate([d_cell, d_cell, d_cell, d_output], axis=-1) * slope[:, : 4 * hidden]
        return (d_sums @ hidden_weight.T, d_cell * slope[:, 5 * hidden :]), d_sums

    nothing = jnp.zeros((batch, hidden), steps.dtype)
    first, shown = (nothing, gradient) if every_step else (gradient, None)
    _, d_sums = lax.scan(step, (first, nothing), (slopes, shown), reverse=True, unroll=unroll)
    flat = d_sums.reshape(time * batch, 4 * hidden)
    d_together = reads.reshape(time * batch, inputs + hidden + 1).T @ flat
    d_steps = (flat @ input_weight.T).reshape(steps.shape)
    return d_steps, d_together[:inputs], d_together[inputs:-1], d_together[-1]


recurrence.defvjp(_forward, _backward)
