"""A simulation sends encoded models, as a deployment with the same settings would, and counts their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.environment import NetworkSection, OutagesSection, TransferSection
from async_hfl.assembly.settings.learning import TaskSection
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.simulation.simulator import Simulator

SIZE = 1000


class Sizes:
    """A journal that keeps the model bytes of all messages sent."""

    def __init__(self) -> None:
        self.models: set[int] = set()
        self.by_message: dict[str, set[int]] = {}

    def write(self, record: Any) -> None: ...

    def write_sent(self, *fields: Any) -> None:
        self.models.add(fields[6])
        self.by_message.setdefault(fields[3], set()).add(fields[6])

    def note_epoch(self, record: Any, spent: Any) -> None: ...


def simulated(
    transfer: TransferSection, outages: OutagesSection | None = None
) -> tuple[Sizes, list[np.ndarray[Any, Any]], Any]:
    """Return the sizes of all messages, and the models that were in transit at some points of the run."""
    settings = Settings(
        task=TaskSection(name="null", devices=12, model_size=SIZE),
        network=NetworkSection(name="uniform", gateways=2),
        outages=outages or OutagesSection(),
        transfer=transfer,
    )
    built = build(settings, 1)
    journal = Sizes()
    simulator = Simulator(built.world, journal)
    simulator.start()
    found: list[np.ndarray[Any, Any]] = []
    events = 0

    def enough() -> bool:
        nonlocal events
        events += 1
        if events % 20 == 0:
            found.extend(in_transit(simulator))
        return events > 400

    simulator.run(enough)
    return journal, found, built.world


def in_transit(simulator: Simulator) -> list[np.ndarray[Any, Any]]:
    messages = [getattr(what, "message", None) for *_, what in simulator.queue.heap]
    if simulator.transfers is not None:
        messages += [transfer.message for transfer in simulator.transfers._in_progress.values()]
    return [message.weights for message in messages if hasattr(message, "weights")]


BYTES: dict[EncodingKind, int] = {
    "float32": 4 * SIZE,
    "float16": 8 + 2 * SIZE,
    "int8": 8 + 16 + SIZE,
    "int4": 8 + 16 + SIZE // 2,
}
"""Of a model of 1000 numbers, which has 16 blocks."""


@pytest.mark.parametrize("kind", BYTES)
def test_models_count_the_bytes_of_their_encoding(kind: EncodingKind) -> None:
    journal, models, world = simulated(TransferSection(encoding=kind))
    assert world.model_bytes == BYTES[kind]
    assert journal.models == {0, BYTES[kind]}
    assert models
    assert {(model.dtype.name, model.nbytes) for model in models} == {
        ("float32" if kind == "float32" else "uint8", BYTES[kind])
    }


def test_each_direction_has_its_own_encoding() -> None:
    journal, _, world = simulated(TransferSection(up="int4", down="float16"))
    assert journal.models == {0, BYTES["int4"], BYTES["float16"]}
    assert world.model_bytes == (BYTES["int4"] + BYTES["float16"]) // 2
    assert journal.by_message["Train"] == journal.by_message["GlobalModel"] == {BYTES["float16"]}
    assert journal.by_message["Update"] == journal.by_message["Upload"] == {BYTES["int4"]}
    assert journal.by_message["Answer"] == {BYTES["float16"]}


def test_models_are_sent_encoded_under_outages_too() -> None:
    journal, models, _ = simulated(TransferSection(encoding="int8"), OutagesSection(transfer_loss=0.01))
    assert max(journal.models) == BYTES["int8"]
    assert models
    assert {model.dtype.name for model in models} == {"uint8"}
