"""A network like the paper's physical deployment, for Fig. 8 and Fig. 9 without one.

What is known of it: 20 clients on ten Raspberry Pis in seven houses, whose home Wi-Fi differs; 20 on a computing
cluster with 1, 2 or 4 cores each, whose network is good; gateways and cloud on one desktop; 120 s a round on average.
The delays in testbed.csv are made up to that description. A conclusion from them is about it, not about the houses.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

DEVICES = 40
OWNERS = {"har": 30, "hpwren": 26}
"""Tasks with fewer owners of data than there are clients: they take the first so many, half of each kind."""
NOTE = "Simulated on delays that are made up after the paper's description of its deployment; not its houses."


def path() -> Path:
    return Path(str(resources.files("async_hfl.experiments.paper") / "testbed.csv"))


def settings(task: str) -> list[str]:
    return [
        f'network.path="{path()}"',
        f"task.devices={OWNERS.get(task, DEVICES)}",
        "network.link_noise=0.4",
        "network.compute_noise=0.15",
    ]


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    compute_s: float
    link_s: float
    """A model's way to a gateway, over the mean of both."""


def clients() -> list[Client]:
    rows = [line.split(",") for line in path().read_text().splitlines()[2:]]
    return [Client(name, float(compute), (float(a) + float(b)) / 2) for name, compute, a, b in rows]


def names() -> list[str]:
    return [client.name for client in clients()]


def classes(devices: int, time_factor: float, compute_s: float, model_bytes: int) -> list[str]:
    """The clients on a machine that trains in `compute_s`, everything so many times as fast: as `cluster --class` takes
    them. Nobody can be faster than the machine."""
    return [
        f"1:{max(1.0, client.compute_s / time_factor / compute_s):.4g}:{model_bytes * time_factor / client.link_s:.6g}"
        for client in clients()[:devices]
    ]


def on_a_pi(name: str) -> bool:
    return name.startswith("pi")
