"""A simulation rounds models and counts their bytes as a deployment with the same settings would."""

from __future__ import annotations

from typing import Any

import numpy as np
from async_hfl.encoding.rounding import to_half

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.environment import NetworkSection, OutagesSection, TransferSection
from async_hfl.assembly.settings.schema import Settings, TaskSection
from async_hfl.simulation.simulator import Simulator

SIZE = 1000


class Sizes:
    """A journal that keeps the model bytes of all messages sent."""

    def __init__(self) -> None:
        self.models: set[int] = set()

    def write(self, record: Any) -> None: ...

    def write_sent(self, *fields: Any) -> None:
        self.models.add(fields[6])

    def note_epoch(self, record: Any, spent: Any, updates: int) -> None: ...


def simulated(
    transfer: TransferSection, outages: OutagesSection | None = None
) -> tuple[Sizes, list[np.ndarray[Any, Any]], Any]:
    """Return the sizes of all messages, and the models in transit in the middle of the run."""
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
    seen = [0]

    def enough() -> bool:
        seen[0] += 1
        return seen[0] > 400

    simulator.run(enough)
    in_transit = [getattr(what, "message", None) for *_, what in simulator.queue.heap]
    if simulator.transfers is not None:
        in_transit += [transfer.message for transfer in simulator.transfers._in_progress.values()]
    found = [message.weights for message in in_transit if hasattr(message, "weights")]
    return journal, found, built.world


def test_models_are_sent_rounded_and_count_half() -> None:
    journal, models, world = simulated(TransferSection(encoding="float16"))
    assert world.model_bytes == 2 * SIZE
    assert journal.models == {0, 2 * SIZE}
    assert models
    assert all(np.array_equal(to_half(model).astype(np.float32), model) for model in models)
    plain, exact, _ = simulated(TransferSection())
    assert plain.models == {0, 4 * SIZE}
    assert any(not np.array_equal(to_half(model).astype(np.float32), model) for model in exact)


def test_models_are_sent_rounded_under_outages_too() -> None:
    journal, models, _ = simulated(TransferSection(encoding="float16"), OutagesSection(transfer_loss=0.01))
    assert max(journal.models) == 2 * SIZE
    assert models
    assert all(np.array_equal(to_half(model).astype(np.float32), model) for model in models)


def test_compressed_models_count_the_size_of_the_first_one() -> None:
    journal, _, world = simulated(TransferSection(zstd=True))
    assert world.model_bytes < 4 * SIZE
    assert journal.models == {0, world.model_bytes}
