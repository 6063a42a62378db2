"""A cloud that continues from an older copy of its state: it works with no gateway that remembers the time since."""

from __future__ import annotations

from test_joining import running_cloud, says, sent

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Write
from async_hfl.core.protocol.events import Restored
from async_hfl.core.protocol.records import LifecycleRecord, LostRecord
from async_hfl.nodes.cloud.node import CloudNode


def restored() -> tuple[CloudNode, list[Effect]]:
    cloud = running_cloud()
    return cloud, cloud.handle(Restored(50.0, 99))


def upload(incarnation: int, number: int, base_epoch: int) -> m.Upload:
    return m.Upload(
        UploadId(0, incarnation, number), running_cloud().state.weights, base_epoch, 1, 10, False, 1, (), (number,)
    )


def test_its_gateways_are_declared_lost_and_numbers_are_skipped() -> None:
    before = running_cloud()
    cloud, effects = restored()
    records = [effect.record for effect in effects if isinstance(effect, Write)]
    assert [(record.what, record.node) for record in records if isinstance(record, LifecycleRecord)] == [
        ("restored", "cloud"),
        ("gateway_lost", "g0"),
        ("gateway_lost", "g1"),
    ]
    assert cloud.state.association.version > before.state.association.version + 10_000
    assert min(cloud.state.association.lease) > max(before.state.association.lease) + 10_000
    assert not any(member.live for member in cloud.state.members)


def test_a_gateway_is_fenced_whatever_its_incarnation_and_then_joins() -> None:
    for message in (m.Hello(777), m.Report(777, 1), upload(777, 4, base_epoch=5000)):
        cloud, _ = restored()
        effects = says(cloud, 0, message, 51.0)
        assert sent(effects, m.Fenced) == [(0, m.Fenced(777, ()))]
        assert sent(effects, m.Refused) == []
        assert cloud.state.epoch == running_cloud().state.epoch
        effects = says(cloud, 0, m.Hello(778), 52.0)
        assert sent(effects, m.Fenced) == []
        assert cloud.state.members[0].live
        assert [gateway for gateway, _ in sent(effects, m.Assignment)] == [0]
        # What it had sent before arrives late: it is fenced again, and changes nothing.
        assert sent(says(cloud, 0, upload(777, 5, base_epoch=1), 53.0), m.Fenced) == [(0, m.Fenced(777, ()))]


def test_leases_from_before_are_void_and_updates_that_devices_report_are_listed_as_lost() -> None:
    cloud, _ = restored()
    known = m.DeviceKnowledge(0, 1.0, True, 10, 0.5, 0.25)
    assert says(cloud, 0, m.LeaseReleased(m.Lease(0, 1, 1), known, False), 51.0) == []
    incarnation = next(iter(cloud.state.members[0].fenced))
    job = JobId(0, incarnation, 12)
    effects = says(cloud, 1, m.Unsettled(1, (job,)), 51.5)
    assert [effect.record for effect in effects if isinstance(effect, Write)] == [LostRecord(51.5, job, 1)]
    assert 1 in cloud.state.outdated  # a device's report does not show that its gateway has started again


def test_the_copy_survives_a_restart() -> None:
    cloud, _ = restored()
    again = running_cloud()
    again.restore(cloud.snapshot())
    assert again.state.outdated == {0, 1}
    assert sent(says(again, 0, m.Hello(777), 51.0), m.Fenced) == [(0, m.Fenced(777, ()))]
