"""Training in one process: a module whose parameters are views of one flat vector, trained job after job.

With flat vectors an update takes a few calls whatever the model, which doubles PyTorch's speed on small ones.
Everything runs on one thread with a seed per job: a result depends on the job alone. On a GPU, data and model stay
there; jobs and results are arrays of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import TaskError
from async_hfl.core.randomness import stream_seed
from async_hfl.core.weights import Layout
from async_hfl.learning.engine.batches import BatchOrders, RowNumbers
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import TorchDevice
from async_hfl.learning.own.data import OwnData
from async_hfl.learning.own.task import (
    LOSSES,
    METRICS,
    TorchTask,
    check_independent,
    check_shapes,
    function_name,
)
from async_hfl.learning.own.task_errors import TaskErrors
from async_hfl.learning.pytorch.gpu import exact, torch_device
from async_hfl.learning.pytorch.optimisers import flat_optimiser, penalise

_TRIAL_SAMPLES = 3
"""Samples in a trial batch; a small number that is unlikely to be one of the model's own sizes."""

Floats: TypeAlias = npt.NDArray[np.float32]


class Trained(NamedTuple):
    """The result of a job."""

    weights: Floats
    loss: float
    """Sum of the losses over the samples of the last epoch."""
    squared_loss: float
    """Sum of the squared losses."""
    gradient: Floats | None
    steps: int
    """Mini-batch steps taken."""


@final
class TorchWorker:
    """Trains and evaluates one task; every check of the task happens when it is created."""

    def __init__(
        self, task: TorchTask, data: OwnData, recipe: Recipe, errors: TaskErrors, device: TorchDevice = "auto"
    ) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch: Any = torch
        self._task, self._data, self._recipe, self._errors = task, data, recipe, errors
        self._device = torch_device(torch, device)
        self._inputs = {False: self._tensor(data.train.inputs), True: self._tensor(data.test.inputs)}
        self._targets = {False: self._tensor(data.train.targets), True: self._tensor(data.test.targets)}
        self._loss = self._per_sample("loss")
        function_name(task.metric, METRICS, "metric", errors)
        self._module = self._make_module(0).to(self._device)
        parameters = [(n, p) for n, p in self._module.named_parameters() if p.requires_grad]
        fixed = [(n, p.data) for n, p in self._module.named_parameters() if not p.requires_grad]
        buffers = list(self._module.named_buffers())
        # Statistics are sent with the model; counters are not and start again with each job.
        statistics = fixed + [(n, b) for n, b in buffers if b.is_floating_point()]
        self._counters = [(b, b.clone()) for _, b in buffers if not b.is_floating_point()]
        self._statistics = [part for _, part in statistics]
        every = parameters + statistics
        if not parameters:
            raise errors.invalid("model", "the module has no parameters to train")
        self.layout = Layout(tuple(name for name, _ in every), tuple(tuple(part.shape) for _, part in every))
        self.trained = sum(prod(part.shape) for _, part in parameters)
        self._flat = torch.cat([p.data.reshape(-1) for _, p in parameters])
        self._gradient = torch.zeros_like(self._flat)
        start = 0
        for _, parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self._flat[start:stop].view(parameter.shape)
            parameter.grad = self._gradient[start:stop].view(parameter.shape)
            start = stop
        kinds = torch.nn.modules.batchnorm._BatchNorm
        self._normalisations = [layer for layer in self._module.modules() if isinstance(layer, kinds)]
        usual = "merge" if self._normalisations else "keep"
        self._single = usual if recipe.single_sample == "auto" else recipe.single_sample
        self._recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in self._module.modules())
        self._classes = self._check_task()

    def description(self) -> tuple[Layout, int, str]:
        """Return the layout, the length of a gradient (the rest is statistics and fixed parameters), and the kind of
        device."""
        return self.layout, self.trained, str(self._device.type)

    def initial(self, seed: int) -> Floats:
        """Draw initial weights, on the processor, so that they are the same everywhere."""
        module = self._make_module(stream_seed(seed, "initial") % 2**63).cpu()
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return self.layout.flatten({name: state[name].detach().numpy() for name in self.layout.names}, "its model")

    def train(self, *, weights: Floats, rows: RowNumbers, seed: int, learning_rate: float | None = None) -> Trained:
        """Train on these rows of the training set; `learning_rate` replaces that of the recipe."""
        torch, recipe = self._torch, self._recipe
        rate = recipe.learning_rate if learning_rate is None else learning_rate
        orders = BatchOrders([rows], np.array([seed], dtype=np.uint64), recipe.static).draw()
        passes = self._tensor(orders[0].reshape(recipe.static.passes, -1)[:, : len(rows)])
        torch.manual_seed(seed % 2**63)
        self._load(weights)
        self._module.train()
        flat, gradient = self._flat, self._gradient
        origin, optimiser = flat.clone(), flat_optimiser(torch, recipe, rate, flat)
        sums, steps, trained_on = torch.zeros(2, dtype=torch.float64, device=self._device), 0, 0
        with exact(torch, self._device):
            for epoch in range(recipe.epochs):
                for batch in self._batches(passes[epoch]):
                    steps += 1
                    for layer in self._normalisations:
                        layer.train(len(batch) > 1 or recipe.single_sample == "keep")
                    losses = self._losses(batch)
                    gradient.zero_()
                    with self._errors.during("loss"):
                        losses.mean().backward()
                    with torch.no_grad():
                        optimiser.step(flat, gradient, origin)
                    if epoch == recipe.epochs - 1:
                        seen = losses.detach().double()
                        trained_on += len(batch)
                        sums += torch.stack([seen.sum(), (seen * seen).sum()])  # read at the end: a GPU need not wait
            final = self._final_gradient(passes[-1], origin) if recipe.gradient else None
        trained: Floats = torch.cat([flat, *(part.reshape(-1) for part in self._statistics)]).cpu().numpy()
        loss, squared = (sums.cpu().numpy() * (len(rows) / trained_on)).tolist()  # of all samples, if one was left out
        return Trained(trained, loss, squared, final, steps)

    def _batches(self, rows: Any) -> list[Any]:
        """Divide the rows of an epoch. Batch normalisation needs more than one sample."""
        parts = list(rows.split(self._recipe.batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1 and self._single != "keep":
            last = parts.pop()
            if self._single == "merge":
                parts[-1] = self._torch.cat([parts[-1], last])
        return parts

    def count(self, *, weights: Floats, of_test: bool, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the sums over these rows of the test or training set: [losses, metric, samples], or for accuracy
        [losses, samples of each class, correct ones of each class]."""
        torch = self._torch
        self._load(weights)
        self._module.train(False)
        with torch.no_grad(), exact(torch, self._device):
            index = self._tensor(rows)
            outputs, targets = self._outputs(self._inputs[of_test][index]), self._targets[of_test][index]
            with self._errors.during("loss"):
                losses = self._loss(outputs, targets)
            if self._task.metric == "accuracy":  # not by name: a user's function may have the same one
                right = outputs.argmax(dim=1) == targets
                of_class, right_ones = (
                    torch.bincount(part, minlength=self._classes).double().cpu().numpy()
                    for part in (targets, targets[right])
                )
                return np.concatenate([[float(losses.double().sum())], of_class, right_ones])
            with self._errors.during("metric"):
                values = losses if self._task.metric == "loss" else self._per_sample("metric")(outputs, targets)
        return np.array([float(losses.double().sum()), float(values.double().sum()), len(rows)])

    def _final_gradient(self, rows: Any, origin: Any) -> Floats:
        """Return the gradient of the regularised loss over all local data, in inference mode. There, cuDNN has no
        gradients of recurrent layers."""
        self._module.train(False)
        self._gradient.zero_()
        with exact(self._torch, self._device, cudnn=not self._recurrent):
            for part in rows.split(self._recipe.batch_size):
                self._losses(part).sum().backward()
        mean = self._gradient / len(rows)
        with self._torch.no_grad():
            penalise(self._recipe, mean, self._flat, origin)
        found: Floats = mean.cpu().numpy()
        return found

    def _losses(self, rows: Any) -> Any:
        outputs = self._outputs(self._inputs[False][rows])
        with self._errors.during("loss"):
            return self._loss(outputs, self._targets[False][rows])

    def _outputs(self, batch: Any) -> Any:
        with self._errors.during("model"):
            return self._module(batch)

    def _load(self, weights: Floats) -> None:
        torch = self._torch
        whole = self._tensor(weights)
        with torch.no_grad():
            self._flat.copy_(whole[: self.trained])
            start = self.trained
            for part in self._statistics:
                stop = start + part.numel()
                part.copy_(whole[start:stop].view(part.shape))
                start = stop
            for counter, first in self._counters:
                counter.copy_(first)

    def _tensor(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device."""
        wide = np.int64 if array.dtype == np.int32 else array.dtype
        return self._torch.from_numpy(np.array(array, dtype=wide)).to(self._device)

    def _make_module(self, seed: int) -> Any:
        torch = self._torch
        torch.manual_seed(seed)
        with self._errors.during("model"):
            module = self._task.model()
        if not isinstance(module, torch.nn.Module):
            raise self._errors.invalid("model", f"made a {type(module).__name__}; make a torch.nn.Module")
        return module.float()

    def _per_sample(self, attribute: str) -> Callable[[Any, Any], Any]:
        given = getattr(self._task, attribute)
        if callable(given):
            return given  # type: ignore[no-any-return]
        if attribute == "loss":
            function_name(given, LOSSES, "loss", self._errors)
        if given == "cross-entropy":
            return lambda o, t: self._torch.nn.functional.cross_entropy(o, t, reduction="none")
        if given == "squared-error":
            return lambda o, t: ((o - t) ** 2).reshape(len(o), -1).mean(dim=1)
        return lambda o, t: (o - t).abs().reshape(len(o), -1).mean(dim=1)

    def _check_task(self) -> int:
        """Check the task on a few samples; return the number of outputs per sample."""
        try:
            with exact(self._torch, self._device):
                return self._tried()
        except TaskError as error:
            if self._device.type == "cpu":
                raise
            raise TaskError(f"{error} (on the GPU; with engine.torch_device=cpu the processor trains)") from error

    def _tried(self) -> int:
        errors, torch = self._errors, self._torch
        try:
            self.initial(0)
        except TaskError:
            raise
        except Exception as error:
            raise errors.invalid("model", str(error)) from error
        rows = self._tensor(np.linspace(0, len(self._data.train) - 1, _TRIAL_SAMPLES).astype(np.int64))
        self._module.train()
        outputs = self._outputs(self._inputs[False][rows])
        if not isinstance(outputs, torch.Tensor) or outputs.ndim < 1 or len(outputs) != _TRIAL_SAMPLES:
            shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise errors.invalid("model", f"{_TRIAL_SAMPLES} samples gave {shape}; the first axis must be the sample")
        by_class = [k for k, v in (("metric", "accuracy"), ("loss", "cross-entropy")) if getattr(self._task, k) == v]
        if by_class and not self._data.classes:
            raise errors.invalid(by_class[0], "needs whole numbers as targets, one class a sample")
        if by_class and (outputs.ndim != 2 or outputs.shape[1] < self._data.classes):
            raise errors.invalid(
                "model", f"{_TRIAL_SAMPLES} samples gave {tuple(outputs.shape)}; {self._data.classes} classes occur"
            )
        targets = self._targets[False][rows]
        check_shapes(self._task, tuple(outputs.shape), tuple(targets.shape), errors)
        losses = self._losses(rows)
        self._check_per_sample("loss", losses)
        with errors.during("loss"):
            losses.mean().backward()
        if not torch.isfinite(losses).all():
            raise errors.invalid("loss", "is not finite at the initial parameters; scale the inputs or the parameters")
        self._check_functions(outputs.detach(), targets)
        return int(outputs.shape[1]) if by_class else 0

    def _check_per_sample(self, attribute: str, values: Any) -> None:
        found = tuple(values.shape) if isinstance(values, self._torch.Tensor) else type(values).__name__
        if found != (_TRIAL_SAMPLES,):
            raise self._errors.invalid(
                attribute,
                f'{_TRIAL_SAMPLES} samples gave {found}; give one number for each sample (reduction="none")',
            )

    def _check_functions(self, outputs: Any, targets: Any) -> None:
        """Check that the user's functions give one number a sample, and do not broadcast (n, 1) against (n,). A loss
        may compare samples on purpose, so other shapes are not checked."""
        reshaped = outputs.shape != targets.shape and outputs.numel() == targets.numel()
        copies = [tensor[:1].expand_as(tensor).contiguous() for tensor in (outputs, targets)]
        for attribute in ("loss", "metric"):
            function = getattr(self._task, attribute)
            if not callable(function):
                continue
            with self._errors.during(attribute):
                values = function(outputs, targets)
            self._check_per_sample(attribute, values)
            if reshaped:
                alone = float(function(*copies)[0])
                shapes = tuple(outputs.shape), tuple(targets.shape)
                check_independent(attribute, float(values[0]), alone, *shapes, self._errors)
