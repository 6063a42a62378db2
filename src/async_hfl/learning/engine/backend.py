"""The only module that imports JAX, after configuring it; all others import JAX from here."""

from __future__ import annotations

from async_hfl.learning.engine import runtime

runtime.prepare()

import jax  # noqa: E402  (must be prepared before it starts)
import jax.numpy as jnp  # noqa: E402
from jax import Array, lax  # noqa: E402

__all__ = ["Array", "jax", "jnp", "lax"]
