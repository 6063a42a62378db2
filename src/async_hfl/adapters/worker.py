"""Calls of the user's clients in one process: weights in, weights out; what a client does not report is derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, final

import numpy as np

from async_hfl.adapters.arrays import Arrangement, Array, Floats
from async_hfl.adapters.client_errors import ClientErrors
from async_hfl.adapters.client_task import EVALUATION_LOSS_NAMES, LOSS_NAMES, ClientTask
from async_hfl.adapters.clients import Call, Evaluated
from async_hfl.adapters.generators import own_generators, seed_generators
from async_hfl.core.errors import TaskError
from async_hfl.core.learner import Evaluation
from async_hfl.core.randomness import stream_seed

SERVER = -1
"""The device of an evaluation by the user's own function."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The private memory of a device between its jobs."""

    integers: tuple[Array, ...] = ()
    """The newest integer arrays; empty for the initial ones."""
    state: bytes = b""
    """`context.state`."""


class Trained(NamedTuple):
    weights: Floats
    samples: int
    loss: float
    kept: Kept
    derived: tuple[str, ...]
    """Values that the client did not report, and those taken instead."""


class Judged(NamedTuple):
    samples: int
    evaluation: Evaluation


@final
class ClientWorker:
    def __init__(self, task: ClientTask, devices: int, seed: int, errors: ClientErrors) -> None:
        self._task, self._devices, self._seed, self._errors = task, devices, seed, errors
        self._arrangement: Arrangement | None = None
        self._initial: tuple[Floats, list[Array]] | None = None

    def arrangement(self) -> Arrangement:
        """Return the arrays of the model, which the first one made shows."""
        if self._arrangement is None:
            self.initial(self._seed)
        assert self._arrangement is not None
        return self._arrangement

    def initial(self, seed: int) -> Floats:
        """Make the initial model."""
        drawn = stream_seed(seed, "initial")
        with own_generators(), self._errors.during("the initial model"):
            seed_generators(drawn)
            model = self._task.clients.model(self._call(0, 1, drawn, b""))
            arrays = [np.asarray(array) for array in model.arrays]
            try:
                self._arrangement = self._arrangement or Arrangement.of(model.names, arrays, model.trained)
                made = self._arrangement.join(arrays)
            except ValueError as error:
                raise TaskError(str(error)) from error
            if not np.isfinite(made[0]).all():
                raise TaskError("holds NaN or infinite values")
        if seed == self._seed:
            self._initial = made
        return made[0]

    def train(self, *, device: int, weights: Floats, kept: Kept, seed: int, number: int) -> Trained:
        where = f"fit of device {device}"
        names, arrays = self._arrays(weights, kept)
        with own_generators(), self._errors.during(where):
            fitted = self._task.clients.fit(self._call(device, number, seed, kept.state), names, arrays)
        try:
            flat, integers = self.arrangement().join(fitted.arrays)
        except ValueError as error:
            raise self._errors.invalid(where, f"returned {error}") from error
        self._check_samples(fitted.samples, where)
        after, derived = Kept(tuple(integers), fitted.state), ["squared loss = loss squared"]
        loss = self._reported_loss(fitted.metrics, where)
        if loss is None:
            loss = self._loss_of(device, flat, after, number)
            derived.append("loss = that of its evaluate, after training")
        if not isfinite(loss) and np.isfinite(flat).all():  # otherwise training has diverged, which gateways handle
            raise self._errors.invalid(where, f"its loss is {loss:g}, and its arrays are finite; report the mean loss")
        if integers:
            derived.append("integer arrays = the newest of each device")
        return Trained(flat, int(fitted.samples), loss, after, tuple(derived))

    def evaluate(self, *, device: int, weights: Floats, kept: Kept, number: int) -> Judged:
        """Evaluate a model by a device's client, or by the user's own function (`device` = SERVER)."""
        where = "evaluate" if device == SERVER else f"evaluate of device {device}"
        found = self._evaluated(device, weights, kept, number)
        if found is None:
            raise self._errors.invalid(
                where, "the client does not evaluate; write its evaluate, or give evaluate=FUNCTION to the adapter"
            )
        loss = _first(found.metrics, EVALUATION_LOSS_NAMES)
        name = str(self._task.metric)
        value = loss if name == "loss" else _number(found.metrics.get(name))
        if value is None and name in found.metrics:
            raise self._errors.invalid(where, f"reports {found.metrics[name]!r} as {name!r}; report a number")
        if value is None:
            known = ", ".join(map(repr, found.metrics)) or "nothing"
            raise self._errors.invalid(
                where, f"reports no {name!r}; it reports {known}: give one of them as metric= to the adapter"
            )
        self._check_samples(found.samples, where)
        if name == "accuracy" and self._task.direction is None and not 0.0 <= value <= 1.0:
            raise self._errors.invalid(
                where,
                f"reports an accuracy of {value:g}; if it is in percent, give direction='at_least' and the target in "
                "percent, too",
            )
        return Judged(int(found.samples), Evaluation(metric=value, loss=value if loss is None else loss))

    def _evaluated(self, device: int, weights: Floats, kept: Kept, number: int) -> Evaluated | None:
        names, arrays = self._arrays(weights, kept)
        clients, function = self._task.clients, self._task.evaluate
        seed = stream_seed(self._seed, "evaluation", device)
        if device == SERVER:
            assert function is not None
            with own_generators(), self._errors.during("evaluate"):
                seed_generators(seed)
                return clients.at_server(function, names, arrays)
        with own_generators(), self._errors.during(f"evaluate of device {device}"):
            return clients.evaluate(self._call(device, number, seed, kept.state), names, arrays)

    def _loss_of(self, device: int, weights: Floats, kept: Kept, number: int) -> float:
        """Return the loss of the trained model on the client's own data, since `fit` reports none."""
        found = self._evaluated(device, weights, kept, number)
        loss = None if found is None else _first(found.metrics, EVALUATION_LOSS_NAMES)
        if loss is None:
            raise self._errors.invalid(
                f"fit of device {device}",
                f"reports no loss (looked for {', '.join(LOSS_NAMES)}), and its evaluate gives none: name the metric "
                "that is the loss (loss= of the adapter), or report one",
            )
        return loss

    def _check_samples(self, samples: object, where: str) -> None:
        if not isinstance(samples, int | np.integer) or samples < 1:
            raise self._errors.invalid(where, f"reports {samples!r} examples; report a whole number from 1")

    def _reported_loss(self, metrics: Mapping[str, Any], where: str) -> float | None:
        wanted = self._task.loss
        if wanted is None:
            return _first(metrics, LOSS_NAMES)
        found = _number(metrics.get(wanted))
        if found is None:
            known = ", ".join(map(repr, metrics)) or "nothing"
            raise self._errors.invalid(where, f"reports no {wanted!r} (loss= of the adapter); it reports {known}")
        return found

    def _arrays(self, weights: Floats, kept: Kept) -> tuple[Sequence[str], list[Array]]:
        arrangement = self.arrangement()
        if self._initial is None:
            self.initial(self._seed)
        assert self._initial is not None
        return [one.name for one in arrangement.arrays], arrangement.split(weights, kept.integers or self._initial[1])

    def _call(self, device: int, number: int, seed: int, state: bytes) -> Call:
        return Call(device, self._devices, number, stream_seed(self._seed, "client", device), seed, state)


def _first(metrics: Mapping[str, Any], names: Sequence[str]) -> float | None:
    return next((found for name in names if (found := _number(metrics.get(name))) is not None), None)


def _number(value: object) -> float | None:
    """Return a number, whichever library it is of; None for anything else."""
    if value is None or isinstance(value, str):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if isfinite(found) else float("nan")
