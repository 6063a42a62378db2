"""The plan that keeps vectors on the accelerator (here a host device) agrees with the vmap plan."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from learning_cases import RECIPE, SIZES, check_products, make_job, mixed_jobs, uneven_task, with_noise

from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.vectors import DeviceVector, Vector, to_host
from async_hfl.core.weights import Layout, Weights, frozen, is_finite, mean_step
from async_hfl.learning.engine.backend import Array
from async_hfl.learning.engine.on_device.jax_vectors import BLOCK, JaxVector
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.models.model import Model, Parameters
from async_hfl.learning.tasks.task_learner import Task, TaskLearner, decide_vectors, engine_for, vectors_fit

TOLERANCE = 1e-5
"""Tolerance relative to the displacement of the weights, as in test_vmap_plan."""
ON_DEVICE = EngineOptions(vectors="device")
PLAIN = replace(RECIPE, gradient=False)


@pytest.fixture(scope="module")
def copying() -> dict[Recipe, TaskLearner]:
    return {recipe: TaskLearner(uneven_task(), recipe, EngineOptions(plan="vmap")) for recipe in (RECIPE, PLAIN)}


@pytest.fixture(scope="module")
def resident() -> dict[Recipe, TaskLearner]:
    return {recipe: TaskLearner(uneven_task(), recipe, ON_DEVICE) for recipe in (RECIPE, PLAIN)}


def on_host(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    return [replace(job, weights=to_host(job.weights)) for job in jobs]


def norm(vector: Vector) -> float:
    return float(np.linalg.norm(to_host(vector).astype(np.float64)))


def apart(one: Vector, other: Vector) -> float:
    return float(np.linalg.norm(to_host(one).astype(np.float64) - to_host(other)))


def check_alike(jobs: Sequence[TrainingJob], found: list[TrainingResult], expected: list[TrainingResult]) -> None:
    for job, one, other in zip(jobs, expected, found, strict=True):
        assert isinstance(other.weights, DeviceVector)
        assert apart(one.weights, other.weights) < TOLERANCE * apart(one.weights, job.weights)
        assert (one.samples, one.steps) == (other.samples, other.steps)
        # A loss is the logarithm of a number near 1, so its absolute error is that of a float32 near 1.
        assert one.loss == pytest.approx(other.loss, rel=1e-5, abs=1e-6)
        assert one.squared_loss == pytest.approx(other.squared_loss, rel=1e-5, abs=1e-6)
        assert (one.gradient is None) == (other.gradient is None)
        if one.gradient is not None and other.gradient is not None:
            assert isinstance(other.gradient, DeviceVector)
            assert apart(one.gradient, other.gradient) < TOLERANCE * max(1.0, norm(one.gradient))
        assert is_finite(other.weights)


def steps_of(learner: TaskLearner, jobs: Sequence[TrainingJob], results: Sequence[TrainingResult]) -> list[Vector]:
    """Compute mean steps as a gateway does."""
    return [
        mean_step(job.weights, result.weights, learner.gradient_size, np.float32(learner.learning_rate * result.steps))
        for job, result in zip(jobs, results, strict=True)
    ]


# Results ---------------------------------------------------------------------------------------------------------


STARTS = ("host", "device", "lazy", "mixed", "one on host", "one on device", "one lazy")


def jobs_from(kind: str, learner: TaskLearner, count: int) -> list[TrainingJob]:
    jobs = mixed_jobs(learner, count)
    if kind == "host":
        return jobs
    trained = [result.weights for result in learner.train_many(jobs[:4])]
    lazy = [mix(trained[number], trained[number + 1], 0.3) for number in range(3)]
    assert all(isinstance(blend, JaxVector) and blend.lazy for blend in lazy)
    starts: dict[str, list[Weights]] = {
        "device": trained,
        "lazy": lazy,
        "mixed": [jobs[0].weights, trained[0], lazy[0], with_noise(jobs[0].weights, 3), lazy[1]],
        "one on host": [jobs[0].weights],
        "one on device": [trained[0]],
        "one lazy": [lazy[0]],
    }
    return [replace(job, weights=starts[kind][job.job.number % len(starts[kind])]) for job in jobs]


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("start", STARTS)
def test_it_agrees_with_the_vmap_plan(
    copying: dict[Recipe, TaskLearner], resident: dict[Recipe, TaskLearner], recipe: Recipe, start: str
) -> None:
    """Compare weights, gradients and mean steps, which are computed along with the jobs if there are no gradients."""
    jobs = jobs_from(start, resident[recipe], 23)
    host_jobs = on_host(jobs)
    found, expected = resident[recipe].train_many(jobs), copying[recipe].train_many(host_jobs)
    check_alike(jobs, found, expected)
    steps = zip(steps_of(resident[recipe], jobs, found), steps_of(copying[recipe], host_jobs, expected), strict=True)
    for step, right in steps:
        assert apart(step, right) < TOLERANCE * norm(right)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_calls_of_few_jobs(copying: dict[Recipe, TaskLearner], resident: dict[Recipe, TaskLearner], count: int) -> None:
    jobs = mixed_jobs(resident[RECIPE], count)
    check_alike(jobs, resident[RECIPE].train_many(jobs), copying[RECIPE].train_many(jobs))


def test_nothing_to_train(resident: dict[Recipe, TaskLearner]) -> None:
    assert resident[RECIPE].train_many([]) == []


def test_the_same_call_gives_the_same_bits(resident: dict[Recipe, TaskLearner]) -> None:
    jobs = mixed_jobs(resident[RECIPE], 9)
    first, second = resident[RECIPE].train_many(jobs), resident[RECIPE].train_many(jobs)
    for one, other in zip(first, second, strict=True):
        assert to_host(one.weights).tobytes() == to_host(other.weights).tobytes()
        assert one.gradient is not None
        assert other.gradient is not None
        assert to_host(one.gradient).tobytes() == to_host(other.gradient).tobytes()
        assert (one.loss, one.squared_loss) == (other.loss, other.squared_loss)


def test_a_start_on_the_device_gives_the_bits_of_the_same_start_on_the_host(
    resident: dict[Recipe, TaskLearner],
) -> None:
    jobs = jobs_from("mixed", resident[RECIPE], 9)
    for one, other in zip(resident[RECIPE].train_many(jobs), resident[RECIPE].train_many(on_host(jobs)), strict=True):
        assert to_host(one.weights).tobytes() == to_host(other.weights).tobytes()
        assert one.loss == other.loss


def test_a_budget_below_one_job_trains_one_at_a_time(copying: dict[Recipe, TaskLearner]) -> None:
    tight = TaskLearner(uneven_task(), RECIPE, EngineOptions(vectors="device", memory=1))
    jobs = mixed_jobs(tight, 3)
    check_alike(jobs, tight.train_many(jobs), copying[RECIPE].train_many(jobs))


def test_calls_can_be_collected_later_and_in_another_order(
    copying: dict[Recipe, TaskLearner], resident: dict[Recipe, TaskLearner]
) -> None:
    jobs = mixed_jobs(resident[RECIPE], 12)
    first, second = resident[RECIPE].begin(jobs[:6]), resident[RECIPE].begin(jobs[6:])
    later = second()
    check_alike(jobs, [*first(), *later], copying[RECIPE].train_many(jobs))


# Mean steps ------------------------------------------------------------------------------------------------------


def test_without_a_gradient_the_mean_step_is_computed_along_with_the_job(resident: dict[Recipe, TaskLearner]) -> None:
    jobs = jobs_from("mixed", resident[PLAIN], 11)
    results = resident[PLAIN].train_many(jobs)
    first, second = (steps_of(resident[PLAIN], jobs, results) for _ in range(2))
    assert all(isinstance(step, DeviceVector) for step in first)
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_a_step_computed_along_with_the_job_has_the_bits_of_one_computed_later(
    resident: dict[Recipe, TaskLearner],
) -> None:
    """Otherwise a resumed run, whose checkpoint stores only the weights, would differ from one that did not stop."""
    learner = resident[PLAIN]
    jobs = mixed_jobs(learner, 11)
    results = learner.train_many(jobs)
    others = [replace(job, weights=frozen(to_host(job.weights).copy())) for job in jobs]
    for early, late in zip(steps_of(learner, jobs, results), steps_of(learner, others, results), strict=True):
        assert late is not early
        assert to_host(late).tobytes() == to_host(early).tobytes()


def test_with_a_gradient_the_step_is_computed_later(resident: dict[Recipe, TaskLearner]) -> None:
    learner = resident[RECIPE]
    jobs = mixed_jobs(learner, 3)
    results = learner.train_many(jobs)
    for job, result, step in zip(jobs, results, steps_of(learner, jobs, results), strict=True):
        exact = (to_host(job.weights).astype(np.float64) - to_host(result.weights)) / (0.05 * result.steps)
        np.testing.assert_allclose(step, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
        assert result.gradient is not step


def counted_model(model: Model) -> Model:
    """Add one statistic after the weights: the number of samples seen in training."""
    layout = Layout((*model.layout.names, "seen"), (*model.layout.shapes, (1,)))

    def in_training(parameters: Parameters, batch: Array, mask: Array) -> tuple[Array, Parameters]:
        return model.apply(parameters, batch), {"seen": parameters["seen"] + mask.sum()}

    def init(random: np.random.Generator) -> Weights:
        return frozen(np.append(to_host(model.init(random)), np.float32(0)))

    return Model(layout, init, model.apply, in_training, ("seen",))


# Three epochs of at most 3 steps, or of 20: then a job is divided into chunks.
@pytest.mark.parametrize("sizes", [SIZES, (24, 640, 1, 70)], ids=["whole", "chunks"])
@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
def test_statistics_are_part_of_the_weights_but_not_of_gradients_and_steps(
    recipe: Recipe, sizes: tuple[int, ...]
) -> None:
    task = uneven_task(sizes=sizes)
    task = replace(task, model=counted_model(task.model))
    learner = TaskLearner(task, recipe, ON_DEVICE)
    jobs = mixed_jobs(learner, 4)
    results = learner.train_many(jobs)
    for job, result, step in zip(jobs, results, steps_of(learner, jobs, results), strict=True):
        assert len(result.weights) == learner.gradient_size + 1
        assert to_host(result.weights)[-1] == 3 * learner.samples[job.device]
        gradient = step if recipe is PLAIN else result.gradient
        assert gradient is not None
        assert len(gradient) == learner.gradient_size
        assert len(to_host(gradient)) == learner.gradient_size


# Products --------------------------------------------------------------------------------------------------------


def gradients_of(learner: TaskLearner, jobs: Sequence[TrainingJob], results: list[TrainingResult]) -> list[Vector]:
    """Return the gradients, or the mean steps without gradients."""
    if results[0].gradient is None:
        return steps_of(learner, jobs, results)
    return [result.gradient for result in results if result.gradient is not None]


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("counts", [(5, 9), (3, BLOCK + 6)])
def test_products_with_all_live_gradients_are_known(
    resident: dict[Recipe, TaskLearner], computed: list[int], recipe: Recipe, counts: tuple[int, int]
) -> None:
    learner = resident[recipe]
    jobs = mixed_jobs(learner, sum(counts))
    kept: list[Vector] = []
    for some in (jobs[: counts[0]], jobs[counts[0] :]):
        results = learner.train_many(some)
        kept += gradients_of(learner, some, results)
        del results
    check_products(kept)
    assert computed == []
    # A vector that was not multiplied in advance.
    other = mix(kept[0], kept[1], 0.5)
    assert isinstance(other, DeviceVector)
    check_products([*kept, other])
    # Its own products are one computation; each of the others computes the one with it.
    assert sorted(computed) == [1] * sum(counts) + [sum(counts) + 1]


def test_products_are_known_after_some_gradients_were_freed_and_with_overlapping_calls(
    resident: dict[Recipe, TaskLearner], computed: list[int]
) -> None:
    learner = resident[RECIPE]
    jobs = mixed_jobs(learner, 12)
    first = learner.train_many(jobs[:5])
    del first[1], first[2]
    second, third = learner.begin(jobs[5:8]), learner.begin(jobs[8:])
    results = [*first, *third(), *second()]
    check_products(gradients_of(learner, jobs, results))
    assert computed == []


def test_vectors_without_references_are_freed(resident: dict[Recipe, TaskLearner]) -> None:
    for learner in resident.values():
        jobs = jobs_from("device", learner, 5)
        results = learner.train_many(jobs)
        held = [weakref.ref(vector) for vector in gradients_of(learner, jobs, results)]
        held += [weakref.ref(result.weights) for result in results]
        held += [weakref.ref(job.weights) for job in jobs]
        assert all(reference() is not None for reference in held)
        del results, jobs
        gc.collect()
        assert all(reference() is None for reference in held)


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
def test_without_needed_products_results_are_correct_and_products_can_be_computed(
    copying: dict[Recipe, TaskLearner], computed: list[int], recipe: Recipe
) -> None:
    learner = TaskLearner(uneven_task(), recipe, ON_DEVICE, needs_products=False)
    jobs = mixed_jobs(learner, 9)
    results = learner.train_many(jobs)
    expected = copying[recipe].train_many(jobs)
    check_alike(jobs, results, expected)
    for step, right in zip(steps_of(learner, jobs, results), steps_of(copying[recipe], jobs, expected), strict=True):
        assert apart(step, right) < TOLERANCE * norm(right)
    check_products(gradients_of(learner, jobs, results))
    assert computed == [9] * 9


def test_two_learners_on_one_engine_know_the_products_of_their_own_gradients_only(computed: list[int]) -> None:
    task = uneven_task()
    engine = engine_for(task, RECIPE, ON_DEVICE)
    learners = [TaskLearner(task, RECIPE, ON_DEVICE, trainer=engine) for _ in range(2)]
    own: list[list[Vector]] = [[], []]
    for turn in range(2):
        for number, learner in enumerate(learners):
            jobs = mixed_jobs(learner, 8)[4 * turn : 4 * turn + 4]
            own[number] += gradients_of(learner, jobs, learner.train_many(jobs))
    for gradients in own:
        check_products(gradients)
    assert computed == []
    one, other = own[0][0], own[1][7]
    assert isinstance(one, JaxVector)
    assert isinstance(other, JaxVector)
    (product,) = one.products([other])
    assert computed == [1]
    assert product == pytest.approx(
        float(np.dot(to_host(one).astype(np.float64), to_host(other))), abs=2e-6 * norm(one) ** 2
    )


def test_two_learners_in_one_call_know_the_products_of_their_own_gradients_only(computed: list[int]) -> None:
    """As in runs that share an engine; different coefficients give different steps."""
    task = uneven_task()
    engine = engine_for(task, PLAIN, ON_DEVICE)
    recipes = [PLAIN, replace(PLAIN, learning_rate=0.02)]
    learners = [TaskLearner(task, recipe, ON_DEVICE, trainer=engine) for recipe in recipes]
    jobs = mixed_jobs(learners[0], 6)
    results = engine.begin([request for learner in learners for request in learner.requests(jobs)])()
    steps = [steps_of(learners[0], jobs, results[:6]), steps_of(learners[1], jobs, results[6:])]
    for recipe, mine, trained in zip(recipes, steps, (results[:6], results[6:]), strict=True):
        check_products(mine)
        for job, step, result in zip(jobs, mine, trained, strict=True):
            moved = to_host(job.weights).astype(np.float64) - to_host(result.weights)
            assert apart(step, (moved / (recipe.learning_rate * result.steps)).astype(np.float32)) < 1e-6 * norm(step)
    assert computed == []
    check_products([*steps[0], *steps[1]])
    assert computed == [6] * 12, "each gradient with those of the other learner"


# Evaluation ------------------------------------------------------------------------------------------------------


def small_test(task: Task) -> Task:
    """Leave one pass of samples, so that one device takes them all and the model stays on it."""
    return replace(task, test=task.test.rows(np.arange(100)))


@pytest.mark.parametrize("device_first", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_weights_on_the_device_are_evaluated_like_those_on_the_host(device_first: bool, small: bool) -> None:
    task = small_test(uneven_task()) if small else uneven_task()
    learner = TaskLearner(task, PLAIN, ON_DEVICE)
    trained, further = (result.weights for result in learner.train_many(mixed_jobs(learner, 2)))
    for weights in (trained, mix(trained, further, 0.3)):
        assert isinstance(weights, DeviceVector)
        pair = [weights, weights.to_host()] if device_first else [weights.to_host(), weights]
        one, other = (learner.evaluate(model) for model in pair)
        assert one == other
        first, second = (learner.evaluate_by_device(model) for model in pair)
        assert first == second
        assert len(first) == len(task.owned)
    assert learner.evaluate(trained) != learner.evaluate(further)


# Location of vectors ---------------------------------------------------------------------------------------------


def test_auto_keeps_vectors_on_the_host_of_a_cpu() -> None:
    task = uneven_task()
    found = decide_vectors(task, EngineOptions(vectors="auto", memory=12345, prefetch="on"), runs=3)
    assert found == EngineOptions(vectors="host", memory=12345, prefetch="on")
    for options in (
        EngineOptions(vectors="device"),
        EngineOptions(vectors="host"),
        EngineOptions(vectors="device", memory=1),
    ):
        assert decide_vectors(task, options, runs=1000) == options


@pytest.mark.parametrize(
    ("devices", "parameters", "runs", "fit"),
    [
        (184, 431_080, 1, True),  # MNIST: (6 * 184 + 400) * 1.7 MB = 2.6 GB
        (184, 431_080, 4, True),  # 8.3 GB
        (184, 431_080, 5, False),  # 10.2 GB
        (12, 431_080, 63, True),  # (63 * 6 * 12 + 400) * 1.7 MB = 8.51 GB
        (12, 431_080, 64, False),  # 8.64 GB
        (8, 11_183_582, 1, False),  # ResNet-18: 19 GB, most of it working memory
        (1024, 1000, 1, True),
        (1025, 1000, 1, False),  # each gradient is multiplied with a thousand others
    ],
)
def test_vectors_that_fit_on_a_device(devices: int, parameters: int, runs: int, fit: bool) -> None:
    assert vectors_fit(devices, 4 * parameters, 8 << 30, runs) is fit


def test_vectors_stay_on_the_host_unless_the_plan_keeps_them() -> None:
    for options in (EngineOptions(), EngineOptions(plan="vmap"), EngineOptions(plan="sequential", vectors="device")):
        learner = TaskLearner(uneven_task(), RECIPE, options)
        (result,) = learner.train_many(mixed_jobs(learner, 1))
        assert isinstance(result.weights, np.ndarray)
        assert isinstance(result.gradient, np.ndarray)


@pytest.mark.parametrize("plan", ["sequential", "vmap"])
def test_a_learner_with_vectors_on_the_host_trains_from_device_vectors(
    resident: dict[Recipe, TaskLearner], plan: str
) -> None:
    """As in a run whose vectors move between jobs."""
    learner = TaskLearner(uneven_task(), RECIPE, EngineOptions(plan=plan))  # type: ignore[arg-type]
    jobs = jobs_from("mixed", resident[RECIPE], 9)
    for one, other in zip(learner.train_many(jobs), learner.train_many(on_host(jobs)), strict=True):
        assert isinstance(one.weights, np.ndarray)
        np.testing.assert_array_equal(one.weights, other.weights)


# NaN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("placed", [True, False])
def test_weights_that_are_not_finite_are_detected_and_affect_no_other_job(
    resident: dict[Recipe, TaskLearner], recipe: Recipe, placed: bool
) -> None:
    learner = resident[recipe]
    jobs = jobs_from("device" if placed else "host", learner, 6)
    broken = to_host(jobs[0].weights).copy()
    broken[3] = np.nan
    start: Weights = frozen(broken)
    if placed:
        start = mix(start, jobs[1].weights, 0.5)
    poisoned = [make_job(9, 2, start, 5) if number == 3 else job for number, job in enumerate(jobs)]
    results, sound = learner.train_many(poisoned), learner.train_many(jobs)
    for number, (result, right) in enumerate(zip(results, sound, strict=True)):
        assert isinstance(result.weights, DeviceVector)
        assert is_finite(result.weights) == bool(np.isfinite(result.weights.to_host()).all()) == (number != 3)
        if number != 3:
            assert apart(result.weights, right.weights) < TOLERANCE * apart(right.weights, jobs[number].weights)
    assert not np.isfinite(results[3].loss)
    gradients = gradients_of(learner, poisoned, results)
    assert [is_finite(gradient) for gradient in gradients] == [number != 3 for number in range(6)]
    check_products(gradients[:3])
