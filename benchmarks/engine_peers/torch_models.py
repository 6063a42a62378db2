"""The models of the tasks as a user of PyTorch writes them, and the conversion of weights from and to the library's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine_peers.work import Layout, Work


class Perceptron(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, batch: Tensor) -> Tensor:
        return self.output(torch.relu(self.hidden(batch)))


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 20, 5)
        self.second = nn.Conv2d(20, 50, 5)
        self.hidden = nn.Linear(800, 500)
        self.output = nn.Linear(500, 10)

    def forward(self, batch: Tensor) -> Tensor:
        images = nn.functional.max_pool2d(torch.relu(self.first(batch)), 2)
        images = nn.functional.max_pool2d(torch.relu(self.second(images)), 2)
        return self.output(torch.relu(self.hidden(images.flatten(1))))


class CharacterLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 100, batch_first=True)
        self.output = nn.Linear(100, 80)

    def forward(self, batch: Tensor) -> Tensor:
        steps, _ = self.lstm(self.embedding(batch))
        return self.output(steps[:, -1])


class SeriesLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 128, batch_first=True)
        self.output = nn.Linear(128, 12)

    def forward(self, batch: Tensor) -> Tensor:
        steps, _ = self.lstm(batch)
        return self.output(steps[:, -1])


class NormalisedConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.convolution(images))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = NormalisedConvolution(inputs, outputs, 3, stride)
        self.second = NormalisedConvolution(outputs, outputs, 3, 1)
        changes = stride != 1 or inputs != outputs
        self.shortcut = NormalisedConvolution(inputs, outputs, 1, stride) if changes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(images))) + self.shortcut(images))


class Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.block1 = Block(inputs, outputs, stride)
        self.block2 = Block(outputs, outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.block2(self.block1(images))


class ResNet18(nn.Module):
    """ResNet-18 for images of 32 x 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = NormalisedConvolution(3, 64, 3, 1)
        self.stage1 = Stage(64, 64, 1)
        self.stage2 = Stage(64, 128, 2)
        self.stage3 = Stage(128, 256, 2)
        self.stage4 = Stage(256, 512, 2)
        self.output = nn.Linear(512, 10)

    def forward(self, batch: Tensor) -> Tensor:
        images = torch.relu(self.stem(batch))
        images = self.stage4(self.stage3(self.stage2(self.stage1(images))))
        return self.output(images.mean(dim=(2, 3)))


def module_of(work: Work) -> nn.Module:
    task = work.size.task
    if task == "mnist":
        return SmallCnn()
    if task == "cifar10":
        return ResNet18()
    if task == "shakespeare":
        return CharacterLstm()
    if task == "hpwren":
        return SeriesLstm()
    shapes = dict(zip(work.layout.names, work.layout.shapes, strict=True))
    return Perceptron(*shapes["hidden.weight"], shapes["output.weight"][1])


_RENAMED = {
    "layer1.input_weight": "lstm.weight_ih_l0",
    "layer1.hidden_weight": "lstm.weight_hh_l0",
    "layer1.input_bias": "lstm.bias_ih_l0",
    "layer1.hidden_bias": "lstm.bias_hh_l0",
}
_IN_RESNET = {
    "weight": "convolution.weight",
    "scale": "norm.weight",
    "shift": "norm.bias",
    "mean": "norm.running_mean",
    "variance": "norm.running_var",
}


def _name(task: str, name: str) -> str:
    of, _, part = name.rpartition(".")
    if task == "cifar10" and of != "output":
        return f"{of}.{_IN_RESNET[part]}"
    return _RENAMED.get(name, name)


def _turned(name: str, array: npt.NDArray[np.float32], *, back: bool) -> npt.NDArray[np.float32]:
    """Convert the order of axes: matrices are transposed, filters have other axes, embeddings are the same."""
    if array.ndim == 4:
        return array.transpose((2, 3, 1, 0) if back else (3, 2, 0, 1))
    return array.T if array.ndim == 2 and name != "embedding.weight" else array


def to_state(task: str, layout: Layout, flat: npt.NDArray[np.float32]) -> dict[str, Tensor]:
    return {
        _name(task, name): torch.from_numpy(np.ascontiguousarray(_turned(name, array, back=False)))
        for name, array in layout.arrays(flat).items()
    }


def from_state(task: str, layout: Layout, state: dict[str, Tensor]) -> npt.NDArray[np.float32]:
    return layout.flat(
        {name: _turned(name, state[_name(task, name)].detach().cpu().numpy(), back=True) for name in layout.names}
    )


def tensors_of(work: Work) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as these modules take them."""
    inputs, targets = work.array("inputs"), work.array("targets")
    if inputs.ndim == 4:
        inputs = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    if inputs.dtype.kind in "iu":
        inputs = inputs.astype(np.int64)
    return torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64) if work.classes else targets)


def loss_of(work: Work) -> nn.Module:
    return nn.CrossEntropyLoss() if work.classes else nn.MSELoss()
