"""A stage with real nodes, on which a test delivers each message when it chooses.

One cloud, two gateways, three devices, a model of two numbers. Nothing happens by itself: every `Send` waits in `post`
until the test delivers it, every timer until the test fires it, every training until the test gives its result.
Unless a test says otherwise: s(x) = 1 / (x + 1), alpha 0.6, beta 0.8, Z 2, no warm-up; links d0-{g0, g1}, d1-{g0, g1},
d2-{g1}, each 100 s a round; a model of 1000 bytes, so R = 10 bytes/s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.model_codec import PLAIN_MODELS, ModelCodec
from async_hfl.core.identifiers import CLOUD, Address, device_address, gateway_address
from async_hfl.core.learner import Evaluation, TrainingResult
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.maths.targets import Target
from async_hfl.core.policies import Association, SelectionPolicy
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import (
    Effect,
    Evaluate,
    Send,
    SetTimer,
    Solve,
    StartTraining,
    Stop,
    StopTraining,
    Write,
)
from async_hfl.core.protocol.events import (
    Evaluated,
    Event,
    PeerLost,
    Received,
    Returned,
    Solved,
    Started,
    TimerFired,
    Trained,
)
from async_hfl.core.protocol.records import JobRecord, Record, UploadRecord
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import Weights, frozen
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation
from async_hfl.nodes.gateway.node import GatewayNode

Message = TypeVar("Message")
R = TypeVar("R", bound=Record)
LINKS = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))
ROUND_S = 100.0

GATEWAY_CONFIG = GatewayConfig(
    number=0,
    model_bytes=1000,
    bandwidth=1000.0,
    seed=7,
    epochs=2,
    mixing_weight=0.8,
    staleness=StalenessDiscount("polynomial", 1.0),
    gradient_size=2,
    learning_rate=0.1,
)
CLOUD_RULES = CloudConfig(
    gateways=2,
    epochs=100,
    epochs_after_target=0,
    mixing_weight=0.6,
    staleness=StalenessDiscount("polynomial", 1.0),
    max_staleness=50,
    delivery="reply",
    evaluate_every=1,
    warmup=False,
    warmup_quorum=0.5,
    warmup_patience=0.0,
    warmup_limit=3600.0,
    association_period=1000,
    load_penalty=0.1,
    every_device=True,
    switching_cost=0.0,
    utility_scale="mean",
    max_latency_ratio=float("inf"),
    bandwidth=(1000.0, 1000.0),
    model_bytes=1000,
    gradient="none",
    gradient_size=2,
    target=Target("accuracy", 0.9),
    seed=11,
)


@dataclass(frozen=True, eq=False)
class Letter:
    sender: Address
    to: Address
    message: Any


def vector(*values: float) -> Weights:
    return frozen(np.array(values, np.float32))


def assert_close(actual: npt.NDArray[np.float32] | None, expected: Sequence[float]) -> None:
    """Equal to float32 precision."""
    assert actual is not None
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, np.array(expected), rtol=1e-6, atol=2e-7)


def address(name: str) -> Address:
    if name == "cloud":
        return CLOUD
    return (gateway_address if name[0] == "g" else device_address)(int(name[1:]))


class Stage:
    def __init__(
        self,
        *,
        gateway: dict[str, Any] | None = None,
        cloud: dict[str, Any] | None = None,
        aggregation: Callable[[], GatewayAggregation] = MixOnArrival,
        averages: bool = False,
        selection: Callable[[], SelectionPolicy] = UtilityKnapsack,
        latency: Sequence[float] = (ROUND_S,) * len(LINKS),
        weights: Weights | None = None,
        codec: ModelCodec = PLAIN_MODELS,
    ) -> None:
        device, number = np.array(LINKS).T
        links = feasible_links(3, 2, device, number, np.array(latency))
        cloud_rules = replace(CLOUD_RULES, codec=codec, **(cloud or {}))
        gateway_config = replace(GATEWAY_CONFIG, codec=codec, **(gateway or {}))
        start = vector(0.0, 0.0) if weights is None else weights
        at_cloud = AverageUploads if averages else MixUploads

        def make() -> dict[str, Any]:
            return {
                "cloud": CloudNode(cloud_rules, links, np.full(3, 10), start, at_cloud(), revisits=True),
                **{
                    f"g{j}": GatewayNode(replace(gateway_config, number=j), selection(), aggregation())
                    for j in range(2)
                },
                **{f"d{i}": DeviceNode(codec=codec) for i in range(3)},
            }

        self.make = make
        """Makes the same nodes again, in their initial state."""
        self.nodes = make()
        self.log: list[tuple[str, Event, list[Effect]]] = []
        """Every event that a node has handled, with its effects."""
        self.at = 0.0
        self.post: list[Letter] = []
        self.sent: list[Any] = []
        """Every message that was ever sent."""
        self.records: list[Record] = []
        self.timers: dict[tuple[str, str], float] = {}
        self.solves: list[Solve] = []
        self.evaluations: list[Evaluate] = []
        self.training: dict[str, StartTraining] = {}
        self.stopped: dict[str, str] = {}

    @property
    def cloud(self) -> CloudNode:
        node = self.nodes["cloud"]
        assert isinstance(node, CloudNode)
        return node

    @property
    def gateways(self) -> list[GatewayNode]:
        return [self.nodes["g0"], self.nodes["g1"]]

    # Events ------------------------------------------------------------------------------------------------------

    def happens(self, name: str, event: Event) -> list[Effect]:
        """Let a node handle an event, and keep its effects for the test to act on. No other method does that."""
        assert event.at >= self.at, "the test goes back in time"
        self.at = event.at
        effects = self.nodes[name].handle(event)
        self.log.append((name, event, effects))
        for effect in effects:
            self._perform(name, effect)
        return effects

    def _perform(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.post.append(Letter(address(name), effect.to, effect.message))
            self.sent.append(effect.message)
        elif isinstance(effect, Write):
            self.records.append(effect.record)
        elif isinstance(effect, SetTimer):
            self.timers[name, effect.key] = effect.at
        elif isinstance(effect, Solve):
            self.solves.append(effect)
        elif isinstance(effect, Evaluate):
            self.evaluations.append(effect)
        elif isinstance(effect, StartTraining):
            self.training[name] = effect
        elif isinstance(effect, StopTraining):
            assert self.training.pop(name).job == effect.job
        else:
            assert isinstance(effect, Stop)
            self.stopped[name] = effect.reason

    def deliver(self, to: str, kind: type[Message], at: float, *, keep: bool = False, newest: bool = False) -> Message:
        """Deliver the oldest message of that kind (or the newest). `keep`: leave a copy, to be delivered again."""
        waiting = [letter for letter in self.post if letter.to == address(to) and type(letter.message) is kind]
        assert waiting, f"no {kind.__name__} to {to} in the post"
        letter = waiting[-1 if newest else 0]
        if not keep:
            self.post.remove(letter)
        self.happens(to, Received(at, letter.sender, letter.message, 0.0))
        return letter.message

    def waiting(self, to: str, kind: type[Message]) -> list[Message]:
        return [letter.message for letter in self.post if letter.to == address(to) and type(letter.message) is kind]

    def lose(self, to: str, kind: type) -> None:
        """Drop the messages of this kind that wait for this node."""
        self.post = [letter for letter in self.post if letter.to != address(to) or type(letter.message) is not kind]

    def fire(self, name: str, key: str) -> None:
        """Fire a timer at the time that it is set to."""
        at = self.timers.pop((name, key))
        self.happens(name, TimerFired(at, key))

    def solved(self, *gateway_of: int, at: float) -> None:
        solve = self.solves.pop(0)
        self.happens("cloud", Solved(at, solve.number, Association(np.array(gateway_of), 1.0, 2.0)))

    def evaluated(self, metric: float, at: float) -> None:
        evaluate = self.evaluations.pop(0)
        self.happens("cloud", Evaluated(at, evaluate.epoch, Evaluation(metric, 1.0 - metric)))

    def peer_lost(self, who: str, peer: str, at: float) -> None:
        self.happens(who, PeerLost(at, address(peer)))

    def returned(self, who: str, at: float) -> None:
        self.happens(who, Returned(at))

    # Sequences of events -----------------------------------------------------------------------------------------

    def begin(self, *gateway_of: int, at: float = 0.0) -> None:
        """Solve the association and deliver it to both gateways, with the first global model."""
        self.happens("cloud", Started(at))
        self.solved(*gateway_of, at=at)
        for name in ("g0", "g1"):
            if self.waiting(name, m.Assignment):
                self.deliver(name, m.Assignment, at)
            self.deliver(name, m.GlobalModel, at)

    def trains(self, device: str, result: Sequence[float], at: float, **facts: Any) -> None:
        """Deliver a job to the device and finish it: its update waits in the post."""
        if device not in self.training:
            self.deliver(device, m.Train, at)
        job = self.training.pop(device).job
        defaults: dict[str, Any] = {"samples": 10, "steps": 5, "loss": 0.5, "squared_loss": 0.25}
        self.happens(device, Trained(at, job, TrainingResult(vector(*result), **{**defaults, **facts})))

    def returns(self, device: str, result: Sequence[float], at: float, **facts: Any) -> None:
        """Let the device train, and deliver its update to the gateway that sent the job."""
        self.trains(device, result, at, **facts)
        letter = next(x for x in self.post if x.sender == address(device) and type(x.message) is m.Update)
        self.post.remove(letter)
        self.happens(str(letter.to), Received(at, letter.sender, letter.message, 0.0))

    def exchanges(self, gateway: str, at: float) -> None:
        """Deliver the gateway's upload to the cloud, and the answer to the gateway."""
        self.deliver("cloud", m.Upload, at)
        self.deliver(gateway, m.Answer, at)

    # Observations ----------------------------------------------------------------------------------------------

    def model(self, gateway: str) -> Weights | None:
        return self.gateways[address(gateway).number].state.weights

    def in_flight(self, gateway: str) -> dict[int, int]:
        """Return the device of each job in flight, by job number."""
        state = self.gateways[address(gateway).number].state
        return {
            number: int(state.device_table.devices[in_flight.slot])
            for number, in_flight in state.in_flight_jobs.items()
        }

    def jobs(self) -> list[JobRecord]:
        return self.of(JobRecord)

    def uploads(self) -> list[UploadRecord]:
        return self.of(UploadRecord)

    def of(self, kind: type[R]) -> list[R]:
        return [record for record in self.records if isinstance(record, kind)]
