"""A plain PyTorch loop, one client after another, as a user of PyTorch writes it. Default threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from engine_peers.protocol import Channel, serve
from engine_peers.torch_models import from_state, loss_of, module_of, tensors_of, to_state
from engine_peers.torch_peak import matmul_peak
from engine_peers.work import Work


def run(channel: Channel, options: dict[str, Any]) -> None:
    serve(channel, TorchLoop, peak=matmul_peak, torch=torch.__version__, threads=torch.get_num_threads())


def train_client(
    model: nn.Module,
    start: dict[str, Tensor],
    data: TensorDataset,
    batches: list[list[list[int]]],
    loss_function: nn.Module,
    work: Work,
    device: torch.device,
) -> tuple[dict[str, Tensor], float]:
    """Return the state after local training, and the mean loss of the last epoch."""
    size = work.size
    model.load_state_dict(start, strict=False)  # the counters of batch norm stay as they are
    model.train()
    received = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(
        model.parameters(), lr=size.learning_rate, momentum=size.momentum, weight_decay=size.weight_decay
    )
    running = 0.0
    for epoch in range(size.epochs):
        running = 0.0
        for inputs, targets in DataLoader(data, batch_sampler=batches[epoch]):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            running += loss.item() * len(targets)
            distance = sum(((now - then) ** 2).sum() for now, then in zip(model.parameters(), received, strict=True))
            (loss + size.proximal_weight / 2 * distance).backward()
            optimizer.step()
    return {name: part.detach().cpu().clone() for name, part in model.state_dict().items()}, running / size.samples


def batches_of(order: npt.NDArray[np.int32], batch_size: int) -> list[list[list[int]]]:
    """Return the batches of each epoch as lists of positions in the client's samples."""
    return [
        [epoch[first : first + batch_size].tolist() for first in range(0, len(epoch), batch_size)] for epoch in order
    ]


class TorchLoop:
    def __init__(self, work: Work, options: dict[str, Any]) -> None:
        self._work = work
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self._model = module_of(work).to(self._device)
        self._loss = loss_of(work)
        self._start = to_state(work.size.task, work.layout, work.array("start"))
        self._inputs, self._targets = tensors_of(work)
        self._rows = torch.from_numpy(work.array("rows").astype(np.int64))
        self._orders = work.array("orders")
        self._prepared: dict[int, tuple[TensorDataset, list[list[list[int]]]]] = {}

    def train(self, clients: int) -> None:
        for client in range(clients):
            self.train_one(client, self._start)

    def train_one(self, client: int, start: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        data, batches = self._data(client)
        return train_client(self._model, start, data, batches, self._loss, self._work, self._device)

    def _data(self, client: int) -> tuple[TensorDataset, list[list[list[int]]]]:
        """Return the client's data and batches, which are the same in every update."""
        if client not in self._prepared:
            rows = self._rows[client]
            data = TensorDataset(self._inputs[rows], self._targets[rows])
            self._prepared[client] = data, batches_of(self._orders[client], self._work.size.batch_size)
        return self._prepared[client]

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        # The reference for the other engines: in full precision, whatever the default of the GPU is.
        torch.backends.cudnn.allow_tf32, before = False, torch.backends.cudnn.allow_tf32
        try:
            return self._ends(clients)
        finally:
            torch.backends.cudnn.allow_tf32 = before

    def _ends(self, clients: int) -> npt.NDArray[np.float32]:
        return np.stack(
            [
                from_state(self._work.size.task, self._work.layout, self.train_one(client, self._start)[0])
                for client in range(clients)
            ]
        )

    def device_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def close(self) -> None:
        self._prepared.clear()
