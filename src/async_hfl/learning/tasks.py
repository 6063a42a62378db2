"""The tasks there are, each a function from plain numbers to a learner. Importing this does not import JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_hfl.core.targets import Target
from async_hfl.learning.datasets.digits import PIXELS, load_digits
from async_hfl.learning.partition import deal_by_class
from async_hfl.learning.recipe import Recipe

if TYPE_CHECKING:
    from async_hfl.learning.task_learner import TaskLearner

DIGITS_HIDDEN = 64


def digits_learner(
    devices: int,
    seed: int,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    proximal_weight: float,
    gradient: bool,
    threshold: float,
) -> TaskLearner:
    """The embedded task: handwritten digits, two classes a device, a small MLP."""
    # Here and not above: JAX takes a while to import, and a command line that only prints help should not wait for it.
    from async_hfl.learning.models.mlp import mlp
    from async_hfl.learning.objectives import classification
    from async_hfl.learning.task_learner import Task, TaskLearner

    recipe = Recipe(epochs, batch_size, learning_rate, momentum, weight_decay, proximal_weight, gradient)
    data = load_digits()
    objective = classification(data.classes)
    task = Task(
        name="digits",
        model=mlp(PIXELS, DIGITS_HIDDEN, data.classes),
        objective=objective,
        train=data.train,
        test=data.test,
        owned=deal_by_class(data.train.targets, devices, seed, classes=data.classes),
        target=Target(objective.metric, threshold),
    )
    return TaskLearner(task, recipe)
