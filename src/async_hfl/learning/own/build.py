"""Conversion of a user's task in JAX to a task of the engine: a named flat model, loss and metric, samples.

All checks happen here, on three samples, so that errors are reported before a run starts and in the user's terms.
Shapes and derivatives are checked by tracing, which computes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.core.weights import Layout, Weights
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.evaluation.objectives import Objective
from async_hfl.learning.models.model import Model, Parameters, unflatten
from async_hfl.learning.own.data import OwnData, checked_data
from async_hfl.learning.own.objective import own_objective
from async_hfl.learning.own.optimiser import own_optimiser
from async_hfl.learning.own.task import OwnTask, check_independent, check_shapes, task_target
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.tasks.task_learner import Task

_like: Any = jax.ShapeDtypeStruct
_BATCH = 3
"""Samples in a trial batch; a small number that is unlikely to be one of the model's own sizes."""
_TOLERANCE = 1e-3
"""Tolerance between a sample's outputs alone and in a batch: rounding may differ."""


def own_task(
    own: OwnTask, name: str, devices: int, seed: int, *, threshold: float | None = None, refresh: float = 0.0
) -> Task:
    """Build the task. `name` is FILE.py:NAME; `threshold`, if a setting gives one, replaces the task's own target."""
    errors = TaskErrors(name)
    target = task_target(own, errors, threshold)
    data = checked_data(own, devices, seed, errors)
    model = own_model(own, errors)
    outputs = _traced_outputs(model, data, errors)
    classes = _classes(own, data, outputs.shape, errors)
    objective = own_objective(own, classes, errors)
    _check_loss(own, model, objective, data, outputs, errors)
    _check_values(own, model, objective, data, errors)
    return Task(
        name=name,
        model=model,
        objective=objective,
        train=data.train,
        test=data.test,
        owned=data.owned,
        target=target,
        refresh=refresh,
        seed=seed,
        classes=max(classes, data.classes),
        class_names=tuple(own.class_names),
        optimiser=own_optimiser(own, model, errors),
    )


def own_model(own: OwnTask, errors: TaskErrors) -> Model:
    """Return the user's tree of parameters as named arrays; the names are the paths to its leaves."""
    for attribute in ("init", "apply"):
        if not callable(getattr(own, attribute)):
            raise errors.invalid(attribute, "is not a function")
    with errors.during("init"):
        first = own.init(stream(0, "initial"))
    tree: Any
    paths, tree = jax.tree_util.tree_flatten_with_path(first)
    if not paths:
        raise errors.invalid("init", "returned no arrays; return a dict of them")
    names = tuple(jax.tree_util.keystr(path, simple=True, separator=".") or "parameters" for path, _ in paths)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise errors.invalid("init", f"two arrays have the name {twice!r}")
    for path, (_, leaf) in zip(names, paths, strict=True):
        _check_leaf(path, leaf, errors)
    layout = Layout(names, tuple(np.shape(leaf) for _, leaf in paths))

    def init(random: np.random.Generator) -> Weights:
        with errors.during("init"):
            leaves, same = jax.tree_util.tree_flatten(own.init(random))
        if same != tree:
            raise errors.invalid("init", "returned another tree than the first time; return the same structure")
        try:
            return layout.flatten(dict(zip(names, map(np.asarray, leaves), strict=True)), "its parameters")
        except DataError as error:
            raise errors.invalid("init", str(error)) from error

    def apply(parameters: Parameters, batch: Array) -> Array:
        with errors.during("apply"):
            outputs: Array = own.apply(tree.unflatten([parameters[name] for name in names]), batch)
        return outputs

    init(stream(0, "initial"))  # check that values are finite, and the tree the same twice
    return Model(layout, init, apply)


def _check_leaf(path: str, leaf: object, errors: TaskErrors) -> None:
    try:
        array = np.asarray(leaf)
    except TypeError:
        raise errors.invalid("init", f"{path!r} is a {type(leaf).__name__}; return arrays only") from None
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise errors.invalid("init", f"{path!r} holds {array.dtype} values; parameters must be floats")


def _example(data: OwnData) -> Any:
    return _like((_BATCH, *data.train.inputs.shape[1:]), data.train.inputs.dtype)


def _flat(model: Model) -> Any:
    return _like((model.layout.size,), np.float32)


def _traced_outputs(model: Model, data: OwnData, errors: TaskErrors) -> Any:
    with errors.during("apply"):
        outputs = jax.eval_shape(
            lambda flat, batch: model.apply(unflatten(model.layout, flat), batch), _flat(model), _example(data)
        )
    if not hasattr(outputs, "shape"):
        raise errors.invalid("apply", f"returned a {type(outputs).__name__}; return one array of outputs")
    if not outputs.shape or outputs.shape[0] != _BATCH:
        raise errors.invalid(
            "apply", f"{_BATCH} samples gave outputs of shape {outputs.shape}; the first axis must be the sample"
        )
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise errors.invalid("apply", f"returned {outputs.dtype} outputs; return floats")
    return outputs


def _classes(own: OwnTask, data: OwnData, shape: tuple[int, ...], errors: TaskErrors) -> int:
    """Return the number of outputs per sample if loss or metric interpret them as classes; otherwise 0."""
    by_class = [
        kind for kind, value in (("metric", "accuracy"), ("loss", "cross-entropy")) if getattr(own, kind) == value
    ]
    if not by_class:
        return 0
    [kind, *_] = by_class
    if not data.classes:
        raise errors.invalid(kind, f"{getattr(own, kind)} needs whole numbers as targets, one class a sample")
    if len(shape) != 2:
        raise errors.invalid(kind, f"{getattr(own, kind)} needs outputs of shape (samples, classes), not {shape}")
    if shape[1] < data.classes:
        raise errors.invalid("targets", f"class {data.classes - 1} occurs, and apply gives {shape[1]} outputs a sample")
    return shape[1]


def _check_loss(
    own: OwnTask, model: Model, objective: Objective, data: OwnData, outputs: Any, errors: TaskErrors
) -> None:
    targets = _like((_BATCH, *data.train.targets.shape[1:]), data.train.targets.dtype)
    check_shapes(own, outputs.shape, targets.shape, errors)
    for attribute, function in (("loss", objective.loss), ("metric", own.metric)):
        if not callable(function):
            continue
        with errors.during(attribute):
            losses = jax.eval_shape(function, outputs, targets)
        shape = getattr(losses, "shape", None)
        if shape != (_BATCH,):
            advice = "leave the mean over samples out" if shape == () else "take the mean over a sample's own values"
            raise errors.invalid(
                attribute, f"{_BATCH} samples gave shape {shape}; give one number for each sample ({advice})"
            )

    def total(flat: Array, batch: Array, wanted: Array) -> Array:
        return objective.loss(model.apply(unflatten(model.layout, flat), batch), wanted).sum()

    with errors.during("loss"):
        jax.eval_shape(jax.grad(total), _flat(model), _example(data), targets)


def _check_values(own: OwnTask, model: Model, objective: Objective, data: OwnData, errors: TaskErrors) -> None:
    """Check that losses are finite at the initial weights, and that no sample's output, loss or metric depends on other
    samples."""
    parameters = model.layout.unflatten(np.asarray(model.init(stream(0, "initial"))))
    rows = np.linspace(0, len(data.train) - 1, _BATCH).astype(np.int64)
    batch, targets = data.train.read(rows), data.train.targets[rows]
    # The first sample among copies of itself: shapes stay the same, so nothing is compiled again.
    batch_alone, targets_alone = (np.repeat(array[:1], _BATCH, axis=0) for array in (batch, targets))
    apply: Any = jax.jit(model.apply)
    outputs: npt.NDArray[Any] = np.asarray(apply(parameters, batch))
    alone: npt.NDArray[Any] = np.asarray(apply(parameters, batch_alone))
    for attribute, function in (("loss", objective.loss), ("metric", own.metric)):
        if not callable(function):
            continue
        with errors.during(attribute):
            values = np.asarray(function(jnp.asarray(outputs), jnp.asarray(targets)))
            copied = np.repeat(outputs[:1], _BATCH, axis=0)
            value_alone = np.asarray(function(jnp.asarray(copied), jnp.asarray(targets_alone)))[0]
        if attribute == "loss" and not np.isfinite(values).all():
            raise errors.invalid("loss", "is not finite at the initial parameters; scale the inputs or the parameters")
        check_independent(attribute, float(values[0]), float(value_alone), outputs.shape, targets.shape, errors)
    scale = float(np.abs(outputs).max()) or 1.0
    if not np.allclose(outputs[0], alone[0], rtol=0, atol=_TOLERANCE * scale):
        raise errors.invalid(
            "apply",
            "a sample's output depends on the other samples of its batch (batch normalisation?), which padding would "
            "change; normalise within a sample instead",
        )
