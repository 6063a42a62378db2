"""Flower's simulation (https://flower.ai): Ray actors with one core each, which run the plain PyTorch loop as a client.

A call is one round without aggregation: a message with the global model to every client, and an answer with its model.
The main function of the server serves the benchmark, since Flower's runtime controls the process.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import flwr
import numpy as np
import numpy.typing as npt
import ray
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from engine_peers.protocol import Channel, serve
from engine_peers.torch_loop import TorchLoop
from engine_peers.torch_models import from_state, to_state
from engine_peers.work import Work, load_work

_PATIENCE_S = 600.0

client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    asked = message.content["asked"]
    loop = _loop(asked["folder"])
    state, _ = loop.train_one(asked["client"], message.content["model"].to_torch_state_dict())
    return Message(RecordDict({"model": ArrayRecord(state)}), reply_to=message)


@lru_cache(maxsize=1)
def _loop(folder: str) -> TorchLoop:
    return TorchLoop(load_work(folder), {})


def run(channel: Channel, options: dict[str, Any]) -> None:
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(channel, lambda work, _: Flower(work, grid), flower=flwr.__version__, ray=ray.__version__)

    # One core per actor; all actors share the GPU.
    gpus = 1.0 / options["cores"] if torch.cuda.is_available() else 0.0
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=options["clients"],
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": gpus}},
    )


class Flower:
    def __init__(self, work: Work, grid: Grid) -> None:
        self._work, self._grid = work, grid
        self._model = ArrayRecord(to_state(work.size.task, work.layout, work.array("start")))
        while len(self._nodes()) < work.size.clients:  # clients start after the server
            time.sleep(0.1)

    def _nodes(self) -> list[int]:
        return sorted(self._grid.get_node_ids())

    def train(self, clients: int) -> None:
        self._round(clients)

    def weights(self, clients: int) -> npt.NDArray[np.float32]:
        size, layout = self._work.size, self._work.layout
        return np.stack([from_state(size.task, layout, model.to_torch_state_dict()) for model in self._round(clients)])

    def _round(self, clients: int) -> list[ArrayRecord]:
        nodes = self._nodes()[:clients]
        messages = [
            Message(
                RecordDict(
                    {"model": self._model, "asked": ConfigRecord({"client": client, "folder": str(self._work.folder)})}
                ),
                dst_node_id=node,
                message_type="train",
            )
            for client, node in enumerate(nodes)
        ]
        answers = {}
        for answer in self._grid.send_and_receive(messages, timeout=_PATIENCE_S):
            if answer.has_error():
                raise RuntimeError(answer.error.reason)
            answers[answer.metadata.src_node_id] = answer.content["model"]
        return [answers[node] for node in nodes]

    def device_bytes(self) -> int | None:
        """Return 0 on a GPU: the memory of the actors is not known here."""
        return 0 if torch.cuda.is_available() else None

    def close(self) -> None:
        pass
