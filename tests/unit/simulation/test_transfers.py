"""Transfers that share the air or are cut off, with times worked out by hand."""

from __future__ import annotations

from heapq import heappop
from typing import Any

import numpy as np
import pytest

from async_hfl.core.identifiers import CLOUD, Address, JobId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.traffic import HEADER_BYTES
from async_hfl.core.weights import frozen
from async_hfl.network.description import SharedAir
from async_hfl.simulation.accounting.byte_counts import ByteCounts
from async_hfl.simulation.accounting.device_times import DeviceTimes
from async_hfl.simulation.event_queue import EventQueue
from async_hfl.simulation.transfers.transfers import AirDue, Transfers

MODEL = 10_000
G0, G1 = gateway_address(0), gateway_address(1)
D0, D1 = device_address(0), device_address(1)


class TenSeconds:
    """Delays of ten seconds for a model and one for a control message."""

    def to_device(self, gateway: int, device: int, size_bytes: int) -> float:
        return 10.0 if size_bytes > MODEL else 1.0

    def to_gateway(self, device: int, gateway: int, size_bytes: int) -> float:
        return self.to_device(gateway, device, size_bytes)

    def compute(self, device: int) -> float:
        raise AssertionError

    def gateway_to_cloud(self, gateway: int, size_bytes: int) -> float:
        return self.to_device(gateway, 0, size_bytes)

    def cloud_to_gateway(self, gateway: int, size_bytes: int) -> float:
        return self.to_device(gateway, 0, size_bytes)

    def snapshot(self) -> None:
        return None

    def restore(self, data: Any) -> None:
        pass


class Air:
    """Transfers of two gateways and two devices; keeps what was written to the journal."""

    def __init__(self, air: SharedAir | None, loss: float = 0.0, seed: int = 0) -> None:
        self.queue, self.byte_counts, self.times = EventQueue(), ByteCounts(2, 2), DeviceTimes(2)
        self.sent: list[tuple[Any, ...]] = []
        self.transfers = Transfers(
            self.queue,
            TenSeconds(),
            air,
            2,
            self.byte_counts,
            self.times,
            lambda *fields: self.sent.append(fields),
            loss,
            seed,
        )

    def upload(self, at: float, device: Address, gateway: Address, number: int = 1) -> None:
        weights = frozen(np.zeros(MODEL // 4, np.float32))
        update = m.Update(JobId(gateway.number, 1, number), weights, 1, 1, 0.0, 0.0, None, 0.0, 0.0)
        self.transfers.start(at, device, gateway, update)

    def until(self, end: float = float("inf")) -> list[tuple[float, str]]:
        """Return (time, sender) of all transfers that arrive before `end`."""
        arrived = []
        while self.queue.heap and self.queue.heap[0][0] < end:
            at, _, _, what = heappop(self.queue.heap)
            if isinstance(what, AirDue):
                self.transfers.air_due(at, what)
            elif (transfer := self.transfers.ended(at, what)) is not None:  # type: ignore[arg-type]
                arrived.append((at, str(transfer.sender)))
        return arrived


def test_two_transfers_in_the_same_air_share_its_rate() -> None:
    air = Air(SharedAir())
    air.upload(0.0, D0, G0)
    assert air.until(5.0) == []
    air.upload(5.0, D1, G0)
    # d0 had 5 s alone and needs 10 more at half the rate; by then d1 has sent half and continues alone.
    assert air.until() == [(15.0, "d0"), (20.0, "d1")]
    assert [fields[5] for fields in air.sent] == [15.0, 15.0]
    # The radio was sending for as long as each would have taken alone; waiting for the air is not counted.
    assert list(air.times.transmit_s) == [10.0, 10.0]


def test_each_gateway_has_its_own_air_and_latency_does_not_use_it() -> None:
    air = Air(SharedAir(latency=2.0))
    air.upload(0.0, D0, G0)
    air.upload(0.0, D1, G1)
    assert air.until() == [(10.0, "d0"), (10.0, "d1")]
    air.upload(20.0, D0, G0)
    air.upload(20.0, D1, G0)
    assert air.until() == [(38.0, "d0"), (38.0, "d1")]  # twice 8 s of air, 2 s of latency


def test_collisions_lower_the_rate() -> None:
    air = Air(SharedAir((1.0, 0.8)))
    air.upload(0.0, D0, G0)
    air.upload(0.0, D1, G0)
    assert air.until() == [(25.0, "d0"), (25.0, "d1")]


def test_the_backhaul_and_single_frames_do_not_share_the_air() -> None:
    air = Air(SharedAir())
    air.upload(0.0, D0, G0)
    air.transfers.start(0.0, D1, G0, m.Alive())
    air.transfers.start(0.0, CLOUD, G0, m.GlobalModel(1, frozen(np.zeros(MODEL // 4, np.float32))))
    assert sorted(air.until()) == [(1.0, "d1"), (10.0, "cloud"), (10.0, "d0")]


@pytest.mark.parametrize("shared", [True, False])
def test_a_transfer_that_is_cut_off_counts_the_bytes_it_has_sent(shared: bool) -> None:
    air = Air(SharedAir() if shared else None)
    air.upload(0.0, D0, G0)
    air.upload(0.0, D1, G0)
    air.until(4.0)
    (cut,) = air.transfers.cut(4.0, D1)
    assert (cut.sender, cut.to) == (D1, G0)
    # Shared, d1 has had 2 of its 10 seconds of air, and d0 continues alone with 8 left.
    share = 0.2 if shared else 0.4
    assert air.sent[0][5:] == (4.0, int(share * MODEL), 0, 0, int(share * HEADER_BYTES))
    assert air.times.transmit_s[1] == share * 10.0
    assert air.until() == [(12.0 if shared else 10.0, "d0")]
    assert air.byte_counts.total == MODEL + HEADER_BYTES + int(share * MODEL) + int(share * HEADER_BYTES)


def test_transfers_in_progress_count_the_bytes_sent_so_far() -> None:
    air = Air(SharedAir(latency=2.0))
    size = MODEL + HEADER_BYTES
    air.upload(0.0, D0, G0)
    assert air.transfers.sent_so_far(0.0) == (0.0, 0.0)
    assert air.transfers.sent_so_far(2.0) == pytest.approx((0.25 * size, 0.25 * MODEL))  # 2 of 8 s in the air
    air.upload(4.0, D1, G0)
    # From now on each has half of the air: d0 4 s alone and 1 more of its 8, d1 1 of 8.
    assert air.transfers.sent_so_far(6.0) == pytest.approx((0.75 * size, 0.75 * MODEL))
    # A model on its way down counts as bytes, but not as a model towards the cloud. Alone it takes 10 s.
    air.transfers.start(6.0, CLOUD, G0, m.GlobalModel(1, frozen(np.zeros(MODEL // 4, np.float32))))
    assert air.transfers.sent_so_far(7.0) == pytest.approx((0.975 * size, 0.875 * MODEL))
    # d0 has left the air at 12 and arrives at 14: all of it is sent, and it is not counted yet.
    assert air.until(13.0) == []
    assert air.byte_counts.total == 0
    assert air.transfers.sent_so_far(13.0) == pytest.approx(((1.0 + 0.625 + 0.7) * size, 1.625 * MODEL))
    # What d1 has sent by 15 was 4 + 3 of its 8 s; what has arrived is in the byte counts, not here.
    air.until(14.5)
    air.transfers.cut(14.5, CLOUD)
    assert air.byte_counts.total == size + int(0.85 * MODEL) + int(0.85 * HEADER_BYTES)
    assert air.transfers.sent_so_far(15.0) == pytest.approx((0.875 * size, 0.875 * MODEL))
    air.until()
    assert air.transfers.sent_so_far(100.0) == (0.0, 0.0)


def test_a_transfer_that_will_break_off_counts_only_the_bytes_until_then() -> None:
    air = Air(None, loss=1.0, seed=3)
    air.upload(0.0, D0, G0)
    air.until()
    share = air.sent[0][6] / MODEL
    assert 0.0 < share < 1.0
    air = Air(None, loss=1.0, seed=3)
    air.upload(0.0, D0, G0)
    half = 0.5 * share
    expected = (half * (MODEL + HEADER_BYTES), half * MODEL)
    assert air.transfers.sent_so_far(10.0 * half) == pytest.approx(expected, rel=1e-3)


def test_a_cut_between_two_nodes_leaves_other_transfers_alone() -> None:
    air = Air(None)
    air.upload(0.0, D0, G0)
    air.upload(0.0, D0, G1)
    air.transfers.start(0.0, G0, D0, m.Probe())
    assert [str(cut.sender) for cut in air.transfers.cut(0.5, D0, G0)] == ["d0", "g0"]
    assert air.until() == [(10.0, "d0")]
    assert air.transfers.cut(11.0, D0) == []


def test_some_transfers_break_off_at_a_random_point() -> None:
    air = Air(None, loss=0.25, seed=5)
    for number in range(400):
        air.upload(0.0, D0, G0, number)
    air.until()
    shares = np.array([fields[6] / MODEL for fields in air.sent])
    broken = shares[shares < 1.0]
    assert len(shares) == 400
    assert len(broken) == pytest.approx(100, abs=25)
    assert broken.mean() == pytest.approx(0.5, abs=0.1)
    # A transfer that breaks off half-way does so after half of its duration.
    assert all(fields[5] == pytest.approx(10.0 * fields[6] / MODEL, abs=1e-3) for fields in air.sent)


def test_a_snapshot_during_transfers_changes_nothing() -> None:
    whole, first, second = Air(SharedAir()), Air(SharedAir()), Air(SharedAir())
    for air in (whole, first):
        air.upload(0.0, D0, G0)
        air.upload(3.0, D1, G0)
    assert first.until(7.0) == []
    second.transfers.restore(list(first.transfers.snapshot(1)))
    second.queue.restore(list(first.queue.snapshot(100)))
    assert second.transfers.sent_so_far(8.0) == first.transfers.sent_so_far(8.0)
    assert second.until() == whole.until()
