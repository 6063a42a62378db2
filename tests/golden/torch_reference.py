"""An independent local training in PyTorch, in double precision, with PyTorch's modules, gradients and optimiser.

It knows the engine's layout only to copy weights: which array is which parameter, and the order of the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from golden_cases import Case, Floats, Outcome, data, orders, start
from torch import nn
from torch.nn import functional

_AXES = {2: (1, 0), 4: (2, 3, 1, 0)}
"""Axes of the engine's arrays from PyTorch's: matrices are (inputs, outputs), filters (height, width, inputs,
outputs)."""


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(561, 128), nn.Linear(128, 6)

    def forward(self, batch: Any) -> Any:
        return self.output(torch.relu(self.hidden(batch)))


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.hidden, self.output = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, batch: Any) -> Any:
        images = batch.permute(0, 3, 1, 2)
        for layer in (self.first, self.second):
            images = functional.max_pool2d(torch.relu(layer(images)), 2)
        return self.output(torch.relu(self.hidden(images.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = norm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = norm(outputs)
        self.has_shortcut = stride != 1 or inputs != outputs
        if self.has_shortcut:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut_norm = norm(outputs)

    def forward(self, images: Any) -> Any:
        inside = torch.relu(self.first_norm(self.first(images)))
        inside = self.second_norm(self.second(inside))
        around = self.shortcut_norm(self.shortcut(images)) if self.has_shortcut else images
        return torch.relu(inside + around)


class ResNet(nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.stem_norm = norm(64)
        inputs = 64
        for stage, outputs in enumerate((64, 128, 256, 512), 1):
            stride = 1 if stage == 1 else 2
            blocks = {"block1": Block(inputs, outputs, stride, norm), "block2": Block(outputs, outputs, 1, norm)}
            self.add_module(f"stage{stage}", nn.ModuleDict(blocks))
            inputs = outputs
        self.output = nn.Linear(512, 10)

    def forward(self, batch: Any) -> Any:
        images = torch.relu(self.stem_norm(self.stem(batch.permute(0, 3, 1, 2))))
        for stage in (self.stage1, self.stage2, self.stage3, self.stage4):
            images = stage["block2"](stage["block1"](images))
        return self.output(functional.avg_pool2d(images, 4).flatten(1))


class CharacterLstm(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 100, layers, batch_first=True)
        self.output = nn.Linear(100, 80)

    def forward(self, batch: Any) -> Any:
        steps, _ = self.lstm(self.embedding(batch.long()))
        return self.output(steps[:, -1])


class SeriesLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 128, batch_first=True)
        self.output = nn.Linear(128, 12)

    def forward(self, batch: Any) -> Any:
        steps, _ = self.lstm(batch)
        return self.output(steps[:, -1])


MODULES = {
    "mlp": Perceptron,
    "cnn": SmallCnn,
    "resnet18-batch": lambda: ResNet(nn.BatchNorm2d),
    "resnet18-group": lambda: ResNet(lambda channels: nn.GroupNorm(32, channels)),
    "character-lstm": lambda: CharacterLstm(1),
    "character-lstm-2": lambda: CharacterLstm(2),
    "series-lstm": SeriesLstm,
}
_LSTM = {"weight_ih": "input_weight", "weight_hh": "hidden_weight", "bias_ih": "input_bias", "bias_hh": "hidden_bias"}
_NORM = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "variance"}


def our_name(theirs: str) -> str:
    module, _, part = theirs.rpartition(".")
    if module == "lstm":
        kind, _, layer = part.rpartition("_l")
        return f"layer{int(layer) + 1}.{_LSTM[kind]}"
    if module.endswith("_norm"):
        return f"{module.removesuffix('_norm')}.{_NORM[part]}"
    return theirs


def _ours(name: str, theirs: Any) -> Floats:
    array = theirs.detach().numpy().copy()
    if name.startswith("embedding"):
        return array
    return np.ascontiguousarray(array.transpose(_AXES[array.ndim])) if array.ndim in _AXES else array


def _copy_start(case: Case, seed: int, name: str, tensor: Any) -> None:
    """Write the initial values of an array into its tensor."""
    swapped = tensor.ndim in _AXES and not name.startswith("embedding")
    axes = _AXES[tensor.ndim] if swapped else tuple(range(tensor.ndim))
    values = start(case, seed, name, tuple(tensor.shape[axis] for axis in axes))
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(values.transpose(np.argsort(axes))))


def train(case: Case, seed: int) -> Outcome:
    module = MODULES[case.name]().double()
    state = {our_name(name): tensor for name, tensor in module.state_dict().items() if "num_batches" not in name}
    for name, tensor in state.items():
        _copy_start(case, seed, name, tensor)
    first = {name: _ours(name, tensor) for name, tensor in state.items()}
    parameters = dict(module.named_parameters())
    received = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    inputs, targets = (torch.from_numpy(array) for array in data(case, seed))

    def losses(rows: Any) -> Any:
        outputs = module(inputs[rows])
        if case.regression:
            return functional.mse_loss(outputs, targets[rows], reduction="none").mean(dim=1)
        return functional.cross_entropy(outputs, targets[rows].long(), reduction="none")

    def proximal() -> Any:
        return sum(((parameter - received[name]) ** 2).sum() for name, parameter in parameters.items())

    optimiser = torch.optim.SGD(
        module.parameters(), lr=case.learning_rate, momentum=case.momentum, weight_decay=case.weight_decay
    )
    seen: list[Any] = []
    module.train()
    for epoch in orders(case, seed)[:-1].reshape(case.epochs, -1).tolist():
        seen = []
        for place in range(0, case.samples, case.batch_size):
            rows = epoch[place : min(place + case.batch_size, case.samples)]
            optimiser.zero_grad()
            found = losses(rows)
            (found.mean() + case.proximal_weight / 2 * proximal()).backward()
            optimiser.step()
            seen.append(found.detach())
    module.eval()
    optimiser.zero_grad()
    decay = sum((parameter**2).sum() for parameter in parameters.values())
    whole = losses(list(range(case.samples))).mean()
    (whole + case.weight_decay / 2 * decay + case.proximal_weight / 2 * proximal()).backward()
    every = torch.cat(seen)
    return Outcome(
        displacement={name: _ours(name, tensor) - first[name] for name, tensor in state.items()},
        gradient={our_name(name): _ours(our_name(name), parameter.grad) for name, parameter in parameters.items()},
        sums=np.array([float(every.sum()), float((every**2).sum())]),
    )
