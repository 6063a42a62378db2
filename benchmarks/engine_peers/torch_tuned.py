"""PyTorch tuned for speed, with one client at a time.

Parameters and gradients are views of two flat vectors, so an update takes a few calls whatever the model. Momentum,
weight decay and the proximal term are part of the update, not of the loss. Samples are in memory and are indexed.

On a CPU: one single-threaded process per core. On a GPU: one process with all data on the device, tf32 as the fastest
form of the library's engine, a CUDA graph for each batch size, and no synchronisation until all clients are done.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_peers.protocol import Channel, serve
from engine_peers.torch_models import from_state, loss_of, module_of, tensors_of, to_state
from engine_peers.work import Work, load_work


def run(channel: Channel, options: dict[str, Any]) -> None:
    if torch.cuda.is_available():
        # The same precision as the library's engine on a GPU.
        torch.set_float32_matmul_precision("high")
        serve(channel, lambda work, options: OneProcess(work, torch.device("cuda")), torch=torch.__version__)
        return
    processes = Processes(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        serve(channel, processes.make, torch=torch.__version__, processes=processes.number)
    finally:
        processes.end()


class FlatTrainer:
    """Trains one client at a time, on one device."""

    def __init__(self, work: Work, device: torch.device) -> None:
        size = work.size
        self._work, self._device = work, device
        self._module = module_of(work).to(device).train()
        self._loss = loss_of(work)
        start = to_state(size.task, work.layout, work.array("start"))
        parameters = dict(self._module.named_parameters())
        self._buffers = {name: part for name, part in self._module.named_buffers() if name in start}
        self._first_buffers = {name: start[name].to(device) for name in self._buffers}
        self._origin = torch.cat([start[name].reshape(-1) for name in parameters]).to(device)
        self._flat = self._origin.clone()
        self._gradient, self._velocity, self._away = (torch.zeros_like(self._flat) for _ in range(3))
        first = 0
        for parameter in parameters.values():
            last = first + parameter.numel()
            parameter.data = self._flat[first:last].view(parameter.shape)
            parameter.grad = self._gradient[first:last].view(parameter.shape)
            first = last
        inputs, targets = tensors_of(work)
        self._inputs, self._targets = inputs.to(device), targets.to(device)
        rows = work.array("rows").astype(np.int64)
        # (clients, epochs, samples): rows of the whole set, in the order in which they are visited.
        orders = np.stack([own[order] for own, order in zip(rows, work.array("orders"), strict=True)])
        self._orders = torch.from_numpy(orders).to(device)
        self.width = self._flat.numel() + sum(part.numel() for part in self._buffers.values())
        self._graphs: dict[int, tuple[Any, Tensor]] = {}

    def train(self, client: int, result: Tensor) -> None:
        self._flat.copy_(self._origin)
        self._velocity.zero_()
        for name, part in self._buffers.items():
            part.copy_(self._first_buffers[name])
        for order in self._orders[client]:
            for rows in order.split(self._work.size.batch_size):
                self._step(rows)
        torch.cat([self._flat, *(part.reshape(-1) for part in self._buffers.values())], out=result)

    def state(self, result: Tensor) -> dict[str, Tensor]:
        """Return the result of `train` by name."""
        found, first = {}, 0
        for name, part in [*self._module.named_parameters(), *self._buffers.items()]:
            found[name] = result[first : first + part.numel()].view(part.shape)
            first += part.numel()
        return found

    def _step(self, rows: Tensor) -> None:
        if self._device.type == "cpu":
            self._eager_step(rows)
            return
        graph, place = self._graphs.get(len(rows)) or self._captured(len(rows))
        place.copy_(rows)
        graph.replay()

    def _eager_step(self, rows: Tensor) -> None:
        size = self._work.size
        self._gradient.zero_()
        self._loss(self._module(self._inputs[rows]), self._targets[rows]).backward()
        with torch.no_grad():
            self._velocity.mul_(size.momentum).add_(self._gradient)
            if size.weight_decay:
                self._velocity.add_(self._flat, alpha=size.weight_decay)
            torch.sub(self._flat, self._origin, out=self._away)
            self._velocity.add_(self._away, alpha=size.proximal_weight)
            self._flat.add_(self._velocity, alpha=-size.learning_rate)

    def _captured(self, rows: int) -> tuple[Any, Tensor]:
        """Capture a graph of one step. Capturing runs steps, so the state is restored afterwards."""
        touched = [self._flat, self._velocity, *self._buffers.values()]
        saved = [part.clone() for part in touched]
        place = torch.zeros(rows, dtype=torch.int64, device=self._device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._eager_step(place)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._eager_step(place)
        for part, before in zip(touched, saved, strict=True):
            part.copy_(before)
        self._graphs[rows] = graph, place
        return self._graphs[rows]


class OneProcess:
    """The engine on an accelerator."""

    def __init__(self, work: Work, device: torch.device) -> None:
        torch.cuda.reset_peak_memory_stats()
        self._work = work
        self._trainer = FlatTrainer(work, device)
        self._results = torch.empty((work.size.clients, self._trainer.width), device=device)

    def train(self, clients: int) -> None:
        for client in range(clients):
            self._trainer.train(client, self._results[client])
        self._results[:clients].cpu()

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        self.train(clients)
        size, layout = self._work.size, self._work.layout
        return np.stack(
            [from_state(size.task, layout, self._trainer.state(row)) for row in self._results[:clients].cpu()]
        )

    def device_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated()

    def close(self) -> None:
        del self._trainer, self._results
        torch.cuda.empty_cache()


class Processes:
    """The processes of the engine on a CPU. They serve several workloads, so that libraries are imported once."""

    def __init__(self, number: int) -> None:
        self.number = number
        spawn = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(number):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_child, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)
        self._all([()] * number)

    def make(self, work: Work, options: dict[str, Any]) -> _Together:
        widths = self._all([("load", str(work.folder))] * self.number)
        # Results are written to a memory-mapped file that all processes share: nothing is copied through a pipe.
        np.lib.format.open_memmap(
            _results_path(work.folder), mode="w+", dtype=np.float32, shape=(work.size.clients, widths[0])
        ).flush()
        return _Together(work, self)

    def train(self, clients: int) -> None:
        self._all([("train", list(range(first, clients, self.number))) for first in range(self.number)])

    def forget(self) -> None:
        self._all([("forget",)] * self.number)

    def end(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)

    def _all(self, requests: list[tuple[Any, ...]]) -> list[Any]:
        for end, request in zip(self._ends, requests, strict=True):
            end.send(request)
        return [end.recv() for end in self._ends]


class _Together:
    def __init__(self, work: Work, processes: Processes) -> None:
        self._work, self._processes = work, processes

    def train(self, clients: int) -> None:
        self._processes.train(clients)

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        self.train(clients)
        size, layout = self._work.size, self._work.layout
        trainer = FlatTrainer(self._work, torch.device("cpu"))
        found = torch.from_numpy(np.load(_results_path(self._work.folder)))
        return np.stack([from_state(size.task, layout, trainer.state(row)) for row in found[:clients]])

    def device_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._processes.forget()


def _results_path(folder: Path) -> Path:
    return folder / "results-of-tuned.npy"


def _child(theirs: Connection) -> None:
    torch.set_num_threads(1)
    trainer: FlatTrainer | None = None
    results: Tensor | None = None
    work: Work | None = None
    while True:
        try:
            request = theirs.recv()
        except EOFError:
            return
        match request:
            case ("load", folder):
                work, results = load_work(folder), None
                trainer = FlatTrainer(work, torch.device("cpu"))
                theirs.send(trainer.width)
            case ("train", clients):
                assert work is not None
                assert trainer is not None
                if results is None:
                    results = torch.from_numpy(np.lib.format.open_memmap(_results_path(work.folder), mode="r+"))
                for client in clients:
                    trainer.train(client, results[client])
                theirs.send(None)
            case ("forget",):
                trainer = results = work = None
                theirs.send(None)
            case _:
                theirs.send(None)
