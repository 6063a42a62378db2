"""The layers of the models against simpler implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from async_hfl.core.errors import InternalError
from async_hfl.learning.engine.backend import Array, jax, jnp, lax
from async_hfl.learning.models import blocks
from async_hfl.learning.models.convolution import batch_last, biased_max_pool, convolution
from async_hfl.learning.models.lstm import character_lstm
from async_hfl.learning.models.model import unflatten
from async_hfl.learning.models.normalisation import Statistics, batch_norm, group_norm, running_norm
from async_hfl.learning.models.recurrence import recurrence
from async_hfl.learning.models.resnet import resnet18

Floats = npt.NDArray[np.float64]


def with_pull(function: Callable[..., Any], arguments: tuple[Any, ...], pull: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the value and its gradients by the arguments, from one program: operation by operation is much slower."""

    def both(*at: Any) -> tuple[Any, tuple[Any, ...]]:
        value, back = jax.vjp(function, *at)
        return value, back(pull)

    return jax.jit(both)(*arguments)


def drawn(*shape: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(5, 1, 0), (3, 1, 1), (3, 2, 1), (1, 2, 0)], ids=["5", "3", "3 by 2", "1 by 2"]
)
def test_convolution_equals_the_library(size: int, stride: int, padding: int) -> None:
    with jax.enable_x64(True):
        images, weight = drawn(3, 10, 8, 4), drawn(size, size, 3, 6, seed=2)

        def theirs(images: Array, weight: Array) -> Array:
            return lax.conv_general_dilated(
                images, weight, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("CHWN", "HWIO", "CHWN")
            )

        def ours(images: Array, weight: Array) -> Array:
            return convolution(images, weight, stride, padding)

        pull = np.cos(theirs(images, weight))
        found, expected = (with_pull(function, (images, weight), pull) for function in (ours, theirs))
        np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
        for one, other in zip(found[1], expected[1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(("size", "side"), [(5, 2), (5, 4), (3, 2)])
def test_convolution_in_blocks_is_the_same(size: int, side: int) -> None:
    """Pooled with a bias that closes hardly any rectifier."""
    with jax.enable_x64(True):
        height, width = 3 * side + size - 1, 2 * side + size - 1
        images, weight, bias = drawn(4, height, width, 3), drawn(size, size, 3, 6, seed=2), drawn(6, seed=4) + 9

        def ours(images: Array, weight: Array, bias: Array) -> Array:
            return biased_max_pool(convolution(batch_last(images), weight), bias)

        def in_blocks(images: Array, weight: Array, bias: Array) -> Array:
            return batch_last(blocks.pooled_images(blocks.block_convolution(images, weight, side), bias))

        pull = drawn(6, 3 * side // 2, side, 4, seed=3)
        found, expected = (with_pull(function, (images, weight, bias), pull) for function in (in_blocks, ours))
        np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
        for one, other in zip(found[1], expected[1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(
    ("filters", "side", "width"), [((5, 5), 3, 12), ((4, 4), 2, 12), ((5, 5), 8, 16), ((5, 5), 4, 14), ((5, 3), 2, 12)]
)
def test_blocks_that_do_not_fit(filters: tuple[int, int], side: int, width: int) -> None:
    with pytest.raises(InternalError, match=f"blocks of {side} x {side}"):
        blocks.block_convolution(drawn(1, 16, width, 1), drawn(*filters, 1, 1), side)


def max_pool_in_blocks(images: Array, bias: Array) -> Array:
    """The accelerator's version, with the axes in the order of the other one."""
    channels, height, width, batch = images.shape
    windows = images.reshape(channels, height // 2, 2, width // 2, 2, batch).transpose(5, 1, 3, 2, 4, 0)
    pooled = blocks.biased_max_pool(windows.reshape(batch, height // 2, width // 2, 4, channels), bias)
    return batch_last(pooled)


POOLS = pytest.mark.parametrize("pool", [biased_max_pool, max_pool_in_blocks], ids=["batch last", "in blocks"])


@POOLS
def test_pooling_by_hand(pool: Callable[[Array, Array], Array]) -> None:
    """With a bias of 1, so that the rectifier closes at -1."""
    image = np.array([[0.0, 4.0, -2.0, -3.0], [2.0, 1.0, -5.0, -4.0], [6.0, 6.0, -1.0, -1.0], [6.0, 6.0, -1.0, -1.0]])
    images = jnp.asarray(image, dtype=jnp.float32)[None, :, :, None]
    pooled, pull = jax.vjp(pool, images, jnp.ones(1, dtype=jnp.float32))
    assert pooled[0, :, :, 0].tolist() == [[5.0, 0.0], [7.0, 0.0]]
    gradient, by_bias = pull(jnp.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=jnp.float32)[None, :, :, None])
    assert gradient[0, :, :, 0].tolist() == [
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
        [3.0, 0.0, 0.0, 0.0],  # four equal ones: the first
        [0.0, 0.0, 0.0, 0.0],
    ]
    assert by_bias.tolist() == [4.0]


@POOLS
def test_pooling_gradient_against_plain_differentiation(pool: Callable[[Array, Array], Array]) -> None:
    with jax.enable_x64(True):
        images, bias, pull = drawn(3, 6, 8, 5), drawn(3, seed=3), drawn(3, 3, 4, 5, seed=2)

        def plain(images: Array, bias: Array) -> Array:
            return jax.nn.relu(images + bias[:, None, None, None]).reshape(3, 3, 2, 4, 2, 5).max(axis=(2, 4))

        found, expected = (with_pull(function, (images, bias), pull) for function in (pool, plain))
        np.testing.assert_array_equal(found[0], expected[0])
        for one, other in zip(found[1], expected[1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-13)


def plain_recurrence(steps: Array, input_weight: Array, hidden_weight: Array, bias: Array) -> Array:
    def step(state: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        output, cell = state
        summed = now @ input_weight + output @ hidden_weight + bias
        write, keep, value, show = jnp.split(summed, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(value)
        output = jax.nn.sigmoid(show) * jnp.tanh(cell)
        return (output, cell), output

    nothing = jnp.zeros((steps.shape[1], hidden_weight.shape[0]), steps.dtype)
    return lax.scan(step, (nothing, nothing), steps)[1]


@pytest.mark.parametrize(("every_step", "unroll"), [(True, 1), (True, 4), (False, 4), (False, 1)])
@pytest.mark.parametrize("time", [1, 2, 9])
def test_recurrence_against_plain_differentiation(time: int, every_step: bool, unroll: int) -> None:
    with jax.enable_x64(True):
        arguments = (2 * drawn(time, 4, 3), drawn(3, 20, seed=2), drawn(5, 20, seed=3), drawn(20, seed=4))
        pull = drawn(time, 4, 5, seed=5)
        asked: Any = slice(None) if every_step else -1
        found = with_pull(lambda *at: recurrence(*at, every_step, unroll), arguments, pull[asked])
        expected = with_pull(lambda *at: plain_recurrence(*at)[asked], arguments, pull[asked])
        np.testing.assert_allclose(found[0], expected[0], atol=1e-13)
        for one, other in zip(found[1], expected[1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_saturated_gates_stay_finite() -> None:
    steps = jnp.full((3, 2, 1), 1e4, dtype=jnp.float32).at[1].set(-1e4)
    weights = (jnp.ones((1, 20)), jnp.ones((5, 20)), jnp.zeros(20))
    outputs, pull_back = jax.vjp(lambda *at: recurrence(*at, True, 1), steps, *weights)
    for part in (outputs, *pull_back(outputs)):
        assert jnp.isfinite(part).all()


def test_batch_norm_by_hand() -> None:
    """One channel, 1 x 1, samples 1 and 5 and one padding sample."""
    images = jnp.asarray([1.0, 5.0, 1000.0], dtype=jnp.float32).reshape(1, 1, 1, 3)
    before = Statistics(jnp.asarray([10.0]), jnp.asarray([2.0]))
    normalised, after = batch_norm(images, jnp.asarray([True, True, False]), before)
    np.testing.assert_allclose(normalised[0, 0, 0, :2], [-1, 1], rtol=1e-5)
    np.testing.assert_allclose(after.mean, [0.9 * 10 + 0.1 * 3])
    np.testing.assert_allclose(after.variance, [0.9 * 2 + 0.1 * 8])  # the unbiased variance of 1 and 5
    np.testing.assert_allclose(running_norm(images, before)[0, 0, 0, 0], -9 / 2**0.5, rtol=1e-5)


def test_batch_norm_of_padding_stays_finite() -> None:
    images = jnp.ones((2, 3, 3, 4))
    normalised, after = batch_norm(images, jnp.zeros(4), Statistics(jnp.zeros(2), jnp.ones(2)))
    assert all(jnp.isfinite(part).all() for part in (normalised, *after))


def test_group_norm_by_hand() -> None:
    images = drawn(4, 3, 3, 2).astype(np.float32)
    found = np.asarray(group_norm(jnp.asarray(images), 2))
    for group in (slice(0, 2), slice(2, 4)):
        for sample in range(2):
            values = images[group, :, :, sample]
            expected = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
            np.testing.assert_allclose(found[group, :, :, sample], expected, atol=1e-5)


def test_padding_changes_nothing_in_batch_norm() -> None:
    """Values, statistics and gradient of three samples, alone and with two padding samples."""
    with jax.enable_x64(True):
        images, pull = drawn(4, 3, 3, 5), drawn(4, 3, 3, 3, seed=2)

        def pulled(images: Array, mask: Array) -> tuple[Array, tuple[Array, Statistics]]:
            normalised, after = batch_norm(images, mask, Statistics(jnp.zeros(4), jnp.ones(4)))
            return (normalised[..., :3] * pull).sum(), (normalised[..., :3], after)

        gradient = jax.jit(jax.grad(pulled, has_aux=True))
        alone, among = gradient(images[..., :3], np.ones(3, bool)), gradient(images, np.arange(5) < 3)
        assert not among[0][..., 3:].any()
        for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves((among[0][..., :3], among[1])), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.long
def test_padding_changes_nothing_in_a_resnet() -> None:
    model = resnet18("batch")
    random = np.random.default_rng(1)
    parameters = unflatten(model.layout, jnp.asarray(model.init(random)))
    images = random.standard_normal((4, 32, 32, 3)).astype(np.float32)
    training = jax.jit(model.apply_in_training)
    outputs, statistics = training(parameters, images[:3], np.ones(3, bool))
    padded_outputs, padded_statistics = training(parameters, images, np.arange(4) < 3)
    assert set(statistics) == set(model.statistics)
    np.testing.assert_allclose(padded_outputs[:3], outputs, atol=1e-4)
    for name, values in statistics.items():
        np.testing.assert_allclose(padded_statistics[name], values, atol=1e-5, err_msg=name)


def test_a_symbol_is_its_row_of_the_table() -> None:
    """Two texts that differ in one early character have different outputs; equal ones have equal outputs."""
    model = character_lstm()
    parameters = unflatten(model.layout, jnp.asarray(model.init(np.random.default_rng(1))))
    texts = np.random.default_rng(2).integers(0, 80, (3, 80)).astype(np.uint8)
    texts[1] = texts[0]
    texts[1, 70] = (texts[0, 70] + 1) % 80
    texts[2] = texts[0]
    one, changed, same = np.asarray(model.apply(parameters, texts))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - changed).max() > 1e-6
