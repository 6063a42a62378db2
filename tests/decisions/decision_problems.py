"""Random problems with all kinds of edge cases, shared by the tests of the decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.policies import AssociationProblem, Peers, SelectionProblem


def selection_problem(
    rate: Floats,
    capacity: float,
    *,
    utility: Floats | None = None,
    latency: Floats | None = None,
    kappa: float = 1.0,
    seed: int = 7,
    gateway: int = 3,
) -> SelectionProblem:
    """Device numbers are 10, 12, 14, ..., which detects a policy that answers with positions."""
    count = len(rate)
    return SelectionProblem(
        gateway=gateway,
        candidates=10 + 2 * np.arange(count),
        learning_utility=np.ones(count) if utility is None else utility,
        round_latency=np.full(count, 30.0) if latency is None else latency,
        data_rate=rate,
        loss=np.full(count, np.nan),
        squared_loss=np.full(count, np.nan),
        samples=np.full(count, 100),
        idle_since=np.zeros(count),
        last_selected=np.full(count, -1),
        capacity=capacity,
        latency_exponent=kappa,
        gateway_epoch=4,
        at=120.0,
        seed=seed,
    )


def random_selection_problem(rng: np.random.Generator) -> SelectionProblem:
    """None to many candidates, capacity from zero to more than enough, and sometimes equal rates."""
    count = int(rng.integers(0, 40))
    latency = rng.lognormal(4.0, 0.8, count) if rng.random() < 0.7 else rng.choice([20.0, 40.0, 80.0], count)
    rate = 1e5 / latency
    capacity = float(rate.sum() * rng.choice([0.0, 0.02, 0.1, 0.5, 1.0, 1.5])) if rng.random() < 0.9 else -1.0
    utility = rng.uniform(0.1, 1.0, count) if rng.random() < 0.7 else np.ones(count)
    kappa = float(rng.choice([0.0, 0.5, 1.0, 2.0]))
    seed = int(rng.integers(0, 2**63))
    problem = selection_problem(rate, capacity, utility=utility, latency=latency, kappa=kappa, seed=seed)
    return with_knowledge(rng, problem)


def with_knowledge(rng: np.random.Generator, problem: SelectionProblem) -> SelectionProblem:
    """Reports of the devices: none, some or all of them; sometimes there are busy peers."""
    count, heard = len(problem.candidates), float(rng.choice([0.0, 0.6, 1.0]))
    known = rng.random(count) < heard
    loss = np.where(known, rng.exponential(1.0, count).round(int(rng.integers(0, 3))), np.nan)
    epoch = int(rng.integers(0, 60))
    peers = None
    if rng.random() < 0.5:
        busy = int(rng.integers(0, 10))
        peers = Peers(
            rng.lognormal(4.0, 0.8, busy), rng.exponential(1.0, busy), rng.normal(size=(busy // 2, 5)).astype("f4")
        )
    return replace(
        problem,
        loss=loss,
        squared_loss=loss**2 * 1.2,
        samples=rng.integers(1, 500, count),
        idle_since=rng.uniform(0.0, 120.0, count).round(-1),
        gateway_epoch=epoch,
        last_seen=np.where(known, rng.integers(1, epoch + 2, count), -1),
        gradients=rng.normal(size=(count, 5)).astype(np.float32),
        gradient_known=known,
        peers=peers,
    )


def association_problem(
    utility: list[float] | Floats,
    bandwidth: list[float] | Floats,
    links: list[tuple[int, int]],
    rate: list[float] | Floats,
    *,
    phi: float = 0.1,
    every_device: bool = True,
    switching_cost: float = 0.0,
    current: list[int] | None = None,
    latency: list[float] | Floats | None = None,
    seed: int = 5,
) -> AssociationProblem:
    pairs = np.array(links, np.int64).reshape(-1, 2)
    return AssociationProblem(
        learning_utility=np.array(utility, np.float64),
        bandwidth=np.array(bandwidth, np.float64),
        link_device=pairs[:, 0].copy(),
        link_gateway=pairs[:, 1].copy(),
        link_data_rate=np.array(rate, np.float64),
        link_round_latency=np.ones(len(pairs)) if latency is None else np.array(latency, np.float64),
        load_penalty=phi,
        every_device=every_device,
        switching_cost=switching_cost,
        current=np.full(len(utility), -1) if current is None else np.array(current, np.int64),
        seed=seed,
    )


def random_association_problem(
    rng: np.random.Generator, devices: int, gateways: int, *, every_device: bool, switching_cost: float = 0.0
) -> AssociationProblem:
    """Sparse links: some devices have none, some gateways are unreachable; utilities may be negative or equal."""
    has_link = rng.random((devices, gateways)) < rng.choice([0.4, 0.7, 1.0])
    links = [(int(i), int(j)) for i, j in np.argwhere(has_link)]
    kind = rng.integers(0, 3)
    utility = (
        rng.lognormal(0.0, 0.7, devices),
        rng.normal(0.5, 1.0, devices),
        rng.integers(-1, 4, devices).astype(np.float64),
    )[kind]
    return association_problem(
        utility,
        rng.uniform(0.5, 2.0, gateways),
        links,
        rng.uniform(0.1, 1.0, len(links)),
        phi=float(rng.choice([0.0, 0.1, 2.0])),
        every_device=every_device,
        switching_cost=switching_cost,
        current=rng.integers(-1, gateways, devices).tolist(),
        latency=rng.lognormal(4.0, 0.7, len(links)),
        seed=int(rng.integers(0, 2**63)),
    )
