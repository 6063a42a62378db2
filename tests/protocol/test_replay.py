"""A node that is replayed, interrupted or recovered has the same effects and state as one that never stopped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Evaluate, Send, SetTimer, Solve, Write
from async_hfl.core.protocol.events import Evaluated, Solved, Started, TimerFired
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.faults.hosts import MemoryDisk
from async_hfl.nodes.config import Privacy, Robust
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.reliability.delivery import RESEND, ReliableNode, Transmit
from async_hfl.nodes.reliability.recovery import DurableNode

GRADIENTS: dict[str, Any] = {"gradient": "update"}


def comparable(value: Any) -> Any:
    """Return a value that can be compared: arrays as bytes, floats as digits (NaN included)."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    return value


def plainly(value: Any) -> Any:
    return comparable(to_plain(value))


def mixing_story() -> Stage:
    stage = Stage(gateway=GRADIENTS, cloud={**GRADIENTS, "association_period": 1, "epochs": 3})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d2", (1, 1), at=110)
    stage.returns("d1", (3, 1), at=120)
    stage.returns("d0", (2, 2), at=200)  # held
    stage.exchanges("g0", at=210)
    stage.solved(1, 0, 1, at=215)
    stage.deliver("g0", m.Assignment, at=220)
    stage.deliver("g1", m.Assignment, at=221)
    stage.evaluated(0.2, at=230)
    stage.returns("d0", (0, 0), at=240)  # finishes with g0, which releases it
    stage.deliver("cloud", m.LeaseReleased, at=250)
    stage.deliver("g1", m.LeaseGranted, at=260)
    stage.fire("g1", "patience")  # the first deadline, 500, belongs to a job that has ended
    stage.fire("g1", "patience")  # d2 times out, after five times the 110 s it took before
    stage.deliver("cloud", m.Report, at=670)
    stage.fire("g1", "probe")
    stage.deliver("d2", m.Train, at=730)
    stage.deliver("d2", m.Probe, at=731)
    stage.deliver("g1", m.Alive, at=740)
    stage.returned("d2", at=741)
    stage.deliver("g1", m.JobDropped, at=742)
    stage.exchanges("g0", at=743)
    stage.peer_lost("cloud", "g1", at=750)
    stage.peer_lost("g1", "cloud", at=751)
    stage.deliver("cloud", m.Hello, at=752)
    stage.deliver("g1", m.Fenced, at=753)
    stage.deliver("cloud", m.Hello, at=754)
    return stage


def relaying_story() -> Stage:
    stage = Stage(aggregation=Relay)
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d1", (0, 1), at=110)
    stage.exchanges("g0", at=120)
    stage.fire("g0", "reply")  # set for the first upload, which is answered
    stage.fire("g0", "reply")
    stage.deliver("cloud", m.Upload, at=300)
    stage.deliver("cloud", m.Upload, at=301)
    stage.deliver("g0", m.Answer, at=310)
    stage.fire("g0", "reply")  # nothing is outstanding: not set again
    return stage


def rounds_story() -> Stage:
    stage = Stage(aggregation=Rounds, averages=True, gateway=GRADIENTS, cloud={**GRADIENTS, "association_period": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d2", (1, 1), at=110)
    stage.fire("g0", "aggregation")  # d1 is late
    stage.returns("d0", (2, 2), at=310)
    stage.deliver("cloud", m.Upload, at=320)
    stage.deliver("g0", m.UploadHeld, at=330)
    stage.returns("d1", (9, 9), at=340)
    stage.returns("d2", (0, 1), at=350)
    stage.deliver("cloud", m.Upload, at=360)
    stage.deliver("g0", m.Answer, at=370)
    stage.solved(0, 1, 1, at=380)
    stage.deliver("g0", m.Assignment, at=390)
    stage.deliver("g1", m.Answer, at=400)
    stage.fire("g0", "patience")
    stage.peer_lost("cloud", "g1", at=600)
    return stage


def periods_story() -> Stage:
    stage = Stage(aggregation=Periods, averages=True, gateway={"period": 50.0})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=30)
    stage.fire("g0", "aggregation")
    stage.fire("g1", "aggregation")
    stage.fire("g0", "aggregation")
    stage.fire("g1", "aggregation")
    stage.deliver("cloud", m.Upload, at=110)
    stage.deliver("g0", m.UploadHeld, at=120)
    stage.returns("d1", (3, 3), at=130)  # held
    stage.returns("d2", (1, 1), at=140)
    stage.deliver("cloud", m.Upload, at=150)
    stage.deliver("g0", m.Answer, at=160)
    stage.fire("g0", "aggregation")
    return stage


def continuing_story() -> Stage:
    rules = {"period": 50.0, "epochs": 1, "during_upload": "continue", "refill": "immediate"}
    stage = Stage(aggregation=Periods, averages=True, gateway=rules, cloud={"momentum": 0.5})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=30)
    for gateway in ("g0", "g1"):
        stage.fire(gateway, "aggregation")
        stage.deliver("cloud", m.Upload, at=stage.at)
    stage.deliver("g1", m.Answer, at=60)
    stage.returns("d1", (3, 3), at=70)
    stage.fire("g0", "aggregation")  # put off
    stage.fire("g1", "aggregation")
    stage.deliver("g0", m.Answer, at=120)
    for _ in range(2):
        stage.deliver("cloud", m.Upload, at=130)
    stage.deliver("g1", m.Answer, at=140)
    stage.peer_lost("cloud", "g1", at=150)
    stage.deliver("g0", m.Answer, at=160)
    return stage


def defended_story(**gateway: Any) -> Stage:
    stage = Stage(gateway=gateway)
    stage.happens("g0", Started(0.0, 99))
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=30)
    stage.returns("d1", (3, 3), at=70)
    stage.exchanges("g0", at=80)
    stage.returns("d0", (1, 5), at=90)
    stage.returns("d1", (9, 1), at=95)
    stage.exchanges("g0", at=99)
    return stage


STORIES = {
    "mixing": mixing_story,
    "relaying": relaying_story,
    "rounds": rounds_story,
    "periods": periods_story,
    "continuing": continuing_story,
    "median": partial(defended_story, robust=Robust(rule="median", window=2)),
    "clip": partial(defended_story, robust=Robust(rule="clip")),
    "noise": partial(defended_story, privacy=Privacy(clip=0.5, noise=1.0, seed=4)),
}


@pytest.mark.parametrize("story", STORIES)
def test_the_same_events_have_the_same_effects_after_any_interruption(story: str) -> None:
    stage = STORIES[story]()
    nodes = stage.make()
    for name, event, effects in stage.log:
        # Restore from a snapshot before every event, and read the event as if from a log.
        data = nodes[name].snapshot()
        nodes[name] = stage.make()[name]
        nodes[name].restore(data)
        assert plainly(nodes[name].handle(from_plain(to_plain(event)))) == plainly(effects)
    for name, node in nodes.items():
        assert comparable(node.snapshot()) == comparable(stage.nodes[name].snapshot())


@pytest.mark.parametrize("checkpoint_every", [1, 4, 1000])
@pytest.mark.parametrize(
    ("story", "name"),
    [
        ("mixing", "cloud"),
        ("mixing", "g0"),
        ("mixing", "g1"),
        ("mixing", "d0"),
        ("relaying", "g0"),
        ("rounds", "cloud"),
        ("rounds", "g0"),
        ("periods", "cloud"),
        ("periods", "g0"),
        ("continuing", "cloud"),
        ("continuing", "g0"),
        ("median", "g0"),
        ("clip", "g0"),
        ("noise", "g0"),
    ],
)
def test_a_crash_loses_nothing_that_was_logged(story: str, name: str, checkpoint_every: int) -> None:
    """The machine dies after every event, before any of its effects is performed."""
    stage = STORIES[story]()
    disk = MemoryDisk()
    node = DurableNode(lambda: ReliableNode(stage.make()[name], run=5), disk)
    timers: dict[str, float] = {}
    requests: dict[Any, Solve | Evaluate] = {}
    own = [(event, effects) for who, event, effects in stage.log if who == name]
    for count, (event, effects) in enumerate(own, start=1):
        node.handle(event)
        disk.commit()
        before = comparable(node.node.snapshot())
        recovered = node.recover()
        # The state is restored, and the effects of the event are returned, perhaps again.
        assert comparable(node.node.snapshot()) == before
        assert plainly(every(recovered, Write)) == plainly(every(effects, Write))
        posted = [packet.content.message for packet in every(recovered, Transmit)]
        sent = [send.message for send in every(effects, Send)]
        assert plainly(posted[len(posted) - len(sent) :]) == plainly(sent)
        # Timers that have not fired and requests without an answer are restored.
        if isinstance(event, TimerFired):
            timers.pop(event.key)
        elif isinstance(event, Solved):
            requests.pop(("solve", event.number))
        elif isinstance(event, Evaluated):
            requests.pop(("evaluate", event.epoch))
        timers.update({timer.key: timer.at for timer in every(effects, SetTimer)})
        requests.update({("solve", ask.number): ask for ask in every(effects, Solve)})
        requests.update({("evaluate", ask.epoch): ask for ask in every(effects, Evaluate)})
        assert {timer.key: timer.at for timer in every(recovered, SetTimer) if timer.key != RESEND} == timers
        asked = [*every(recovered, Solve), *every(recovered, Evaluate)]
        assert sorted(map(str, plainly(asked))) == sorted(map(str, plainly(list(requests.values()))))
        node.written(len(every(recovered, Write)))
        disk.commit()
        if count % checkpoint_every == 0:
            node.checkpoint()
    # Nothing is left to write, and the state equals that of a node that never crashed.
    assert every(node.recover(), Write) == []
    assert comparable(node.node.node.snapshot()) == comparable(stage.nodes[name].snapshot())


def every(effects: Sequence[Any], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]
