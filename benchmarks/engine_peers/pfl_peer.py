"""pfl (https://github.com/apple/pfl-research): its simulated backend and its FedProx, one process, default threads.

A call is one central iteration without evaluation: all clients of the cohort are trained, and the differences summed.
Samples are tensors on the device. Only the data set, which returns batches in the order of the workload, is not pfl's.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pfl
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from engine_peers.protocol import Channel, serve
from engine_peers.torch_models import from_state, loss_of, module_of, tensors_of, to_state
from engine_peers.work import Work


def run(channel: Channel, options: dict[str, Any]) -> None:
    serve(channel, Pfl, pfl=getattr(pfl, "__version__", ""), torch=torch.__version__)


class InOrder(PyTorchTensorDataset):
    """A data set of which each pass returns the batches of the next epoch."""

    def __init__(self, inputs: Tensor, targets: Tensor, orders: Tensor) -> None:
        super().__init__((inputs, targets))
        self._epochs = iter(orders)

    def iter(self, batch_size: int | None) -> Iterator[list[Tensor]]:
        inputs, targets = self.raw_data
        for rows in next(self._epochs).split(batch_size):
            yield [inputs[rows], targets[rows]]


class Pfl:
    def __init__(self, work: Work, options: dict[str, Any]) -> None:
        size = work.size
        self._work = work
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        loss = loss_of(work)
        module = module_of(work)
        module.train()
        module.loss = lambda inputs, targets: loss(module(inputs), targets)
        module.metrics = lambda inputs, targets: {}  # required, but never called: nothing is evaluated here
        self._start = to_state(size.task, work.layout, work.array("start"))
        module.load_state_dict(self._start, strict=False)
        module.to(device)
        optimizer = partial(torch.optim.SGD, momentum=size.momentum, weight_decay=size.weight_decay)
        self._module = module
        self._model = PyTorchModel(module, optimizer, torch.optim.SGD(module.parameters(), lr=1.0))
        self._params = NNTrainHyperParams(
            local_batch_size=size.batch_size, local_num_epochs=size.epochs, local_learning_rate=size.learning_rate
        )
        inputs, targets = tensors_of(work)
        rows = torch.from_numpy(work.array("rows").astype(np.int64))
        orders = torch.from_numpy(work.array("orders").astype(np.int64)).to(device)
        self._held = [(inputs[own].to(device), targets[own].to(device), orders[n]) for n, own in enumerate(rows)]
        self._second = tempfile.TemporaryDirectory(prefix="pfl-")
        # pfl evaluates in iteration 0, so every call is iteration 1.
        (Path(self._second.name) / "algorithm_checkpoint.json").write_text(json.dumps({"current_central_iteration": 1}))

    def train(self, clients: int) -> None:
        self._iterate(list(range(clients)))

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        """Train cohorts of one client: their mean is that client's result."""
        found = []
        for client in range(clients):
            self._iterate([client])
            found.append(from_state(self._work.size.task, self._work.layout, self._module.state_dict()))
        return np.stack(found)

    def _iterate(self, clients: list[int]) -> None:
        self._module.load_state_dict(self._start, strict=False)
        users = cycle(clients)
        federated = FederatedDataset(lambda client: InOrder(*self._held[client]), lambda: next(users))
        algorithm = FedProx()
        algorithm.load(self._second.name)
        algorithm.run(
            FedProxParams(
                central_num_iterations=2,
                evaluation_frequency=1000,
                train_cohort_size=len(clients),
                val_cohort_size=0,
                mu=self._work.size.proximal_weight,
            ),
            SimulatedBackend(federated, federated),
            self._model,
            self._params,
            send_metrics_to_platform=False,
        )
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def device_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None

    def close(self) -> None:
        self._second.cleanup()
