"""Adam and AdamW by hand, in groups and side by side; every optimiser against optax, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learning_cases import RECIPE, fingerprint, mixed_jobs, uneven_task

from async_hfl import OwnTask
from async_hfl.core.errors import SettingsError, TaskError
from async_hfl.learning.engine.backend import jax, jnp
from async_hfl.learning.engine.device_data import samples_to_device
from async_hfl.learning.engine.memory_estimate import training_bytes
from async_hfl.learning.engine.optimisers import Coefficients, local_optimiser
from async_hfl.learning.engine.recipe import Adam, Optimiser, Recipe, Sgd
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.own.build import own_task
from async_hfl.learning.tasks.task_learner import TaskLearner

ADAM, ADAMW = Adam(), Adam(decoupled=True)
CHOSEN = {"adam": ADAM, "adamw": ADAMW}
RATES = Coefficients(*(jnp.float32(value) for value in (0.1, 0.0, 0.2, 0.0)))


def optimised(chosen: Optimiser) -> Recipe:
    return replace(RECIPE, learning_rate=0.005, optimiser=chosen)


def two_steps(chosen: Optimiser) -> list[float]:
    """Return a weight after each of two steps, from 1 along the gradients 2 and -4."""
    optimiser, weights, seen = local_optimiser(chosen), {"w": jnp.ones(1)}, []
    state = optimiser.begin(RATES, weights)
    for gradient in (2.0, -4.0):
        weights, state = optimiser.step(RATES, {"w": jnp.full(1, gradient)}, weights, state)
        seen.append(float(weights["w"][0]))
    return seen


def test_two_steps_of_adam_by_hand() -> None:
    """m = 1, s = 1: unbiased 2 and 4. Then m = -1.5, s = 4.75: unbiased -2 and 76/7."""
    first = 1 - 0.1 * 2 / (2 + 1)
    second = first + 0.1 * 2 / ((76 / 7) ** 0.5 + 1)
    assert two_steps(Adam(0.5, 0.75, 1.0)) == pytest.approx([first, second], rel=1e-6)


def test_two_steps_of_adamw_by_hand() -> None:
    """The same, and each step also takes 0.1 times 0.2 of the weight that it starts from."""
    first = 1 - 0.1 * 2 / (2 + 1) - 0.02
    second = first + 0.1 * 2 / ((76 / 7) ** 0.5 + 1) - 0.02 * first
    assert two_steps(Adam(0.5, 0.75, 1.0, decoupled=True)) == pytest.approx([first, second], rel=1e-6)


def test_the_first_step_is_as_long_as_the_learning_rate() -> None:
    """With the usual decays, 1 - beta_2 is 0.001, of which single precision must not lose digits."""
    first, _ = two_steps(ADAM)
    assert first == pytest.approx(0.9, abs=2e-7)


@pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN)
def test_jobs_together_equal_jobs_alone(chosen: Adam) -> None:
    learner = TaskLearner(uneven_task(), optimised(chosen))
    jobs = mixed_jobs(learner, 16)
    alone = [fingerprint(learner.train_many([job])[0]) for job in jobs]
    assert len(set(alone)) == len(alone) - 1  # with one sample there is one order for every seed
    for count in (2, 5, 16):
        assert [fingerprint(result) for result in learner.train_many(jobs[:count])] == alone[:count]
    order = np.random.default_rng(3).permutation(len(jobs))
    results = learner.train_many([jobs[index] for index in order])
    assert [fingerprint(result) for result in results] == [alone[index] for index in order]


@pytest.mark.parametrize(("chosen", "vectors"), [(ADAM, "host"), (ADAMW, "device")])
def test_side_by_side_and_in_chunks(chosen: Adam, vectors: Any) -> None:
    """The longest job has 54 steps, and so several chunks: the moments and the number of steps are handed on."""
    recipe = replace(optimised(chosen), batch_size=4)
    task = uneven_task(sizes=(24, 1, 70))
    learner = TaskLearner(task, recipe)
    parallel = TaskLearner(task, recipe, EngineOptions(plan="vmap", vectors=vectors))
    jobs = mixed_jobs(learner, 6)
    for job, one, other in zip(jobs, learner.train_many(jobs), parallel.train_many(jobs), strict=True):
        start, ends = np.asarray(job.weights), (np.asarray(one.weights), np.asarray(other.weights))
        assert np.linalg.norm(ends[0] - ends[1]) < 1e-3 * np.linalg.norm(ends[0] - start)
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


def test_jobs_with_two_moments_take_more_memory() -> None:
    task = uneven_task()
    data = samples_to_device(task.train, jax.local_devices()[0])
    sgd, adam = (
        training_bytes(task.model, task.objective, optimised(chosen).static, data, task.train.window).per_job
        for chosen in (Sgd(), ADAM)
    )
    # Another copy of the trained weights, before and after a chunk, and the number of steps.
    assert adam - sgd == 2 * (4 * task.model.trained_size + 4)


@pytest.mark.parametrize(("changed", "key"), [({"beta1": 1.0}, "beta1"), ({"epsilon": 0.0}, "epsilon")])
def test_hyperparameters_out_of_range(changed: dict[str, float], key: str) -> None:
    with pytest.raises(SettingsError, match=f"device.adam_{key}"):
        optimised(Adam(**changed))  # type: ignore[arg-type]


X = np.random.default_rng(1).standard_normal((90, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)


def own(optimiser: Any, recipe: Recipe) -> TaskLearner:
    task = OwnTask(
        init=lambda random: {"layer": {"w": random.standard_normal((4, 3)), "b": np.zeros(3)}},
        apply=lambda at, batch: batch @ at["layer"]["w"] + at["layer"]["b"],
        target=0.9,
        train=(X, Y),
        test=(X, Y),
        optimiser=optimiser,
    )
    return TaskLearner(own_task(task, "my.py:task", 3, 1), recipe)


@pytest.fixture
def optax() -> Any:
    return pytest.importorskip("optax", reason="optax is not installed: pip install optax")


def of_optax(name: str) -> Callable[[Any], Any]:
    """Return the function (optax) -> optimiser that does what ours does."""
    return {
        "sgd": lambda optax: lambda rate: optax.sgd(rate, momentum=0.9),
        "adam": lambda optax: optax.adam,
        "adamw": lambda optax: lambda rate: optax.adamw(rate, weight_decay=0.1),
    }[name]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_optax_agrees(name: str, optax: Any) -> None:
    chosen = CHOSEN.get(name, Sgd())
    decay = 0.1 if name == "adamw" else 0.0
    recipe = Recipe(3, 8, 0.01, momentum=0.9, proximal_weight=0.1, gradient=True, optimiser=chosen)
    ours = own(None, replace(recipe, weight_decay=decay))
    theirs = own(of_optax(name)(optax), recipe)  # the weight decay of a recipe would be in the gradient
    jobs = mixed_jobs(ours, 6)
    for job, one, other in zip(jobs, ours.train_many(jobs), theirs.train_many(jobs), strict=True):
        moved = np.abs(np.asarray(one.weights) - np.asarray(job.weights)).max()
        np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-4 * moved)


def test_optax_in_groups_and_in_chunks(optax: Any) -> None:
    recipe = replace(RECIPE, batch_size=2)
    chain = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(optax.cosine_decay_schedule(0.05, 12)))
    learner = own(chain, recipe)
    jobs = mixed_jobs(learner, 6)
    alone = [fingerprint(learner.train_many([job])[0]) for job in jobs]
    assert [fingerprint(result) for result in learner.train_many(jobs)] == alone
    options = EngineOptions(plan="vmap")
    parallel = TaskLearner(learner.task, recipe, options).train_many(jobs)
    for job, one, other in zip(jobs, learner.train_many(jobs), parallel, strict=True):
        moved = np.linalg.norm(np.asarray(one.weights) - np.asarray(job.weights))
        assert np.linalg.norm(np.asarray(one.weights) - np.asarray(other.weights)) < 1e-3 * moved


def test_optax_sees_the_tree_of_the_user(optax: Any) -> None:
    """Only the weights are trained; the mask has the structure of what `init` returned."""
    frozen = {"layer": {"w": "train", "b": "freeze"}}
    labelled = optax.multi_transform({"train": optax.sgd(0.1), "freeze": optax.set_to_zero()}, frozen)
    learner = own(labelled, RECIPE)
    [job] = mixed_jobs(learner, 1)
    [result] = learner.train_many([job])
    moved = learner.layout.unflatten(np.asarray(result.weights) - np.asarray(job.weights))
    assert not moved["layer.b"].any()
    assert moved["layer.w"].all()


@pytest.mark.parametrize(
    ("optimiser", "told"),
    [
        ("adam", "optimiser: is a str; give an optax.GradientTransformation, or a function"),
        (lambda rate: rate, "optimiser: is a .*Tracer; give an optax.GradientTransformation"),
        (lambda rate: 1 / 0, "optimiser: raised ZeroDivisionError"),
    ],
)
def test_what_is_no_transformation_is_an_error(optimiser: Any, told: str, optax: Any) -> None:
    with pytest.raises(TaskError, match=f"^my.py:task: {told}"):
        own(optimiser, RECIPE)


def test_a_transformation_that_needs_more_is_an_error(optax: Any) -> None:
    with pytest.raises(TaskError, match="optimiser: raised TypeError"):
        own(optax.contrib.reduce_on_plateau(), RECIPE)


def test_an_optimiser_without_optax_is_an_error() -> None:
    try:
        import optax  # noqa: F401
    except ImportError:
        with pytest.raises(TaskError, match="optimiser: needs optax; install it with `pip install optax`"):
            own(lambda rate: rate, RECIPE)
    else:
        pytest.skip("optax is installed")
