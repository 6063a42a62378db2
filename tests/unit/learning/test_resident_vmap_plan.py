"""The plan that leaves everything on the accelerator, run on the host: it gives what the stack gives."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from learning_cases import RECIPE, SIZES, check_products, make_job, mixed_jobs, uneven_task, with_noise

from async_hfl.core.vectors import DeviceVector, Vector, to_host
from async_hfl.core.learner import TrainingJob, TrainingResult
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.weights import Layout, Weights, frozen, is_finite, mean_step
from async_hfl.learning.engine.backend import Array
from async_hfl.learning.engine.on_device.jax_vectors import JaxVector
from async_hfl.learning.engine.on_device.jax_vectors import BLOCK
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions
from async_hfl.learning.models.model import Model, Parameters
from async_hfl.learning.tasks.task_learner import Task, TaskLearner, engine_for, decide_vectors, vectors_fit

TOLERANCE = 1e-5
"""Of the weights' displacement, as in test_learning_stacked."""
ON_CARD = EngineOptions(vectors="device")
PLAIN = replace(RECIPE, gradient=False)


@pytest.fixture(scope="module")
def stacked() -> dict[Recipe, TaskLearner]:
    return {recipe: TaskLearner(uneven_task(), recipe, EngineOptions(plan="vmap")) for recipe in (RECIPE, PLAIN)}


@pytest.fixture(scope="module")
def carded() -> dict[Recipe, TaskLearner]:
    return {recipe: TaskLearner(uneven_task(), recipe, ON_CARD) for recipe in (RECIPE, PLAIN)}


def here_only(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
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
        # A loss is the logarithm of a number near 1: what float32 tells apart there is what it is good to.
        assert one.loss == pytest.approx(other.loss, rel=1e-5, abs=1e-6)
        assert one.squared_loss == pytest.approx(other.squared_loss, rel=1e-5, abs=1e-6)
        assert (one.gradient is None) == (other.gradient is None)
        if one.gradient is not None and other.gradient is not None:
            assert isinstance(other.gradient, DeviceVector)
            assert apart(one.gradient, other.gradient) < TOLERANCE * max(1.0, norm(one.gradient))
        assert is_finite(other.weights)


def steps_of(learner: TaskLearner, jobs: Sequence[TrainingJob], results: Sequence[TrainingResult]) -> list[Vector]:
    """As a gateway asks for them."""
    return [
        mean_step(job.weights, result.weights, learner.gradient_size, np.float32(learner.learning_rate * result.steps))
        for job, result in zip(jobs, results, strict=True)
    ]


# What comes out --------------------------------------------------------------------------------------------------


STARTS = ("here", "afar", "noted", "mixed", "one here", "one afar", "one noted")


def jobs_from(kind: str, learner: TaskLearner, count: int) -> list[TrainingJob]:
    jobs = mixed_jobs(learner, count)
    if kind == "here":
        return jobs
    trained = [result.weights for result in learner.train_many(jobs[:4])]
    noted = [mix(trained[number], trained[number + 1], 0.3) for number in range(3)]
    assert all(isinstance(blend, JaxVector) and blend.noted for blend in noted)
    starts: dict[str, list[Weights]] = {
        "afar": trained,
        "noted": noted,
        "mixed": [jobs[0].weights, trained[0], noted[0], with_noise(jobs[0].weights, 3), noted[1]],
        "one here": [jobs[0].weights],
        "one afar": [trained[0]],
        "one noted": [noted[0]],
    }
    return [replace(job, weights=starts[kind][job.job.number % len(starts[kind])]) for job in jobs]


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("start", STARTS)
def test_it_gives_what_the_stack_gives(
    stacked: dict[Recipe, TaskLearner], carded: dict[Recipe, TaskLearner], recipe: Recipe, start: str
) -> None:
    """Weights and gradients; the mean steps, too, that come along where there are none."""
    jobs = jobs_from(start, carded[recipe], 23)
    on_host = here_only(jobs)
    found, expected = carded[recipe].train_many(jobs), stacked[recipe].train_many(on_host)
    check_alike(jobs, found, expected)
    steps = zip(steps_of(carded[recipe], jobs, found), steps_of(stacked[recipe], on_host, expected), strict=True)
    for step, right in steps:
        assert apart(step, right) < TOLERANCE * norm(right)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_calls_of_few_jobs(stacked: dict[Recipe, TaskLearner], carded: dict[Recipe, TaskLearner], count: int) -> None:
    jobs = mixed_jobs(carded[RECIPE], count)
    check_alike(jobs, carded[RECIPE].train_many(jobs), stacked[RECIPE].train_many(jobs))


def test_nothing_to_train(carded: dict[Recipe, TaskLearner]) -> None:
    assert carded[RECIPE].train_many([]) == []


def test_the_same_call_gives_the_same_bits(carded: dict[Recipe, TaskLearner]) -> None:
    jobs = mixed_jobs(carded[RECIPE], 9)
    first, second = carded[RECIPE].train_many(jobs), carded[RECIPE].train_many(jobs)
    for one, other in zip(first, second, strict=True):
        assert to_host(one.weights).tobytes() == to_host(other.weights).tobytes()
        assert one.gradient is not None
        assert other.gradient is not None
        assert to_host(one.gradient).tobytes() == to_host(other.gradient).tobytes()
        assert (one.loss, one.squared_loss) == (other.loss, other.squared_loss)


def test_a_start_that_is_far_gives_the_bits_of_the_same_start_here(carded: dict[Recipe, TaskLearner]) -> None:
    jobs = jobs_from("mixed", carded[RECIPE], 9)
    for one, other in zip(carded[RECIPE].train_many(jobs), carded[RECIPE].train_many(here_only(jobs)), strict=True):
        assert to_host(one.weights).tobytes() == to_host(other.weights).tobytes()
        assert one.loss == other.loss


def test_a_budget_below_one_job_trains_one_at_a_time(stacked: dict[Recipe, TaskLearner]) -> None:
    tight = TaskLearner(uneven_task(), RECIPE, EngineOptions(vectors="device", memory=1))
    jobs = mixed_jobs(tight, 3)
    check_alike(jobs, tight.train_many(jobs), stacked[RECIPE].train_many(jobs))


def test_what_is_begun_is_collected_later(
    stacked: dict[Recipe, TaskLearner], carded: dict[Recipe, TaskLearner]
) -> None:
    jobs = mixed_jobs(carded[RECIPE], 12)
    first, second = carded[RECIPE].begin(jobs[:6]), carded[RECIPE].begin(jobs[6:])
    later = second()
    check_alike(jobs, [*first(), *later], stacked[RECIPE].train_many(jobs))


# Mean steps ------------------------------------------------------------------------------------------------------


def test_where_no_gradient_is_given_the_mean_step_comes_along(carded: dict[Recipe, TaskLearner]) -> None:
    jobs = jobs_from("mixed", carded[PLAIN], 11)
    results = carded[PLAIN].train_many(jobs)
    first, second = (steps_of(carded[PLAIN], jobs, results) for _ in range(2))
    assert all(isinstance(step, DeviceVector) for step in first)
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_the_step_that_comes_along_has_the_bits_of_one_that_is_computed(carded: dict[Recipe, TaskLearner]) -> None:
    """Else a run that goes on from a checkpoint, where only the weights are stored, would part from one that did not
    stop."""
    learner = carded[PLAIN]
    jobs = mixed_jobs(learner, 11)
    results = learner.train_many(jobs)
    others = [replace(job, weights=frozen(to_host(job.weights).copy())) for job in jobs]
    for came, computed in zip(steps_of(learner, jobs, results), steps_of(learner, others, results), strict=True):
        assert computed is not came
        assert to_host(computed).tobytes() == to_host(came).tobytes()


def test_with_a_gradient_no_step_comes_along(carded: dict[Recipe, TaskLearner]) -> None:
    learner = carded[RECIPE]
    jobs = mixed_jobs(learner, 3)
    results = learner.train_many(jobs)
    for job, result, step in zip(jobs, results, steps_of(learner, jobs, results), strict=True):
        exact = (to_host(job.weights).astype(np.float64) - to_host(result.weights)) / (0.05 * result.steps)
        np.testing.assert_allclose(step, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
        assert result.gradient is not step


def counted_model(model: Model) -> Model:
    """With one statistic behind its weights: the samples that it has seen."""
    layout = Layout((*model.layout.names, "seen"), (*model.layout.shapes, (1,)))

    def in_training(parameters: Parameters, batch: Array, mask: Array) -> tuple[Array, Parameters]:
        return model.apply(parameters, batch), {"seen": parameters["seen"] + mask.sum()}

    def init(random: np.random.Generator) -> Weights:
        return frozen(np.append(to_host(model.init(random)), np.float32(0)))

    return Model(layout, init, model.apply, in_training, ("seen",))


# Three epochs of 3 steps at most, or of 20: then a job is cut into pieces.
@pytest.mark.parametrize("sizes", [SIZES, (24, 640, 1, 70)], ids=["whole", "pieces"])
@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
def test_statistics_are_weights_and_no_part_of_gradients_and_steps(recipe: Recipe, sizes: tuple[int, ...]) -> None:
    task = uneven_task(sizes=sizes)
    task = replace(task, model=counted_model(task.model))
    learner = TaskLearner(task, recipe, ON_CARD)
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
    """Or mean steps where there are none."""
    if results[0].gradient is None:
        return steps_of(learner, jobs, results)
    return [result.gradient for result in results if result.gradient is not None]


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("counts", [(5, 9), (3, BLOCK + 6)])
def test_products_are_known_with_all_that_live(
    carded: dict[Recipe, TaskLearner], asked: list[int], recipe: Recipe, counts: tuple[int, int]
) -> None:
    learner = carded[recipe]
    jobs = mixed_jobs(learner, sum(counts))
    kept: list[Vector] = []
    for some in (jobs[: counts[0]], jobs[counts[0] :]):
        results = learner.train_many(some)
        kept += gradients_of(learner, some, results)
        del results
    check_products(kept)
    assert asked == []
    # Nobody spoke of this one.
    stranger = mix(kept[0], kept[1], 0.5)
    assert isinstance(stranger, DeviceVector)
    check_products([*kept, stranger])
    assert asked == [1], "asked for once, and from then on one of them"


def test_products_are_known_though_some_have_died_and_calls_overlap(
    carded: dict[Recipe, TaskLearner], asked: list[int]
) -> None:
    learner = carded[RECIPE]
    jobs = mixed_jobs(learner, 12)
    first = learner.train_many(jobs[:5])
    del first[1], first[2]
    second, third = learner.begin(jobs[5:8]), learner.begin(jobs[8:])
    results = [*first, *third(), *second()]
    check_products(gradients_of(learner, jobs, results))
    assert asked == []


def test_what_nobody_holds_is_let_go(carded: dict[Recipe, TaskLearner]) -> None:
    for learner in carded.values():
        jobs = jobs_from("afar", learner, 5)
        results = learner.train_many(jobs)
        held = [weakref.ref(vector) for vector in gradients_of(learner, jobs, results)]
        held += [weakref.ref(result.weights) for result in results]
        held += [weakref.ref(job.weights) for job in jobs]
        assert all(reference() is not None for reference in held)
        del results, jobs
        gc.collect()
        assert all(reference() is None for reference in held)


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
def test_where_nobody_multiplies_results_are_right_and_products_can_be_asked_for(
    stacked: dict[Recipe, TaskLearner], asked: list[int], recipe: Recipe
) -> None:
    learner = TaskLearner(uneven_task(), recipe, ON_CARD, multiplied=False)
    jobs = mixed_jobs(learner, 9)
    results = learner.train_many(jobs)
    expected = stacked[recipe].train_many(jobs)
    check_alike(jobs, results, expected)
    for step, right in zip(steps_of(learner, jobs, results), steps_of(stacked[recipe], jobs, expected), strict=True):
        assert apart(step, right) < TOLERANCE * norm(right)
    check_products(gradients_of(learner, jobs, results))
    assert asked == [9]


def test_two_learners_on_one_engine_know_their_own_gradients_alone(asked: list[int]) -> None:
    task = uneven_task()
    engine = engine_for(task, RECIPE, ON_CARD)
    learners = [TaskLearner(task, RECIPE, ON_CARD, trainer=engine) for _ in range(2)]
    own: list[list[Vector]] = [[], []]
    for turn in range(2):
        for number, learner in enumerate(learners):
            jobs = mixed_jobs(learner, 8)[4 * turn : 4 * turn + 4]
            own[number] += gradients_of(learner, jobs, learner.train_many(jobs))
    for gradients in own:
        check_products(gradients)
    assert asked == []
    one, other = own[0][0], own[1][7]
    assert isinstance(one, JaxVector)
    assert isinstance(other, JaxVector)
    (product,) = one.products([other])
    assert asked == [1]
    assert product == pytest.approx(
        float(np.dot(to_host(one).astype(np.float64), to_host(other))), abs=2e-6 * norm(one) ** 2
    )


def test_jobs_of_two_learners_in_one_call_know_their_own_gradients_alone(asked: list[int]) -> None:
    """As runs that go together: other coefficients, so other steps."""
    task = uneven_task()
    engine = engine_for(task, PLAIN, ON_CARD)
    recipes = [PLAIN, replace(PLAIN, learning_rate=0.02)]
    learners = [TaskLearner(task, recipe, ON_CARD, trainer=engine) for recipe in recipes]
    jobs = mixed_jobs(learners[0], 6)
    results = engine.begin([request for learner in learners for request in learner.requests(jobs)])()
    steps = [steps_of(learners[0], jobs, results[:6]), steps_of(learners[1], jobs, results[6:])]
    for recipe, mine, trained in zip(recipes, steps, (results[:6], results[6:]), strict=True):
        check_products(mine)
        for job, step, result in zip(jobs, mine, trained, strict=True):
            moved = to_host(job.weights).astype(np.float64) - to_host(result.weights)
            assert apart(step, (moved / (recipe.learning_rate * result.steps)).astype(np.float32)) < 1e-6 * norm(step)
    assert asked == []
    check_products([*steps[0], *steps[1]])
    assert asked == [6], "one family comes to the other"


# Evaluation ------------------------------------------------------------------------------------------------------


def small_test(task: Task) -> Task:
    """One pass of samples, so that one device takes them all: the model need not leave it."""
    return replace(task, test=task.test.rows(np.arange(100)))


@pytest.mark.parametrize("far_first", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_far_weights_are_evaluated_as_those_that_are_here(far_first: bool, small: bool) -> None:
    task = small_test(uneven_task()) if small else uneven_task()
    learner = TaskLearner(task, PLAIN, ON_CARD)
    trained, further = (result.weights for result in learner.train_many(mixed_jobs(learner, 2)))
    for weights in (trained, mix(trained, further, 0.3)):
        assert isinstance(weights, DeviceVector)
        pair = [weights, weights.to_host()] if far_first else [weights.to_host(), weights]
        one, other = (learner.evaluate(model) for model in pair)
        assert one == other
        first, second = (learner.evaluate_by_device(model) for model in pair)
        assert first == second
        assert len(first) == len(task.owned)
    assert learner.evaluate(trained) != learner.evaluate(further)


# The choice ------------------------------------------------------------------------------------------------------


def test_left_to_the_learner_vectors_stay_on_the_host_of_a_cpu() -> None:
    task = uneven_task()
    found = decide_vectors(task, EngineOptions(vectors="auto", memory=12345, ahead="on"), runs=3)
    assert found == EngineOptions(vectors="host", memory=12345, ahead="on")
    for options in (
        EngineOptions(vectors="device"),
        EngineOptions(vectors="host"),
        EngineOptions(vectors="device", memory=1),
    ):
        assert decide_vectors(task, options, runs=1000) == options


@pytest.mark.parametrize(
    ("devices", "parameters", "runs", "fit"),
    [
        (184, 431_080, 1, True),  # MNIST: (2 * 184 + 6 * 64 + 400) * 1.7 MB = 2.0 GB
        (184, 431_080, 6, True),  # 8.5 GB
        (184, 431_080, 7, False),  # 9.8 GB
        (12, 431_080, 51, True),  # (51 * (2 * 12 + 64) + 400) * 1.7 MB = 8.4 GB
        (12, 431_080, 53, False),  # 8.7 GB
        (8, 11_183_582, 1, False),  # ResNet-18: 19 GB, most of it to work with
        (1024, 1000, 1, True),
        (1025, 1000, 1, False),  # each gradient with a thousand others
    ],
)
def test_what_a_card_takes(devices: int, parameters: int, runs: int, fit: bool) -> None:
    assert vectors_fit(devices, 4 * parameters, 8 << 30, runs) is fit


def test_what_was_not_chosen_stays_here() -> None:
    for options in (EngineOptions(), EngineOptions(plan="vmap"), EngineOptions(plan="sequential", vectors="device")):
        learner = TaskLearner(uneven_task(), RECIPE, options)
        (result,) = learner.train_many(mixed_jobs(learner, 1))
        assert isinstance(result.weights, np.ndarray)
        assert isinstance(result.gradient, np.ndarray)


@pytest.mark.parametrize("plan", ["loop", "stack"])
def test_a_learner_whose_vectors_are_here_trains_from_far_ones(carded: dict[Recipe, TaskLearner], plan: str) -> None:
    """A run that goes on elsewhere: checkpoints bring far vectors back."""
    learner = TaskLearner(uneven_task(), RECIPE, EngineOptions(plan=plan))  # type: ignore[arg-type]
    jobs = jobs_from("mixed", carded[RECIPE], 9)
    for one, other in zip(learner.train_many(jobs), learner.train_many(here_only(jobs)), strict=True):
        assert isinstance(one.weights, np.ndarray)
        np.testing.assert_array_equal(one.weights, other.weights)


# Numbers that are not ordinary -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
@pytest.mark.parametrize("far", [True, False])
def test_weights_that_are_not_finite_are_told_and_touch_no_others(
    carded: dict[Recipe, TaskLearner], recipe: Recipe, far: bool
) -> None:
    learner = carded[recipe]
    jobs = jobs_from("afar" if far else "here", learner, 6)
    broken = to_host(jobs[0].weights).copy()
    broken[3] = np.nan
    start: Weights = frozen(broken)
    if far:
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
