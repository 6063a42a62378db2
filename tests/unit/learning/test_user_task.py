"""Tasks from the user's file: valid ones, and the error for each mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from learning_cases import make_job

from async_hfl import OwnTask
from async_hfl.core.errors import TaskError
from async_hfl.core.maths.targets import Target
from async_hfl.core.weights import frozen
from async_hfl.learning.engine.backend import jax, jnp
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.own.build import own_task
from async_hfl.learning.own.task import load_task, number_of_shards
from async_hfl.learning.tasks.task_learner import Task, TaskLearner

NAME = "my.py:task"
RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((120, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
SHARDS = [(X[:1], Y[:1]), (X[1:40], Y[1:40]), (X[40:], Y[40:])]


def init(random: np.random.Generator) -> Any:
    return {"layers": [{"w": random.standard_normal((4, 3)) * 0.1}, {"b": np.zeros(3)}]}


def apply(parameters: Any, batch: Any) -> Any:
    return batch @ parameters["layers"][0]["w"] + parameters["layers"][1]["b"]


def given(**changed: Any) -> OwnTask:
    usual: dict[str, Any] = {
        "init": init,
        "apply": apply,
        "loss": "cross-entropy",
        "metric": "accuracy",
        "target": 0.9,
        "shards": SHARDS,
        "test": (X, Y),
    }
    return OwnTask(**{**usual, **changed})


def made(devices: int = 3, **changed: Any) -> Task:
    return own_task(given(**changed), NAME, devices, 1)


def trained(task: Task, rounds: int = 30) -> tuple[float, float]:
    """Return the metric before and after some rounds of federated averaging."""
    learner = TaskLearner(task, Recipe(2, 10, 0.3))
    weights = learner.initial_weights(1)
    before = learner.evaluate(weights).metric
    for round_ in range(rounds):
        jobs = [make_job(d, d, weights, round_ * 100 + d) for d in range(len(task.owned))]
        results = learner.train_many(jobs)
        mean = np.average([r.weights for r in results], axis=0, weights=[r.samples for r in results])
        weights = frozen(mean.astype(np.float32))
    return before, learner.evaluate(weights).metric


def test_a_tree_of_parameters_has_names() -> None:
    task = made()
    assert task.model.layout.names == ("layers.0.w", "layers.1.b")
    assert task.model.layout.shapes == ((4, 3), (3,))
    assert task.target == Target("accuracy", 0.9, "at_least")
    assert task.classes == 3
    assert [len(rows) for rows in task.owned] == [1, 39, 80], "a shard with one sample will do"
    assert (task.model.init(np.random.default_rng(3)) == task.model.init(np.random.default_rng(3))).all()


def test_learns() -> None:
    before, after = trained(made())
    assert after > 0.75 > before


def test_train_is_partitioned() -> None:
    task = made(devices=8, shards=None, train=(X, Y), partition="dirichlet", arguments={"min_samples_per_device": 3})
    assert sorted(np.concatenate(task.owned)) == list(range(120))


def test_user_defined_loss_and_metric() -> None:
    values = X @ np.arange(4.0)

    def absolute(outputs: Any, targets: Any) -> Any:
        return jnp.abs(outputs[:, 0] - targets)

    def near(outputs: Any, targets: Any) -> Any:
        return jnp.abs(outputs[:, 0] - targets) < 0.5

    shards = [(X[:60], values[:60]), (X[60:], values[60:])]
    task = made(
        devices=2,
        init=lambda random: jnp.zeros((4, 1)),
        apply=lambda weights, batch: batch @ weights,
        loss=absolute,
        metric=near,
        direction="at_least",
        shards=shards,
        test=(X, values),
    )
    assert task.model.layout.names == ("parameters",)
    assert task.target == Target("near", 0.9)
    before, after = trained(task)
    assert after > 0.9 > before


def test_a_function_may_be_called_accuracy() -> None:
    def accuracy(outputs: Any, targets: Any) -> Any:
        return outputs[:, 0] * 0 + 0.25

    task = made(metric=accuracy, direction="at_least")
    assert task.target.metric == "accuracy"
    assert trained(task, rounds=1)[1] == 0.25


@pytest.mark.parametrize("metric", ["squared-error", "absolute-error", "loss"])
def test_regression(metric: str) -> None:
    values = (X @ np.arange(8.0).reshape(4, 2)).astype(np.float32)
    task = made(
        devices=2,
        init=lambda random: {"w": np.zeros((4, 2))},
        apply=lambda p, batch: batch @ p["w"],
        loss="squared-error",
        metric=metric,
        target=0.1,
        shards=[(X[:60], values[:60]), (X[60:], values[60:])],
        test=(X, values),
    )
    assert task.target.direction == "at_most"
    before, after = trained(task)
    expected = np.abs(values).mean() if metric == "absolute-error" else (values**2).mean()
    assert before == pytest.approx(expected, rel=1e-5)
    assert after < 0.1


def test_symbols_stay_whole_numbers_and_bytes_stay_bytes() -> None:
    words = RANDOM.integers(0, 9, (120, 5))
    seen = []

    def look_up(parameters: Any, batch: Any) -> Any:
        seen.append(batch.dtype)
        return parameters["table"][batch].sum(axis=1)

    made(
        init=lambda random: {"table": np.zeros((9, 3), np.float32)},
        apply=look_up,
        shards=[(words[:10], Y[:10]), (words[10:20], Y[10:20]), (words[20:], Y[20:])],
        test=(words, Y),
    )
    assert {str(dtype) for dtype in seen} == {"int32"}
    seen.clear()
    pixels = words.astype(np.uint8)
    task = made(
        init=lambda random: {"table": np.zeros((9, 3), np.float32)},
        apply=look_up,
        shards=[(pixels[:10], Y[:10]), (pixels[10:20], Y[10:20]), (pixels[20:], Y[20:])],
        test=(pixels, Y),
    )
    assert task.train.inputs.dtype == np.uint8


def with_nan(array: Any) -> Any:
    spoilt = np.array(array, dtype=float)
    spoilt[7] = np.nan
    return spoilt


def changing_form() -> Callable[[Any], Any]:
    calls = []

    def init_(random: Any) -> Any:
        calls.append(1)
        return {"w": np.zeros((4, 3)), **({} if len(calls) == 1 else {"b": np.zeros(3)})}

    return init_


def raises(*_: Any) -> Any:
    raise ValueError("no such thing")


def column(parameters: Any, batch: Any) -> Any:
    """Outputs of shape (n, 1)."""
    return apply(parameters, batch)[:, :1]


VALUES = {"shards": [(x, x[:, 0]) for x, _ in SHARDS], "test": (X, X[:, 0]), "apply": column}
"""Targets of shape (n,) for outputs of shape (n, 1)."""

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no data": ({"shards": None}, "shards: give either shards, or train with a partition"),
    "both data": ({"train": (X, Y)}, "shards: give either shards, or train with a partition"),
    "number of shards": ({"shards": SHARDS[:2]}, "shards: 2 shards for 3 devices; run it with --set task.devices=2"),
    "shards no list": ({"shards": 3}, "shards: is a int; give a list of (inputs, targets)"),
    "shard no pair": ({"shards": [*SHARDS[:2], X]}, "shards[2]: is a ndarray; give a pair (inputs, targets)"),
    "empty shard": ({"shards": [*SHARDS[:2], (X[:0], Y[:0])]}, "shards[2]: is empty"),
    "unequal lengths": ({"shards": [*SHARDS[:2], (X, Y[:5])]}, "shards[2]: 120 inputs but 5 targets"),
    "shapes among shards": (
        {"shards": [*SHARDS[:2], (X[:, :3], Y)]},
        "shards[2]: its inputs are float32 of shape (3,)",
    ),
    "NaN": (
        {"shards": [*SHARDS[:2], (with_nan(X), Y)]},
        "shards[2][0]: holds NaN or infinite values (as float32), first in row 7",
    ),
    "too large": ({"test": (X * 1e300, Y)}, "test[0]: holds NaN or infinite"),
    "text": ({"test": (np.array(["a"] * 3), Y[:3])}, "test[0]: holds <U1 values"),
    "complex numbers": ({"test": (X * 1j, Y)}, "test[0]: holds complex128 values; give an array of real numbers"),
    "ragged": ({"test": ([[1.0], [1.0, 2.0]], Y[:2])}, "test[0]: raised ValueError"),
    "a number": ({"test": (X, 3)}, "test[1]: is a int; give an array with one row a sample"),
    "no test": ({"test": None}, "test: is None; give a pair"),
    "empty test": ({"test": (X[:0], Y[:0])}, "test: is empty"),
    "test of another shape": ({"test": (X[:, :2], Y)}, "test: its inputs are float32 of shape (2,) a sample"),
    "negative class": ({"shards": [*SHARDS[:2], (X, Y - 1)]}, "targets: class -1: classes are numbered from 0"),
    "more classes than outputs": ({"test": (X, Y + 3)}, "targets: class 5 occurs, and apply gives 3 outputs"),
    "floats as classes": (
        {"shards": [(x, y * 1.0) for x, y in SHARDS], "test": (X, Y * 1.0)},
        "metric: accuracy needs whole numbers as targets",
    ),
    "partition": ({"shards": None, "train": (X, Y), "partition": "even"}, "partition: 'even': there is iid, by_class"),
    "argument": (
        {"shards": None, "train": (X, Y), "arguments": {"alpha": 1}},
        "arguments: iid has no 'alpha'; it has samples_per_device",
    ),
    "argument of another type": (
        {"shards": None, "train": (X, Y), "partition": "dirichlet", "arguments": {"alpha": "much"}},
        "arguments: dirichlet cannot use {'alpha': 'much'}: could not convert string to float: 'much'",
    ),
    "argument that is no number": (
        {"shards": None, "train": (X, Y), "partition": "by_class", "arguments": {"classes_per_device": "two"}},
        "arguments: by_class cannot use {'classes_per_device': 'two'}: ",
    ),
    "undealable": (
        {"shards": None, "train": (X, Y), "partition": "by_class", "arguments": {"classes_per_device": 9}},
        "partition: a device cannot hold 9 of 3 classes",
    ),
    "init no function": ({"init": {"w": X}}, "init: is not a function"),
    "init raises": ({"init": raises}, "init: raised ValueError: no such thing"),
    "init gives nothing": ({"init": lambda random: {}}, "init: returned no arrays"),
    "init gives text": ({"init": lambda random: {"w": "a"}}, "init: 'w' holds <U1 values"),
    "init gives integers": (
        {"init": lambda random: {"w": np.zeros((4, 3), int)}},
        "init: 'w' holds int64 values; parameters must be floats",
    ),
    "init gives NaN": (
        {"init": lambda random: {"w": np.full((4, 3), np.nan)}},
        "init: its parameters: array 'w' holds NaN",
    ),
    "init of two forms": ({"init": changing_form()}, "init: returned another tree"),
    "apply raises": ({"apply": raises}, "apply: raised ValueError: no such thing"),
    "apply is no pure jax": (
        {"apply": lambda p, batch: batch if batch.sum() > 0 else -batch},
        "apply: raised TracerBoolConversionError",
    ),
    "shapes do not fit": ({"apply": lambda p, batch: batch @ p["layers"][0]["w"].T}, "apply: raised TypeError"),
    "apply gives a tuple": ({"apply": lambda p, batch: (batch, batch)}, "apply: returned a tuple; return one array"),
    "apply gives a mean": ({"apply": lambda p, batch: batch.mean()}, "apply: 3 samples gave outputs of shape ()"),
    "apply gives integers": (
        {"apply": lambda p, batch: batch.astype(int)},
        "apply: returned int32 outputs; return floats",
    ),
    "apply gives rows": (
        {"apply": lambda p, batch: apply(p, batch)[:, :, None]},
        "metric: accuracy needs outputs of shape (samples, classes)",
    ),
    "apply looks at neighbours": (
        {"apply": lambda p, batch: apply(p, batch - batch.mean(axis=0))},
        "apply: a sample's output depends on the other samples",
    ),
    "loss unknown": ({"loss": "hinge"}, "loss: 'hinge' is not one of cross-entropy, squared-error"),
    "loss is a mean": (
        {"loss": lambda o, t: o.mean()},
        "loss: 3 samples gave shape (); give one number for each sample (leave the mean over samples out)",
    ),
    "loss by value": ({"loss": lambda o, t: o**2}, "loss: 3 samples gave shape (3, 3)"),
    "loss broadcasts": (
        {**VALUES, "loss": "squared-error", "metric": "loss"},
        "loss: squared-error compares each output with a target, but 3 samples gave outputs of shape (3, 1) and "
        "targets of shape (3,); reshape one of them",
    ),
    "metric broadcasts": (
        {**VALUES, "loss": lambda o, t: (o[:, 0] - t) ** 2, "metric": "absolute-error"},
        "metric: absolute-error compares each output with a target, but 3 samples gave outputs of shape (3, 1)",
    ),
    "metric by value of classes": (
        {"metric": "squared-error"},
        "metric: squared-error compares each output with a target, but 3 samples gave outputs of shape (3, 3)",
    ),
    "own loss broadcasts": (
        {**VALUES, "loss": lambda o, t: ((o - t) ** 2).mean(axis=1), "metric": "loss"},
        "loss: the value of a sample depends on the other samples of its batch: outputs of shape (3, 1) and targets of "
        "shape (3,) may broadcast",
    ),
    "own metric broadcasts": (
        {
            **VALUES,
            "loss": lambda o, t: (o[:, 0] - t) ** 2,
            "metric": lambda o, t: jnp.abs(o - t).mean(axis=1),
            "direction": "at_most",
        },
        "metric: the value of a sample depends on the other samples of its batch",
    ),
    "loss raises": ({"loss": raises}, "loss: raised ValueError: no such thing"),
    "loss infinite": ({"loss": lambda o, t: o[:, 0] / 0.0}, "loss: is not finite at the initial parameters"),
    "no derivative": (
        {"loss": lambda o, t: jax.lax.while_loop(lambda v: v.sum() < 1, lambda v: v + 1, o[:, 0])},
        "loss: raised ValueError: Reverse-mode differentiation",
    ),
    "metric unknown": ({"metric": "f1"}, "metric: 'f1' is not one of accuracy, squared-error, absolute-error, loss"),
    "metric is a mean": ({"metric": lambda o, t: o.mean(), "direction": "at_least"}, "metric: 3 samples gave shape ()"),
    "metric without direction": ({"metric": lambda o, t: o[:, 0]}, "direction: a metric of your own needs one"),
    "direction": ({"direction": "up"}, "direction: is 'up'; give 'at_least' or 'at_most'"),
    "target": ({"target": "high"}, "target: is 'high'; give the number"),
    "target NaN": ({"target": float("nan")}, "target: is nan"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_name_file_and_attribute(mistake: str) -> None:
    changed, told = MISTAKES[mistake]
    with pytest.raises(TaskError, match=re.escape(f"{NAME}: {told}")):
        made(**changed)


def test_valid_and_invalid_objects_in_a_file() -> None:
    task = given()
    assert load_task(task, NAME, 3, 1) is task
    assert load_task(lambda devices, seed: given(target=devices + seed), NAME, 3, 1).target == 4
    assert number_of_shards(task) == 3
    assert number_of_shards(given(shards=None, train=(X, Y))) is None
    for value, told in (
        (None, "task: is None; give an async_hfl.OwnTask"),
        ({"init": init}, "task: is a dict"),
        (OwnTask, "task: is the class OwnTask; give an async_hfl.OwnTask"),
        (lambda devices, seed: None, "task: is None"),
        (raises, r"task\(devices, seed\): raised ValueError"),
        (lambda: given(), r"task\(devices, seed\): raised TypeError"),
    ):
        with pytest.raises(TaskError, match=told):
            load_task(value, NAME, 3, 1)


@pytest.mark.parametrize("library", ["flax", "nnx", "equinox"])
def test_modules(library: str) -> None:
    if library == "equinox":
        equinox = pytest.importorskip("equinox", reason="Equinox is not installed")
        from async_hfl import from_equinox

        functions = from_equinox(lambda key: equinox.nn.MLP(4, 3, 8, 1, key=key))
        names = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")
    elif library == "flax":
        linen = pytest.importorskip("flax.linen", reason="Flax is not installed")
        from async_hfl import from_flax

        functions = from_flax(linen.Sequential([linen.Dense(8), linen.relu, linen.Dense(3)]), X[:1])
        names = ("layers_0.bias", "layers_0.kernel", "layers_2.bias", "layers_2.kernel")
    else:
        nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")
        from async_hfl import from_nnx

        functions = from_nnx(
            lambda rngs: nnx.Sequential(nnx.Linear(4, 8, rngs=rngs), nnx.relu, nnx.Linear(8, 3, rngs=rngs))
        )
        names = ("layers.0.bias", "layers.0.kernel", "layers.2.bias", "layers.2.kernel")
    task = made(**functions)
    assert task.model.layout.names == names
    one, again, other = (task.model.init(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    before, after = trained(task)
    assert after > 0.85 > before


def test_modules_with_state_besides_parameters() -> None:
    linen = pytest.importorskip("flax.linen", reason="Flax is not installed")
    from flax import nnx

    from async_hfl import from_flax, from_nnx

    batch_norm = linen.Sequential([linen.Dense(8), linen.BatchNorm(use_running_average=False)])
    with pytest.raises(TaskError, match="keeps batch_stats beside its parameters"):
        made(**from_flax(batch_norm, X[:1]))
    with pytest.raises(TaskError, match="keeps BatchStat beside its parameters"):
        from_nnx(lambda rngs: nnx.BatchNorm(4, rngs=rngs))
